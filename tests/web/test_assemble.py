"""From a stored bad night to the view of it, through the real embedded store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sample_run as sample

from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    Event,
    Finding,
    Incident,
    NodeSample,
    Severity,
    Step,
    VerificationLevel,
)
from trainvitals.settings import GpuSettings, RunSettings, Settings
from trainvitals.store.encode import event_point, node_point, step_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import read_facts, run_view
from trainvitals.web.draw import draw, last_window_ns, read_frame, window_title
from trainvitals.web.incident import incident_story
from trainvitals.web.nodes import nodes
from trainvitals.web.process import read_control, read_requests
from trainvitals.web.view import CurveQuery, RunView

NOW = 1_795_000_000 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


def settings_for(tmp_path: Path, **changes: object) -> Settings:
    run = RunSettings(
        name=sample.RUN, dir=str(tmp_path / "run"), checkpoints=(str(tmp_path / "run" / "checkpoints"),), gpus=128, total_steps=12_000,
        breaker="armed",
    )  # fmt: skip
    return Settings(store="", runs=(replace(run, **changes),))


def view(store: SqliteStore, tmp_path: Path, now_ns: int = NOW, **changes: object) -> RunView:
    settings = settings_for(tmp_path, **changes)
    run = settings.runs[0]
    return run_view(settings, store, run, read_control(run, now_ns), now_ns, nodes(store, now_ns, settings), read_requests(run))


@pytest.fixture
def sick(store: SqliteStore, tmp_path: Path) -> RunView:
    sample.write_run(store, tmp_path / "run", NOW)
    return view(store, tmp_path)


def test_the_bad_night_is_told_in_one_verdict(sick: RunView) -> None:
    assert sick.verdict.word is VerdictWord.SICK
    assert "not coming back" in sick.verdict.headline
    assert sick.verdict.automatic.startswith("Paused at step 2,460 by the breaker")
    assert [check.mark for check in sick.checks] == ["!", "–", "!", "!"]


def test_the_recommended_checkpoint_lies_before_the_onset_and_the_truncated_one_is_never_offered(sick: RunView) -> None:
    assert sick.recommended is not None and sick.recommended.step == 2200
    assert sick.newest_verified is not None and sick.newest_verified.step == 2200
    assert next(c for c in sick.checkpoints if c.step == 2400).state is CheckpointState.CORRUPT


def test_the_restart_supersedes_the_steps_that_were_run_again(sick: RunView) -> None:
    first, second = sick.attempts
    assert (first.number, first.last_step, first.superseded_from, first.end_reason) == (1, 1500, 1201, "process gone")
    assert (second.number, second.resumed_from_step, second.last_step, second.ended_ns) == (2, 1200, 2460, None)


def test_usual_is_what_was_before_the_onset(sick: RunView) -> None:
    loss = sick.metrics["loss"]
    assert loss.is_abnormal and loss.value is not None and loss.value > 2.8
    assert loss.usual == pytest.approx(2.0, abs=0.05)
    assert sick.metrics["grad_norm"].usual == pytest.approx(0.25, abs=0.05)
    assert not sick.metrics["lr"].is_abnormal


def test_a_paused_run_has_no_time_left_and_a_running_one_has(sick: RunView, tmp_path: Path) -> None:
    assert sick.eta_s is None and sick.steps_per_s == pytest.approx(1 / 3, rel=0.01)
    other = SqliteStore(tmp_path / "other.db")
    sample.write_run(other, tmp_path / "well", NOW, sick=False)
    well = view(other, tmp_path, dir=str(tmp_path / "well"))
    other.close()
    assert well.verdict.word is VerdictWord.HEALTHY
    assert well.eta_s == pytest.approx((12_000 - 2_390) * 3.0, rel=0.01)
    assert well.checks == ()


def test_requests_are_in_the_audit_even_without_the_store(sick: RunView) -> None:
    asked = [event for event in sick.control_history if event.id.endswith("/request/1")]
    assert asked and asked[0].data["by"] == "breaker" and asked[0].data["action"] == "pause"


def test_it_says_what_is_not_watched(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    settings = replace(settings_for(tmp_path, breaker="off", checkpoints=()), gpu=GpuSettings(enabled=False))
    run = settings.runs[0]
    sample_point = sample.beat(run.name, NOW - 300 * 10**9)
    store.write([sample_point])
    lines = run_view(settings, store, run, read_control(run, NOW), NOW).not_watched
    text = " / ".join(lines)
    for piece in ("watchdog silent for 5 min", "no hook", "breaker off", "no checkpoint directory", "GPU health (switched off)"):
        assert piece in text


def test_an_empty_store_is_no_data(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    store.write([sample.beat("another run", NOW)])
    found = view(store, tmp_path)
    assert found.verdict.word is VerdictWord.UNKNOWN and found.last_step is None and found.metrics == {}


def test_an_event_that_is_no_record_is_counted_and_hides_nothing(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    broken = [
        {"id": "x"}, {"id": "x", "rule": 1, "severity": "apocalyptic"}, {}, {"severity": None},
        {"path": "/p", "step": "many", "state": "verified", "files": 1, "bytes": 1, "format": "f", "has_optimizer": None},
    ]  # fmt: skip
    store.write([
        event_point(sample.RUN, Event(kind, NOW - number, id=f"bad/{kind}/{number}", data=data))
        for number, data in enumerate(broken) for kind in ("finding", "incident", "checkpoint")
    ])  # fmt: skip
    found = view(store, tmp_path)
    assert found.verdict.word is VerdictWord.SICK and len(found.checkpoints) == 12
    assert any("15 stored events unreadable" in line for line in found.not_watched)


def test_the_newest_event_of_a_checkpoint_wins(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    path = str(tmp_path / "run" / "checkpoints" / "step-0002200")
    data = {
        "path": path, "step": 2200, "format": "f", "state": "deleted", "level": None, "has_optimizer": None, "files": 0, "bytes": 0,
        "reasons": ["gone"], "modified_at_ns": None, "loss": None,
    }  # fmt: skip
    store.write([event_point(sample.RUN, Event("checkpoint", NOW, id=f"{path}/deleted", data=data))])
    facts = read_facts(store, sample.RUN, NOW)
    assert next(c for c in facts.checkpoints if c.step == 2200).state is CheckpointState.DELETED
    found = view(store, tmp_path)
    assert found.recommended is not None and found.recommended.step == 2000


def test_a_checkpoint_without_optimizer_is_the_second_choice_and_presence_is_no_proof(store: SqliteStore, tmp_path: Path) -> None:
    def report(step: int, level: VerificationLevel | None, has_optimizer: bool | None = True) -> CheckpointReport:
        return CheckpointReport(f"/c/{step}", step, "f", CheckpointState.VERIFIED, level, has_optimizer, 1, 1)

    reports = [
        report(100, VerificationLevel.STRUCTURE),
        report(200, VerificationLevel.CONTENT, False),
        report(300, VerificationLevel.PRESENCE),
    ]
    (tmp_path / "run").mkdir()
    store.write([
        event_point(sample.RUN, Event("checkpoint", NOW - 100 + n, step=one.step, id=one.path, data=asdict(one)))
        for n, one in enumerate(reports)
    ])  # fmt: skip
    found = view(store, tmp_path)
    assert found.newest_verified is not None and found.newest_verified.step == 300
    assert found.recommended is not None and found.recommended.step == 100
    assert "no optimizer state" in found.rollback.rejected["/c/200"] and "presence" in found.rollback.rejected["/c/300"]


def test_a_node_that_fell_silent_is_silent_whatever_it_last_said(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    settings = settings_for(tmp_path)
    assert [node.state for node in nodes(store, NOW + 5 * 10**9, settings)].count("ok") == 15
    assert {node.state for node in nodes(store, NOW + 120 * 10**9, settings)} == {"silent"}
    assert all(node.is_simulated and node.gpus == 8 for node in nodes(store, NOW, settings))


def test_the_story_of_an_older_incident_uses_its_own_attempt(sick: RunView) -> None:
    old = next(incident for incident in sick.incidents if "loss_nonfinite" in incident.rules)
    story = incident_story(sick, (), old)
    assert story.symptom.suspect == "numerical stability"
    assert [finding.rule for finding in story.findings] == ["loss_nonfinite"]
    assert {check.layer: check.mark for check in story.checks}["numerics"] == "!"


def test_a_window_of_steps_is_read_finely_in_every_attempt_that_holds_it(store: SqliteStore, sick: RunView) -> None:
    query = CurveQuery(sample.RUN, ("loss",), by="step", start=1300, end=1400)
    frame, _, _ = read_frame(store, sick, query, NOW)
    assert sorted(set(frame["attempt"])) == ["1", "2"]
    assert len(frame) == 202 and frame["n"].max() == 1


@pytest.mark.parametrize(
    "query",
    [
        CurveQuery(sample.RUN, ("loss", "throughput"), by="time", last_s=1800.0, compact=True),
        CurveQuery(sample.RUN, ("loss", "grad_norm", "throughput", "lr", "gpu_utilization")),
        CurveQuery(sample.RUN, ("loss",), by="time", start=NOW - 3600 * 10**9, end=NOW),
        CurveQuery(sample.RUN, ("loss",), start=10**9, end=10**9 + 5),
        CurveQuery(sample.RUN, ("never_logged",)),
    ],
)
def test_every_query_gives_a_figure_that_a_browser_can_parse(store: SqliteStore, sick: RunView, query: CurveQuery) -> None:
    def refuse(name: str) -> float:
        raise AssertionError(name)

    figure = json.loads(draw(store, sick, query, NOW), parse_constant=refuse)
    assert set(figure) == {"data", "layout"}


def test_a_hang_that_no_rule_has_named_yet_has_checks_and_no_time_left(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW, sick=False)
    later = NOW + 120 * 10**9
    store.write([sample.beat(sample.RUN, later)])
    found = view(store, tmp_path, later)
    assert found.verdict.word is VerdictWord.HUNG and found.eta_s is None
    assert [check.layer for check in found.checks] == ["data", "code", "numerics", "cluster"]
    assert found.checks[3].mark == "!" and "silent" in found.checks[3].evidence


MINUTE = 60 * 10**9


@pytest.mark.parametrize(
    ("first", "last", "state", "window", "title"),
    [
        (-600, -0.1, "running", (-31, 0), "Last 30 minutes"),
        (-4, -0.1, "running", (-4.5, 0), "Since the start, 4 min 0 s"),
        (-600, -10, "paused", (-31, 0), "Last 30 minutes"),
        (-600, -120, "paused", (-136, 0), "Last 2 h 15 min, no step for 2 h 00 min"),
        (-600, -120, "running", (-150, -119), "The last 30 min of training, up to 2 h 00 min ago"),
        (-125, -120, "running", (-126, -119), "The last 30 min of training, up to 2 h 00 min ago"),
        (None, None, "not_wired", (-31, 0), "Last 30 minutes"),
    ],
)
def test_the_last_half_hour_is_shown_as_it_is_worth_looking_at(
    sick: RunView, first: float | None, last: float | None, state: str, window: tuple[float, float], title: str
) -> None:
    def at(minutes: float | None) -> int | None:
        return None if minutes is None else NOW + round(minutes * MINUTE)

    run = replace(sick, first_step_time_ns=at(first), last_step_time_ns=at(last), control=replace(sick.control, state=state))
    start_ns, end_ns = last_window_ns(run, 1800.0, NOW)
    assert NOW + window[0] * MINUTE <= start_ns < end_ns <= NOW + window[1] * MINUTE
    assert window_title(run, 1800.0, NOW) == title
    if first is not None and start_ns > NOW - 30 * MINUTE:
        assert start_ns < NOW + first * MINUTE, "a little air before the first step"


def test_a_paused_run_is_drawn_up_to_now_with_the_pause_shaded(store: SqliteStore, sick: RunView) -> None:
    layout = json.loads(draw(store, sick, CurveQuery(sample.RUN, ("loss",), by="time", last_s=1800.0, compact=True), NOW))[
        "layout"
    ]
    assert layout["xaxis"]["range"][1] == pytest.approx(NOW / 1e6, abs=2)
    paused = [shape for shape in layout["shapes"] if shape["type"] == "rect" and shape["x1"] == layout["xaxis"]["range"][1]]
    assert paused and paused[0]["x0"] == pytest.approx(NOW / 1e6 - 120_000, abs=5_000)


def test_utilization_bridges_nodes_without_gpu_and_short_holes_but_not_long_ones(store: SqliteStore, sick: RunView) -> None:
    points = []
    for second in range(-4000, -120, 10):
        at_ns = NOW + second * 10**9
        points.append(node_point(NodeSample("bare", at_ns + 5 * 10**9, "no_gpu")))
        if not (-3000 < second < -2800 or second % 40 == 0):
            points.append(node_point(NodeSample("gpu-node", at_ns, "ok", gpus=8, utilization_mean_percent=95.0)))
    store.write(points)
    start, end = NOW - 3900 * 10**9, NOW - 200 * 10**9
    frame, _, _ = read_frame(
        store, sick, CurveQuery(sample.RUN, ("loss", "gpu_utilization"), by="time", start=start, end=end), NOW
    )
    missing = frame.loc[frame["gpu_utilization_mean"].isna(), "time_ns"].to_numpy() - NOW
    assert len(missing) and missing.min() > -3000 * 10**9 and missing.max() < -2800 * 10**9


def test_what_an_attempt_left_stays_in_the_history_and_the_table_shows_the_present(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    before = view(store, tmp_path)
    torn = replace(next(c for c in before.checkpoints if c.step == 1200), state=CheckpointState.CORRUPT, reasons=("cut short",))
    path = torn.path
    for number, (attempt, report) in enumerate(
        [
            (1, torn),
            (1, replace(torn, state=CheckpointState.DELETED)),
            (2, replace(torn, state=CheckpointState.VERIFIED, reasons=())),
        ]
    ):
        event = Event(
            "checkpoint", NOW - (9 - number) * 10**9, step=1200, attempt=attempt, id=f"{path}/{number}", data=asdict(report)
        )
        store.write([event_point(sample.RUN, event)])
    seen = view(store, tmp_path)
    assert next(c for c in seen.checkpoints if c.path == path).state is CheckpointState.VERIFIED
    told = {attempt: report.state for attempt, report in seen.checkpoint_history if report.path == path}
    assert told == {1: CheckpointState.CORRUPT, 2: CheckpointState.VERIFIED}
    assert seen.recommended is not None and seen.recommended.state is CheckpointState.VERIFIED


def test_metrics_of_the_trainers_own_are_offered_by_name(store: SqliteStore, sick: RunView, tmp_path: Path) -> None:
    assert sick.extra_metrics == ()
    store.write([step_point(sample.RUN, Step(2461, 2, NOW, {"loss": 2.0, "moe_aux": 0.1}, {}), NOW)])
    assert view(store, tmp_path).extra_metrics == ("moe_aux",)


def test_after_going_back_the_checkpoint_of_the_pause_is_still_not_safe(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    before = view(store, tmp_path)
    sick = next(incident for incident in before.incidents if "loss_divergence" in incident.rules)
    good = next(c for c in before.checkpoints if c.step == 2200)
    of_pause = replace(good, path=f"{good.path}-pause", step=2460, modified_at_ns=NOW - 100 * 10**9)
    closed = replace(sick, closed_at_ns=NOW - 20 * 10**9, updated_at_ns=NOW - 20 * 10**9, last_step=2460)
    events = [
        Event("checkpoint", NOW - 90 * 10**9, step=2460, attempt=2, id="of pause", data=asdict(of_pause)),
        Event("incident", NOW - 20 * 10**9, id=closed.id, data=asdict(closed)),
        Event("attempt_start", NOW - 40 * 10**9, attempt=3, id="third", data={"attempt": 3, "first_step": 2201}),
        Event("resume", NOW - 40 * 10**9, step=2200, attempt=3, id="third resumes"),
    ]
    store.write([event_point(sample.RUN, event) for event in events])
    store.write([step_point(sample.RUN, Step(2201, 3, NOW, {"loss": 2.0}, {}), NOW)])
    seen = view(store, tmp_path)
    assert not any(incident.is_open and "loss_divergence" in incident.rules for incident in seen.incidents)
    assert seen.newest_verified is not None and seen.newest_verified.step == 2460
    assert seen.recommended is not None and seen.recommended.step == 2200
    assert seen.suspects[of_pause.path] == sick.first_step
    store.write([step_point(sample.RUN, Step(2461, 3, NOW + 10**9, {"loss": 2.0}, {}), NOW + 10**9)])
    again = replace(of_pause, modified_at_ns=NOW - 5 * 10**9)
    store.write([event_point(sample.RUN, Event("checkpoint", NOW, step=2460, attempt=3, id="again", data=asdict(again)))])
    assert view(store, tmp_path).recommended == again


def test_an_open_incident_of_a_checkpoint_leaves_what_is_usual_alone(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW, sick=False)
    usual = view(store, tmp_path).metrics
    opened_ns = NOW - 3000 * 10**9
    incident = Incident(
        "i/checkpoint", sample.RUN, "checkpoint", Severity.CRITICAL, ("checkpoint_corrupt",), (), 1400, None, opened_ns, opened_ns, None,
        "cut short", "cut short",
    )  # fmt: skip
    store.write([event_point(sample.RUN, Event("incident", opened_ns, id=incident.id, data=asdict(incident)))])
    seen = view(store, tmp_path)
    assert seen.verdict.word is VerdictWord.ATTENTION
    assert seen.metrics == usual


def test_the_mark_of_a_trip_says_what_became_of_it(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    message = "the breaker would pause at step 2,455: loss not coming back"
    trip = Finding("f/trip", "breaker_trip", "breaker", Severity.CRITICAL, 2400, 2455, 2455, 2, NOW, 2.9, 2.0, message)
    done = Event("breaker", NOW, step=2455, id="d", text="asked the trainer to pause at step 2,455", data={"finding": trip.id})
    store.write([event_point(sample.RUN, Event("finding", NOW, id=trip.id, data=asdict(trip)))])
    assert next(f for f in view(store, tmp_path).findings if f.id == trip.id).message == message
    store.write([event_point(sample.RUN, done)])
    seen = view(store, tmp_path)
    assert next(f for f in seen.findings if f.id == trip.id).message == "breaker: asked the trainer to pause at step 2,455"


@pytest.mark.parametrize(("real", "title"), [(False, "GPU utilization (simulated)"), (True, "GPU utilization")])
def test_the_row_of_utilization_says_that_all_its_nodes_are_simulated(
    store: SqliteStore, sick: RunView, real: bool, title: str
) -> None:
    samples = [NodeSample("sim-1", NOW - 300 * 10**9, "ok", gpus=8, utilization_mean_percent=95.0, is_simulated=True)]
    samples.append(NodeSample("here", NOW - 290 * 10**9, "ok", utilization_mean_percent=40.0 if real else None))
    store.write([node_point(one) for one in samples])
    layout = json.loads(draw(store, sick, CurveQuery(sample.RUN, ("loss", "gpu_utilization")), NOW))["layout"]
    assert f"<b>{title}</b>" in [note["text"] for note in layout["annotations"]]
