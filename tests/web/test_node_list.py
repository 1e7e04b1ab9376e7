"""Which nodes are on the list, and since when one is silent: lost, renamed, replaced and doubled machines, and clocks that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import GpuSample, NodeSample
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import gpu_point, node_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.hosts import MAX_HOSTS, Names, expanded, hosts_of
from trainvitals.web.node_list import NEVER_NS, UNUSED_NS, listed
from trainvitals.web.nodes import NodeReader
from trainvitals.web.present import band, nodes_tile
from trainvitals.web.view import AttemptView, Configuration, ControlView, RunView, Snapshot
from trainvitals.web.wall_zh import band as band_zh
from trainvitals.web.wall_zh import nodes_head

S = 10**9
NOW = 1_795_000_000 * S
SETTINGS = Settings(store="sqlite:///nowhere")


def run(*hosts: str, hostlist: str = "", ended: bool = False, name: str = "a") -> RunView:
    sections: dict[str, dict[str, str]] = {"ranks": {str(rank): f"{host}/{rank}/GPU-{rank}" for rank, host in enumerate(hosts)}}
    sections |= {"job": {"hostlist": hostlist}} if hostlist else {}
    return RunView(
        RunSettings(name), NOW, Verdict(VerdictWord.HEALTHY, "ok", "step 7, nothing open", None), ControlView("running", "Running.", can_act=True),
        attempts=(AttemptView(3, NOW - 9_000 * S, 1, 7, ended_ns=NOW if ended else None),), last_step=7,
        configurations=(Configuration(3, sections),) if hosts or hostlist else (),
    )  # fmt: skip


def node(name: str, age_s: float = 1.0, state: str = "ok", **more) -> NodeSample:
    return NodeSample(name, NOW - round(age_s * S), state, **more)


def shown(nodes: list[NodeSample], *runs: RunView, gpus: tuple[GpuSample, ...] = ()) -> dict[str, NodeSample]:
    return {one.node: one for one in listed(nodes, gpus, runs, NOW, 30.0)[0]}


def test_a_node_of_the_run_that_never_reported_is_missed_and_not_called_well() -> None:
    found = shown([node("node15"), node("node16")], run("node15", "node16", "node17"))
    assert (found["node17"].state, found["node17"].time_ns, found["node17"].run) == ("silent", NEVER_NS, "a")
    tile = nodes_tile(list(found.values()), NOW)
    assert (tile["value"], tile["context"], tile["tone"]) == ("2 of 3", "node17 has no report", "warning")


def test_a_node_that_went_silent_is_named_with_how_long_in_both_languages() -> None:
    nodes = [node("node15"), node("node16"), node("node17", 240, "silent")]
    assert nodes_tile(nodes, NOW)["context"] == "node17 silent for 4 min"
    assert nodes_head(nodes, NOW) == "3 个中 2 个上报 · node17 已 4 分钟无上报"


def test_the_verdict_of_a_healthy_run_says_that_one_of_its_machines_does_not_report() -> None:
    view = run("node15", "node16", "node17")
    nodes = listed(
        [node("node15"), node("node16"), node("node17", 240, "silent"), node("other", 300, "silent")], (), (view,), NOW, 30.0
    )[0]
    snapshot = Snapshot(NOW, (view,), nodes)
    assert "2 of 3 nodes report: node17 silent for 4 min" in band(snapshot, view, NOW, 1.0)["facts"]
    assert "节点 3 个中 2 个上报：node17 已 4 分钟无上报" in band_zh(snapshot, view, NOW)["facts"]


def test_where_no_collector_was_put_on_the_machines_none_is_missed() -> None:
    assert set(shown([node("login1")], run("node15", "node16"))) == {"login1"}


def test_where_collectors_were_put_on_a_few_the_others_are_unknown_and_no_alarm() -> None:
    found = shown([node("node1")], run("node1", "node2", "node3"))
    assert [found[name].state for name in ("node2", "node3")] == ["unknown", "unknown"]
    tile = nodes_tile(list(found.values()), NOW)
    assert (tile["value"], tile["tone"]) == ("1 of 3", "")


def test_a_node_replaced_on_purpose_leaves_the_list_with_the_start_that_does_not_use_it() -> None:
    nodes = [node("node15"), node("node17", UNUSED_NS / S + 1, "silent")]
    assert set(shown(nodes, run("node15"))) == {"node15"}
    assert set(shown(nodes, run("node15", "node17"))) == {"node15", "node17"}, "the start that runs uses it"
    assert set(shown(nodes, run("node15"), run(name="b"))) == {"node15", "node17"}, "a run does not tell where it runs"
    assert set(shown([*nodes, node("node18", 60, "silent")], run("node15"))) == {"node15", "node18"}, "it just went"


def test_names_that_fit_no_node_take_none_from_the_list() -> None:
    nodes = [node("node15"), node("node17", 2 * UNUSED_NS / S, "silent")]
    assert set(shown(nodes, run("trainer-pod-0", "trainer-pod-1"))) == {"node15", "node17"}


def test_a_start_that_ended_misses_nobody() -> None:
    assert set(shown([node("node15")], run("node15", "node16", ended=True))) == {"node15"}


def test_a_trainer_that_was_killed_misses_its_machines_for_a_day_and_not_for_ever() -> None:
    dead = replace(
        run("node15", "node16"), verdict=Verdict(VerdictWord.STOPPED, "critical", "", None), last_step_time_ns=NOW - 3_600 * S
    )
    assert set(shown([node("node15")], dead)) == {"node15", "node16"}
    assert set(shown([node("node15")], replace(dead, taken_at_ns=NOW + 86_400 * S))) == {"node15"}
    hung = replace(dead, verdict=Verdict(VerdictWord.HUNG, "critical", "", None), taken_at_ns=NOW + 86_400 * S)
    assert set(shown([node("node15")], hung)) == {"node15", "node16"}


def test_machines_are_found_with_and_without_their_domain() -> None:
    names = Names(["gpu1.cluster.example", "GPU2", "gpu3.a", "gpu3.b", "10.0.0.1", "10.0.0.2"])
    assert names.find("gpu1") == ("gpu1.cluster.example",)
    assert names.find("gpu2.cluster.example") == ("GPU2",)
    assert names.find("gpu3.b") == ("gpu3.b",)
    assert names.find("gpu3") == ("gpu3.a", "gpu3.b")
    assert names.find("gpu3.c") == names.find("10.0.0.3") == ()
    found = shown([node("gpu1.cluster.example"), node("gpu2")], run("gpu1", "gpu2.cluster.example"))
    assert {name: one.run for name, one in found.items()} == {"gpu1.cluster.example": "a", "gpu2": "a"}


def test_the_schedulers_list_is_used_where_the_trainer_tells_no_ranks() -> None:
    assert hosts_of(run(hostlist="gpu[001,003-004],login1")) == ("gpu001", "gpu003", "gpu004", "login1")
    assert expanded("rack[1-2]-n0") == ("rack1-n0", "rack2-n0")
    assert expanded("gpu[1-") == expanded("gpu[1]x[2]") == expanded("[[") == expanded("") == ()
    assert len(expanded("n[0-999999999]")) == MAX_HOSTS


@given(st.text(alphabet="gn[]0123456789,-. \n", max_size=60))
def test_any_text_for_a_list_gives_names_or_none(text: str) -> None:
    assert all(isinstance(name, str) and name for name in expanded(text))


def gpu(name: str, index: int, uuid: str, age_s: float = 1.0) -> GpuSample:
    return GpuSample(node=name, gpu=uuid, index=index, time_ns=NOW - round(age_s * S), state="silent" if age_s > 30 else "ok")


def test_a_gpu_that_was_replaced_leaves_the_list_and_one_that_is_missed_stays() -> None:
    devices = (gpu("n", 0, "GPU-a"), gpu("n", 1, "GPU-new"), gpu("n", 1, "GPU-old", 3_600))
    kept = listed([node("n", gpus=2)], devices, (), NOW, 30.0)[1]
    assert [one.gpu for one in kept] == ["GPU-a", "GPU-new"]
    assert len(listed([node("n", gpus=3)], devices, (), NOW, 30.0)[1]) == 3
    assert len(listed([node("n", 300, "silent", gpus=2)], devices, (), NOW, 30.0)[1]) == 3


def test_two_machines_with_one_name_are_told_and_not_called_well() -> None:
    devices = tuple(gpu("ubuntu", index % 2, f"GPU-{index}") for index in range(4))
    found = shown([node("ubuntu", gpus=2)], gpus=devices)["ubuntu"]
    assert found.state == "warn"
    assert "more than one machine reports as ubuntu" in found.text


def test_a_machine_that_got_another_name_is_not_missed_under_the_old_one() -> None:
    devices = (gpu("new", 0, "GPU-a"), gpu("old", 0, "GPU-a", 300))
    assert set(shown([node("new", gpus=1), node("old", 300, "silent", gpus=1)], gpus=devices)) == {"new"}
    other = (gpu("new", 0, "GPU-b"), gpu("old", 0, "GPU-a", 300))
    assert set(shown([node("new", gpus=1), node("old", 300, "silent", gpus=1)], gpus=other)) == {"new", "old"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


def told(store: SqliteStore, reader: NodeReader, now_ns: int, stamp_ns: int | None = None) -> NodeSample:
    """One look at ``now_ns``; a sample that the node stamped so arrives before it."""
    if stamp_ns is not None:
        store.write([node_point(NodeSample("n", stamp_ns, "ok", gpus=1)), gpu_point(GpuSample("n", "GPU-a", 0, stamp_ns, "ok"))])
    found, devices = reader.of(store, now_ns, SETTINGS)
    assert all(one.state == found[0].state and one.time_ns == found[0].time_ns for one in devices)
    return found[0]


def test_a_node_whose_clock_is_behind_is_alive_while_it_reports_and_silent_when_it_stops(store: SqliteStore) -> None:
    reader = NodeReader()
    told(store, reader, NOW, NOW - 300 * S)
    alive = told(store, reader, NOW + 10 * S, NOW - 290 * S)
    assert (alive.state, alive.time_ns) == ("ok", NOW + 10 * S)
    assert "its clock is 5 min 0 s behind" in alive.text
    assert told(store, reader, NOW + 35 * S).state == "ok"
    gone = told(store, reader, NOW + 45 * S)
    assert (gone.state, gone.time_ns) == ("silent", NOW + 10 * S)


def test_a_node_whose_clock_is_ahead_does_not_stay_green_after_it_died(store: SqliteStore) -> None:
    reader = NodeReader()
    assert told(store, reader, NOW, NOW + 1_800 * S).state == "ok"
    assert told(store, reader, NOW + 29 * S).state == "ok"
    assert told(store, reader, NOW + 31 * S).state == "silent"
    assert told(store, reader, NOW + 40 * S, NOW + 1_840 * S).state == "ok"
    assert told(store, reader, NOW + 71 * S).state == "silent"


def test_a_clock_that_is_put_right_is_believed_again(store: SqliteStore) -> None:
    reader = NodeReader()
    told(store, reader, NOW, NOW - 300 * S)
    told(store, reader, NOW + 10 * S, NOW - 290 * S)
    assert told(store, reader, NOW + 20 * S, NOW + 20 * S).text == ""
    assert told(store, reader, NOW + 51 * S).state == "silent"


def test_samples_that_came_late_once_make_no_clock_wrong(store: SqliteStore) -> None:
    reader = NodeReader()
    for second in range(0, 50, 10):
        assert told(store, reader, NOW + second * S, NOW + second * S).state == "ok"
    late = told(store, reader, NOW + 300 * S, NOW + 200 * S)
    assert (late.state, late.text) == ("silent", "it last said ok")
    assert told(store, reader, NOW + 301 * S, NOW + 300 * S).state == "ok"


def test_a_node_that_failed_and_fell_silent_still_says_of_what(store: SqliteStore) -> None:
    store.write([node_point(NodeSample("n", NOW, "fail", gpus=8, text="GPU 3 is lost"))])
    (gone,), _ = NodeReader().of(store, NOW + 60 * S, SETTINGS)
    assert (gone.state, gone.text) == ("silent", "it last said fail: GPU 3 is lost")
