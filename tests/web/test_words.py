"""Numbers, times, windows and tiles as people read them; and what may be asked of a trainer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control.request import init, read_request
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import CheckpointReport, CheckpointState, NodeSample, VerificationLevel
from trainvitals.settings import RunSettings, Settings
from trainvitals.web import format as fmt
from trainvitals.web import window
from trainvitals.web.actions import ask
from trainvitals.web.control_words import breaker_words
from trainvitals.web.present import band, nodes_tile, possible_actions, rollback_cost, tiles
from trainvitals.web.view import ControlView, MetricNow, RunView, Snapshot

NOW = 1_795_000_000 * 10**9


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (2.31, "2.310"),
        (14.2, "14.20"),
        (251.7, "251.7"),
        (66_120.0, "66,120"),
        (2.61e6, "2.61 M"),
        (3e-4, "3.0e-04"),
        (-2.5, "-2.500"),
    ],
)
def test_a_number_has_about_four_digits(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


def test_a_number_that_is_none_says_which() -> None:
    assert [fmt.number(None, kind) for kind in ("nan", "inf", "-inf")] == ["NaN", "+Inf", "−Inf"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_short(value: float) -> None:
    assert len(fmt.number(value)) <= 12


@given(st.integers(0, 10**18))
def test_any_size_is_short_and_keeps_its_magnitude(value: int) -> None:
    text = fmt.size(value)
    amount, unit = text.split(" ")
    scale = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert math.isclose(float(amount) * scale, value, rel_tol=0.01, abs_tol=1)


def test_times_are_in_the_runs_zone_and_in_utc() -> None:
    assert fmt.moment(NOW, "Asia/Shanghai", now_ns=NOW) == "19:06:40 CST · 11:06 UTC"
    assert fmt.moment(NOW, "UTC", now_ns=NOW) == "11:06:40 UTC"
    assert fmt.moment(NOW, "UTC", now_ns=NOW + 86_400 * 10**9).startswith("2026-11-18 ")
    assert fmt.moment(NOW, "Nowhere/Made_up", now_ns=NOW) == "11:06:40 UTC"
    assert fmt.moment(None) == "–"


@given(st.sampled_from(["step", "time"]), st.none() | st.text(max_size=40), st.none() | st.text(max_size=40))
def test_an_address_of_any_text_names_a_window_or_none(by: str, first: str | None, last: str | None) -> None:
    found = window.read(by, first, last)
    if found is not None and None not in found:
        assert found[0] <= found[1]


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_a_window_of_steps_survives_the_address(first: int, width: int) -> None:
    written = window.write("step", first, first + width)
    assert window.read("step", written["from"], written["to"]) == (first, first + width)


def test_a_window_of_times_survives_the_address_and_takes_epochs_of_any_unit() -> None:
    written = window.write("time", NOW, NOW + 3600 * 10**9)
    assert written["from"] == "2026-11-18T11:06:40Z"
    assert window.read("time", written["from"], written["to"]) == (NOW, NOW + 3600 * 10**9)
    assert {window.read("time", str(NOW // unit), None) for unit in (1, 10**6, 10**9)} == {(NOW, None)}


def test_what_a_chart_shows_becomes_whole_steps_around_it() -> None:
    assert window.from_chart("step", (1049.6, 1150.2)) == (1049, 1151)
    assert window.from_chart("time", (1_000.5, 2_000.0)) == (1_000 * 10**6, 2_001 * 10**6)
    assert window.around(2400, None) == (2200, 2800)


def run_view(**changes: object) -> RunView:
    base = RunView(
        RunSettings(name="r", dir="/r", total_steps=1000), NOW, Verdict(VerdictWord.HEALTHY, "ok", "step 10, nothing open", NOW - 10**9),
        ControlView("running", "Running.", True), last_step=10, last_step_time_ns=NOW - 10**9, watch_seen_ns=NOW - 10**9,
    )  # fmt: skip
    return replace(base, **changes)


def test_a_quiet_hour_is_one_thin_line() -> None:
    found = band(Snapshot(NOW), run_view(), NOW, 2.0)
    assert found["is_thin"] and found["decision"] == "" and [action["id"] for action in found["actions"]] == ["pause"]
    assert not any(action["is_primary"] for action in found["actions"])


def test_a_request_without_an_answer_is_said_and_the_state_stays_the_trainers() -> None:
    control = ControlView("running", "Running.", True, desired="paused", seq=4, ack_seq=3, is_pending=True)
    found = band(Snapshot(NOW), run_view(control=control), NOW, 2.0)
    assert "asked for: paused, not answered yet" in found["facts"] and found["word"] == "healthy"


@pytest.mark.parametrize(
    ("control", "possible"),
    [
        (ControlView("running", "", True), ("pause", "checkpoint")),
        (ControlView("silent", "", True), ("pause", "checkpoint")),
        (ControlView("paused", "", True, desired="paused"), ("resume",)),
        (ControlView("paused", "", True, desired="running"), ("resume",)),
        (ControlView("stopped", "", True, desired="stopped"), ("resume",)),
        (ControlView("stopped", "", True, desired="running"), ()),
        (ControlView("not_wired", "", False), ()),
        (ControlView("unreadable", "", False), ()),
    ],
)
def test_only_what_makes_sense_now_is_offered(control: ControlView, possible: tuple[str, ...]) -> None:
    assert possible_actions(control) == possible


@pytest.mark.parametrize("word", [VerdictWord.STOPPED, VerdictWord.FINISHED])
def test_a_run_that_is_over_is_not_asked_to_pause_whatever_its_last_status_says(word: VerdictWord) -> None:
    killed = ControlView("silent", "No heartbeat", True)
    assert possible_actions(killed, word) == ()
    assert possible_actions(killed, VerdictWord.HUNG) == ("pause", "checkpoint")
    verdict = Verdict(word, "critical", "gone", NOW)
    actions = band(Snapshot(NOW), run_view(verdict=verdict, control=killed), NOW, 2.0)["actions"]
    assert [action["id"] for action in actions] == []


@pytest.mark.parametrize(
    ("mode", "says"), [("armed", "it pauses this run by itself"), ("dry-run", "pauses nothing"), ("off", "it does nothing")]
)
def test_each_mode_of_the_breaker_is_told_as_it_is(mode: str, says: str) -> None:
    assert says in breaker_words(mode) and "may pause" not in breaker_words(mode)


def test_an_armed_breaker_without_a_trainer_that_listens_promises_no_pause() -> None:
    told = breaker_words("armed", is_wired=False)
    assert "not wired" in told and "pauses this run by itself" not in told
    assert breaker_words("off", is_wired=False) == breaker_words("off")


def test_tiles_say_against_what_and_mark_only_what_is_abnormal() -> None:
    metrics = {
        "loss": MetricNow("loss", None, "nan", 2.3, 10, True),
        "grad_norm": MetricNow("grad_norm", 14.2, None, 0.21, 10, True),
        "tokens_per_s": MetricNow("tokens_per_s", 2.6e6, None, 2.6e6, 10),
    }
    found = {tile["label"]: tile for tile in tiles(Snapshot(NOW), run_view(metrics=metrics, steps_per_s=0.5, eta_s=1980.0), NOW)}
    assert (found["Loss"]["value"], found["Loss"]["context"], found["Loss"]["tone"]) == ("NaN", "usual 2.300", "critical")
    assert found["Grad norm"]["context"] == "68× usual 0.210"
    assert found["Tokens/s"]["tone"] == "" and found["Time left"]["value"] == "33 min"
    assert found["Step"]["context"] == "of 1,000" and found["Data age"]["value"] == "1 s"
    assert found["Verified checkpoint"]["value"] == "none" and found["Nodes"]["value"] == "–"


def test_a_paused_run_makes_no_tokens_and_says_what_it_made() -> None:
    metrics = {"tokens_per_s": MetricNow("tokens_per_s", 2.6e6, None, 2.6e6, 10)}
    paused = run_view(metrics=metrics, control=ControlView("paused", "", True, desired="paused"))
    tile = next(tile for tile in tiles(Snapshot(NOW), paused, NOW) if tile["label"] == "Tokens/s")
    assert (tile["value"], tile["context"]) == ("0", "paused, was 2.60 M")


def test_nodes_without_gpu_are_no_alarm_and_failed_ones_are() -> None:
    assert nodes_tile([NodeSample("n", NOW, "no_gpu")])["tone"] == ""
    assert nodes_tile([NodeSample("n", NOW, "silent")])["tone"] == "warning"
    assert nodes_tile([NodeSample("n", NOW, "fail")])["tone"] == "critical"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "run").mkdir()
    init(tmp_path / "run", "r")
    return Settings(runs=(RunSettings(name="r", dir=str(tmp_path / "run")),))


def test_a_pause_is_written_with_who_and_why(settings: Settings) -> None:
    outcome = ask(settings, "r", "pause", "alice", "loss odd", 0)
    request = read_request(settings.runs[0].dir)
    assert outcome.is_done and outcome.seq == 1
    assert (request.desired, request.by, request.source, request.reason, request.seq) == ("paused", "alice", "ui", "loss odd", 1)


def test_a_double_click_is_one_request(settings: Settings) -> None:
    assert ask(settings, "r", "checkpoint", "alice", "before lunch", 0).is_done
    assert ask(settings, "r", "checkpoint", "alice", "before lunch", 0).sentence == "Asked once already (number 1)."
    assert read_request(settings.runs[0].dir).checkpoint_request == 1


def test_the_same_press_long_after_is_a_conflict(settings: Settings) -> None:
    clock = ManualClock(NOW)
    assert ask(settings, "r", "checkpoint", "alice", "x", 0, clock).is_done
    clock.advance(600)
    assert not ask(settings, "r", "checkpoint", "alice", "x", 0, clock).is_done


def test_somebody_elses_request_is_never_overwritten_unseen(settings: Settings) -> None:
    assert ask(settings, "r", "pause", "alice", "loss odd", 0).is_done
    outcome = ask(settings, "r", "pause", "bob", "me too", 0)
    assert not outcome.is_done and "alice" in outcome.sentence


@pytest.mark.parametrize(
    ("run", "action", "by", "reason", "piece"),
    [
        ("../../etc", "pause", "a", "b", "No run"),
        ("r", "stop", "a", "b", "cannot ask"),
        ("r", "pause", " ", "b", "by is missing"),
        ("r", "pause", "a", "", "reason is missing"),
        ("r", "pause", "a\nb", "c", "control characters"),
    ],
)
def test_what_may_not_be_asked_is_a_sentence_and_writes_nothing(
    settings: Settings, run: str, action: str, by: str, reason: str, piece: str
) -> None:
    outcome = ask(settings, run, action, by, reason, 0)
    assert not outcome.is_done and piece in outcome.sentence
    assert read_request(settings.runs[0].dir).seq == 0


def test_a_roll_back_says_what_it_costs_and_leaves_out_what_is_not_known() -> None:
    safe = CheckpointReport("/c/900", 900, "hf", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 3, 10**9)
    run = run_view(recommended=safe, last_step=1210, steps_per_s=0.1)
    priced = replace(run, settings=replace(run.settings, gpus=5120), control=replace(run.control, state="paused"))
    assert (
        rollback_cost(priced) == "Going back runs 310 steps again: about 51 min = 4,410 GPU-h; holding costs 85 GPU-h a minute."
    )
    plain = replace(run, settings=replace(run.settings, gpus=0), steps_per_s=None)
    assert rollback_cost(plain) == "Going back runs 310 steps again."
    assert rollback_cost(replace(run, recommended=None)) == ""


def test_the_roll_back_is_named_for_what_it_does_and_is_the_only_accent() -> None:
    safe = CheckpointReport("/c/900", 900, "hf", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 3, 10**9)
    verdict = Verdict(VerdictWord.SICK, "critical", "loss", NOW, "Paused.", "Decide.")
    paused = ControlView("paused", "paused", can_act=True)
    actions = band(Snapshot(NOW), run_view(verdict=verdict, recommended=safe, control=paused), NOW, 2.0)["actions"]
    assert [action["label"] for action in actions] == ["Roll back to 900…", "Resume…"]
    assert [action["id"] for action in actions if action.get("is_primary")] == ["safe"]
    dead = run_view(verdict=replace(verdict, word=VerdictWord.STOPPED), recommended=safe)
    assert band(Snapshot(NOW), dead, NOW, 2.0)["actions"][0]["label"] == "Restart from 900…"


def test_a_fresh_recovery_is_told_and_later_one_thin_line() -> None:
    def thin(automatic: str) -> bool:
        verdict = Verdict(VerdictWord.RECOVERED, "info", "loss back", NOW, automatic)
        return bool(band(Snapshot(NOW), run_view(verdict=verdict), NOW, 2.0)["is_thin"])

    assert not thin("Over without anybody's help.") and thin("")


def test_the_zone_of_a_time_axis_is_said_with_its_distance() -> None:
    assert fmt.zone_note("Asia/Shanghai", NOW) == "times in UTC (CST is UTC+8)"
    assert fmt.zone_note("Asia/Kolkata", NOW) == "times in UTC (IST is UTC+5:30)"
    assert fmt.zone_note("America/New_York", NOW) == "times in UTC (EST is UTC−5)"
    assert fmt.zone_note("America/Sao_Paulo", NOW) == "times in UTC (America/Sao_Paulo is UTC−3)"
    assert fmt.zone_note("UTC", NOW) == "times in UTC"


def test_when_the_newest_verified_checkpoint_is_suspect_the_tile_names_the_safe_one() -> None:
    newest, safe = (
        CheckpointReport(f"/c/{step}", step, "hf", CheckpointState.VERIFIED, VerificationLevel.STRUCTURE, True, 1, 1)
        for step in (1930, 1800)
    )

    def tile(run: RunView) -> dict[str, object]:
        return next(one for one in tiles(Snapshot(NOW), run, NOW) if "checkpoint" in str(one["label"]))

    run = run_view(checkpoints=(safe, newest), newest_verified=newest, recommended=safe, suspects={"/c/1930": 1860})
    assert (tile(run)["label"], tile(run)["value"]) == ("Safe checkpoint", "1,800")
    assert not tile(run).get("tone"), "a mark beside the safe number would say that it is the suspect one"
    assert tile(run)["context"] == "structure · 1,930 is suspect"
    assert tile(replace(run, recommended=None))["value"] == "none"
    assert tile(replace(run, suspects={}, recommended=newest))["label"] == "Verified checkpoint"
