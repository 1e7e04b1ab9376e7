"""The timeline of checkpoints: lanes, bars of saves, arrows of starts, what is safe and what a restart loads; bounded and literal."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.charts.checkpoint_timeline import MOST_CHECKPOINTS, Around, timeline_height, timeline_json
from trainvitals.charts.save_bars import save_sentence
from trainvitals.incidents.saves import SaveTime
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

HOSTILE = '<a href="http://evil.invalid">x</a> %{x} &amp; ![x](y)'


@dataclass(frozen=True)
class Try:
    number: int
    started_ns: int
    first_step: int | None
    last_step: int | None = None
    superseded_from: int | None = None


@dataclass(frozen=True)
class Resumed:
    attempt: int
    from_step: int
    first_step: int | None
    path: str
    loss_before: float | None = 2.1
    loss_after: float | None = None
    settings: str = "as when it was saved: settings"


def report(step: int, state: CheckpointState = CheckpointState.VERIFIED, **more: Any) -> CheckpointReport:
    level = VerificationLevel.CONTENT if state is CheckpointState.VERIFIED else None
    return CheckpointReport(f"/c/{step}", step, "dcp", state, level, True, 3, 10**9, **{"modified_at_ns": step, **more})


def figure(checkpoints: list[CheckpointReport], attempts: list[Try], around: Around, **more: Any) -> dict[str, Any]:
    def refuse(name: str) -> float:
        raise AssertionError(name)

    return dict(json.loads(timeline_json(checkpoints, attempts, "light", around=around, **more), parse_constant=refuse))


TRIES = [Try(1, 0, 1, 400, 201), Try(2, 350, 201, 600)]
MADE = [report(100), report(200), report(300), report(400), report(500, CheckpointState.CORRUPT)]


def test_each_save_is_a_bar_of_three_parts_the_longest_behind() -> None:
    saves = [SaveTime(step, f"/c/{step}", 1, step, 0.5, 2.0, 30.0, True) for step in (100, 200)]
    bars = [one for one in figure(MADE, TRIES, Around(saves))["data"] if one["type"] == "bar"]
    assert [bar["meta"]["metric"] for bar in bars] == ["persisted_s", "staged_s", "blocked_s"]
    assert [bar["y"] for bar in bars] == [[30.0, 30.0], [2.0, 2.0], [0.5, 0.5]] and bars[0]["x"] == [100, 200]
    assert "the training waited 500 ms, copied after 2 s, on disk after 30 s (in the background)" in bars[0]["hovertext"][0]


def test_a_log_that_tells_only_begin_and_end_gives_bars_of_one_part_and_none_gives_no_row() -> None:
    logged = SaveTime(100, "", 1, 1, blocked_s=4.0, is_from_hook=False)
    drawn = figure(MADE, TRIES, Around([logged]))
    assert [one["meta"]["metric"] for one in drawn["data"] if one["type"] == "bar"] == ["blocked_s"]
    assert "as its log tells" in save_sentence(logged)
    assert "yaxis2" not in figure(MADE, TRIES, Around([SaveTime(100, "", 1)]))["layout"]
    assert timeline_height(1, True) > timeline_height(1, False) and timeline_height(40, False) < 500


def test_an_arrow_goes_from_the_lane_of_the_checkpoint_to_the_start_that_went_on_from_it() -> None:
    drawn = figure(MADE, TRIES, Around(starts=[Resumed(2, 200, 201, "/c/200")]))
    (arrow,) = [one for one in drawn["layout"]["annotations"] if one.get("showarrow")]
    assert (arrow["ax"], arrow["x"], round(arrow["ay"]), round(arrow["y"])) == (200, 201, 0, 1)
    (start,) = [one for one in drawn["data"] if one["name"] == "start"]
    assert start["hovertext"] == ["attempt 2 went on from step 200 · loss 2.1 → ? · settings as when it was saved: settings"]
    assert start["customdata"] == ["/c/200"]


def test_what_is_safe_what_a_restart_loads_and_what_is_kept_are_marked() -> None:
    drawn = figure(MADE, TRIES, Around(recommended="/c/400", picked=["/c/500"], pinned=["/c/400"]))
    words = {one["text"]: one["x"] for one in drawn["layout"]["annotations"] if one["name"] == "named"}
    assert words == {"▲ safe 400": 400, "a restart loads 500 ▼": 500}
    assert [one["name"] for one in drawn["data"]].count("kept") == 1
    told = {
        path: text
        for one in drawn["data"]
        if "customdata" in one
        for path, text in zip(one["customdata"], one["hovertext"], strict=True)
    }
    assert "safe · kept from deletion" in told["/c/400"] and "a restart loads it" in told["/c/500"]


def test_no_ring_is_drawn_around_what_an_earlier_attempt_left_damaged_at_a_path_that_is_kept_now() -> None:
    damaged, whole = report(400, CheckpointState.CORRUPT, modified_at_ns=1), report(400, modified_at_ns=99)
    drawn = json.loads(timeline_json([whole], TRIES, "dark", [(1, damaged), (2, whole)], {}, Around(pinned=[whole.path])))
    (kept,) = [one for one in drawn["data"] if one["name"] == "kept"]
    assert len(base64.b64decode(kept["x"]["bdata"])) == 4, "one whole number: the ring of the newer one"


def test_deleted_ones_are_faint_and_failed_saves_are_crosses() -> None:
    drawn = figure(
        [*MADE, report(50, CheckpointState.DELETED)], TRIES, Around([SaveTime(150, "/c/150", 1, 150, problem="disk full")])
    )
    faint = {one["name"] for one in drawn["data"] if one.get("opacity", 1) < 1}
    assert faint == {"deleted"}
    (failed,) = [one for one in drawn["data"] if one["name"] == "save failed"]
    assert failed["x"] == [150] and failed["hovertext"] == ["step 150 · disk full"]


def test_ten_thousand_checkpoints_are_bounded_and_those_that_matter_are_among_them() -> None:
    many = [report(step, CheckpointState.DELETED) for step in range(10, 100_000, 10)]
    many[5] = report(60)
    many[7] = report(80, CheckpointState.CORRUPT)
    many[9] = report(100)
    saves = [SaveTime(step, f"/c/{step}", 1, step, 1.0, 2.0, 3.0) for step in range(10, 100_000, 10)]
    begun = time.perf_counter()
    text = timeline_json(many, [Try(1, 0, 1, 100_000)], "dark", around=Around(saves, recommended="/c/60", pinned=["/c/100"]))
    took_s = time.perf_counter() - begun
    drawn = json.loads(text)
    paths = [path for one in drawn["data"] for path in one.get("customdata", ())]
    assert len(paths) == MOST_CHECKPOINTS and {"/c/60", "/c/80", "/c/100", "/c/99990"} <= set(paths)
    assert "9,699 older ones are not drawn" in json.dumps(drawn["layout"]["annotations"], ensure_ascii=False)
    assert len(text) < 200_000 and took_s < 2.0


def test_hostile_text_stays_text() -> None:
    bad = report(500, CheckpointState.CORRUPT, reasons=(HOSTILE,))
    around = Around([SaveTime(100, "/c", 1, 1, problem=HOSTILE)], [Resumed(2, 200, 201, HOSTILE, settings=HOSTILE)])
    for text in [text for one in figure([bad], TRIES, around)["data"] for text in one.get("hovertext", ())]:
        assert "<" not in text and ">" not in text


SECONDS = st.one_of(st.none(), st.floats(0, 1e6))


@given(
    st.lists(st.builds(report, st.integers(0, 10**9), st.sampled_from(CheckpointState)), max_size=20),
    st.lists(st.builds(lambda step, n, a, b, c: SaveTime(step, "/c", n, None, a, b, c), st.integers(0, 10**9), st.integers(0, 9), SECONDS,
                       SECONDS, SECONDS), max_size=20),
    st.lists(st.builds(lambda n, s, f: Try(n, 0, s, f), st.integers(1, 30), st.one_of(st.none(), st.integers(0, 10**9)),
                       st.one_of(st.none(), st.integers(0, 10**9))), max_size=20, unique_by=lambda one: one.number),
    st.lists(st.builds(lambda n, s: Resumed(n, s, None, f"/c/{s}"), st.integers(1, 30), st.integers(0, 10**9)), max_size=9),
)  # fmt: skip
def test_any_run_gives_a_figure(
    checkpoints: list[CheckpointReport], saves: list[SaveTime], attempts: list[Try], starts: list[Resumed]
) -> None:
    drawn = figure(checkpoints, attempts, Around(saves, starts, ["/c/1"], "/c/2", ["/c/3"]))
    first, last = drawn["layout"]["xaxis"]["range"]
    assert first < last
