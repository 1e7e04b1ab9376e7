"""The node wall's payload, the checkpoint timeline and the strip."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.charts.checkpoint_timeline import timeline_json
from trainvitals.charts.checkpoints import LOOKS, attempt_of, lanes_of, strip
from trainvitals.charts.nodes import SIMULATED_BIT, STATES, group_of, natural_key, wall_payload
from trainvitals.records import CheckpointReport, CheckpointState, GpuSample, NodeSample, VerificationLevel


@dataclass(frozen=True)
class Start:
    number: int
    started_ns: int
    first_step: int | None


def node(name: str, state: str = "ok", **more: object) -> NodeSample:
    return NodeSample(name, 1, state, **more)  # type: ignore[arg-type]


def checkpoint(step: int | None, state: CheckpointState = CheckpointState.VERIFIED, **more: object) -> CheckpointReport:
    level = VerificationLevel.CONTENT if state is CheckpointState.VERIFIED else None
    return CheckpointReport(f"/c/{step}", step, "hf", state, level, True, 3, 10**9, **more)  # type: ignore[arg-type]


def test_one_byte_a_node_in_natural_order_with_texts_only_for_bad_ones() -> None:
    payload = wall_payload([node("n10"), node("n9", "fail", text="Xid 79"), node("n2", is_simulated=True)], [])
    assert payload["names"] == ["n9", "n10", "n2"]
    assert list(base64.b64decode(payload["tiles"])) == [STATES.index("fail"), 0, SIMULATED_BIT]
    assert payload["texts"] == {"0": "Xid 79"}
    assert payload["counts"] == {"ok": 2, "fail": 1}


def test_gpu_tiles_are_in_index_order_and_absent_gpus_are_no_tiles() -> None:
    gpus = [GpuSample("a", "u1", 1, 1, "lost"), GpuSample("a", "u0", 0, 1, "ok"), GpuSample("b", "u2", 0, 1, "warm")]
    payload = wall_payload([node("a", "fail"), node("b")], gpus)
    states = [STATES[code] for code in base64.b64decode(payload["gpu_tiles"])]
    assert (payload["gpus_per_node"], states) == (2, ["ok", "lost", "warm", ""])
    assert payload["texts"]["0"] == "GPU 1 lost"


def test_real_nodes_come_first_and_no_group_is_nameless() -> None:
    drill = [node(f"sim-r01-n{number}", is_simulated=True) for number in range(4)]
    payload = wall_payload([*drill, node("zeta", "no_gpu")], [])
    assert payload["names"][0] == "zeta" and payload["groups"][0] == "real nodes"
    assert payload["texts"] == {"0": "no GPU on this host"}
    assert wall_payload([node("r1-n1"), node("alone")], [])["groups"] == ["r1", "other nodes"]
    assert wall_payload([node("a"), node("b")], [])["groups"] == ["", ""]


def test_a_state_nobody_declared_is_unknown_and_never_ok() -> None:
    payload = wall_payload([node("a", "purple")], [])
    assert STATES[base64.b64decode(payload["tiles"])[0]] == "unknown"


def test_the_hash_stands_for_the_names_and_not_for_the_states() -> None:
    first, second = wall_payload([node("a"), node("b")], []), wall_payload([node("b", "fail"), node("a")], [])
    assert first["names_hash"] == second["names_hash"]
    assert first["names_hash"] != wall_payload([node("a"), node("c")], [])["names_hash"]


def test_no_nodes_at_all_is_a_valid_payload() -> None:
    assert json.loads(json.dumps(wall_payload([], [])))["tiles"] == ""


def test_groups_come_from_names() -> None:
    names = {"rack12-node03": "rack12", "r1n2": "r1", "node0001": "", "gpu-7-12": "gpu-7", "alone": ""}
    assert {name: group_of(name) for name in names} == names


@given(st.lists(st.text(max_size=12), max_size=20))
def test_any_names_can_be_sorted_and_described(names: list[str]) -> None:
    assert len(sorted(names, key=natural_key)) == len(names)
    assert len(wall_payload([node(name) for name in names], [])["names"]) == len(names)


def test_every_state_of_a_checkpoint_has_a_colour_and_a_glyph() -> None:
    assert set(LOOKS) == set(CheckpointState)
    assert all(glyph for _, glyph in LOOKS.values())


def test_the_timeline_puts_each_checkpoint_in_the_lane_of_its_attempt() -> None:
    starts = [Start(1, 100, 0), Start(2, 200, 50)]
    made = [
        checkpoint(40, modified_at_ns=150),
        checkpoint(60, modified_at_ns=250),
        checkpoint(80),
        checkpoint(90, CheckpointState.CORRUPT),
    ]
    assert [attempt_of(one, starts) for one in made] == [1, 2, 2, 2]
    figure = json.loads(timeline_json(made, starts, "light"))
    assert sorted(path for trace in figure["data"] for path in trace["customdata"]) == ["/c/40", "/c/60", "/c/80", "/c/90"]
    assert {trace["meta"]["kind"] for trace in figure["data"]} == {"checkpoint"}
    assert figure["layout"]["yaxis"]["ticktext"] == ["#1", "#2"]


def test_a_damaged_checkpoint_stays_in_its_lane_after_a_later_attempt_wrote_it_again() -> None:
    starts = [Start(1, 100, 0), Start(2, 200, 50)]
    torn = checkpoint(60, CheckpointState.CORRUPT, modified_at_ns=150, reasons=("the file ends early", "no manifest"))
    whole = checkpoint(60, modified_at_ns=260)
    figure = json.loads(timeline_json([whole], starts, "light", [(1, torn), (2, whole)]))
    lanes = {trace["meta"]["metric"]: (trace["y"], trace["text"], trace["hovertext"]) for trace in figure["data"]}
    assert set(lanes) == {"corrupt", "verified"} and figure["layout"]["yaxis"]["ticktext"] == ["#1", "#2"]
    assert lanes["corrupt"][1] == ["✕"] and "the file ends early; no manifest" in lanes["corrupt"][2][0]


def test_a_report_belongs_to_the_attempt_that_wrote_the_files() -> None:
    starts = [Start(1, 100, 0), Start(2, 200, 50)]
    late = [(1, checkpoint(40, CheckpointState.COMPLETE, modified_at_ns=150)), (2, checkpoint(40, modified_at_ns=150))]
    assert [(lane, report.state.value) for lane, report in lanes_of(late, starts)] == [(1, "verified")]
    torn = checkpoint(60, CheckpointState.CORRUPT, modified_at_ns=150)
    assert lanes_of([(1, torn), (2, checkpoint(60, CheckpointState.DELETED))], starts) == [(1, torn)]


def test_a_checkpoint_without_a_step_is_said_and_not_lost() -> None:
    figure = json.loads(timeline_json([checkpoint(None), checkpoint(10)], [], "dark"))
    assert figure["layout"]["annotations"][0]["text"] == "1 without a known step: see the table"


def test_no_checkpoints_at_all_is_a_sentence() -> None:
    assert json.loads(timeline_json([], [], "light"))["layout"]["annotations"][0]["text"] == "no checkpoint seen yet"
    assert strip([], None) == []


def test_the_strip_keeps_the_recommended_checkpoint_however_old_it_is() -> None:
    made = [checkpoint(step) for step in range(100, 4000, 100)]
    cells = strip(made, made[0])
    assert len(cells) == 16
    assert [cell["label"] for cell in cells if cell["is_recommended"]] == ["100"]
    assert [cell["step"] for cell in cells] == sorted(cell["step"] for cell in cells)


def test_only_a_verified_content_is_strong() -> None:
    cells = strip([checkpoint(1), checkpoint(2, CheckpointState.COMPLETE)], None)
    assert [cell["is_strong"] for cell in cells] == [True, False]


def test_a_suspect_checkpoint_does_not_look_like_a_good_one() -> None:
    good, damaged = (
        CheckpointReport(f"/c/{step}", step, "hf", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 1, 1)
        for step in (1800, 1930)
    )
    cells = {cell["label"]: cell for cell in strip([good, damaged], good, {"/c/1930": 1860})}
    assert (cells["1,930"]["tone"], cells["1,930"]["glyph"], cells["1,930"]["is_strong"]) == ("warning", "!", False)
    assert "suspect" in cells["1,930"]["title"] and "1,860" in cells["1,930"]["title"]
    assert cells["1,800"]["tone"] == "ok"
    traces = json.loads(timeline_json([good, damaged], [], "light", (), {"/c/1930": 1860}))["data"]
    assert {trace["name"]: trace["customdata"] for trace in traces} == {"verified": ["/c/1800"], "suspect": ["/c/1930"]}
