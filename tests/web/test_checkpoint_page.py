"""What the checkpoints page is told: read in pieces, remembered, bounded; its words on the bad night and on quiet ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import checkpoint_night as night
import pytest
import sample_run as sample

from trainvitals.incidents.data_to_skip import DataToSkip
from trainvitals.records import CheckpointState, ContentProof, Event, ResumeChoice, VerificationLevel
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web import checkpoint_words as words
from trainvitals.web.assemble import run_view
from trainvitals.web.attempts import attempts_of
from trainvitals.web.checkpoint_advice import failures_of, way_back_of
from trainvitals.web.checkpoints import CheckpointReader, pinned_by
from trainvitals.web.facts import checkpoint_of, sort_out
from trainvitals.web.process import read_control
from trainvitals.web.starts import StartReader
from trainvitals.web.view import AttemptView, Check, RunView, Start

NOW = 1_800_000_000 * 10**9
HOSTILE = "<img src=x onerror=alert(1)> ![a](http://evil.invalid) \x1b[31m"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


def view(store: SqliteStore, place: Path, **changes: object) -> RunView:
    run = RunSettings(
        name=sample.RUN, dir=str(place / "run"), gpus=128, checkpoints=(str(place / "run" / "checkpoints"),), **changes  # type: ignore[arg-type]
    )  # fmt: skip
    return run_view(Settings(runs=(run,)), store, run, read_control(run, NOW), NOW)


@pytest.fixture
def seen(store: SqliteStore, tmp_path: Path) -> RunView:
    night.write_night(store, tmp_path / "run", NOW)
    return view(store, tmp_path, resume_command="sbatch train.sh --load {checkpoint} --step {step}")


def test_every_field_of_a_report_survives_the_store(tmp_path: Path) -> None:
    made = night.report(tmp_path, 2200, NOW, reasons=("a", "b"))
    assert checkpoint_of(Event("checkpoint", NOW, data=asdict(made))) == made
    older = {key: value for key, value in asdict(made).items() if key not in ("proof", "has_rng", "parallel", "verified_at_ns")}
    read = checkpoint_of(Event("checkpoint", NOW, data=older))
    assert (read.proof, read.has_rng, read.parallel, read.verified_at_ns) == (ContentProof.NONE, None, {}, None)


def test_the_first_card_says_what_is_safe_and_that_a_restart_would_not_load_it(seen: RunView) -> None:
    assert words.safe_sentence(seen) == (
        "Safe: step 2,200, content verified, 197 steps before the onset at step 2,397, kept from deletion."
    )
    (line,) = words.choice_lines(seen)
    assert line.tone == "critical"
    assert (
        line.value
        == "would load step 2,400 (highest step-N with .metadata), which is corrupt; the newest verified is step 2,200."
    )
    assert words.restart_note(seen) == "▲ a restart now would load step 2,400 (highest step-N with .metadata), which is corrupt"
    assert words.cost_sentence(seen).startswith("Going back runs 260 steps again: about 13 min = 28 GPU-h, 2.0")
    path = night.path_of(Path(seen.settings.dir), 2200)
    assert seen.rollback.command.text == f"sbatch train.sh --load {path} --step 2200"
    assert [one.label for one in words.rejected_lines(seen)] == ["step 2,400"]


def test_saves_pins_room_and_starts_are_read(seen: RunView) -> None:
    by_step = {save.step: save for save in seen.saves}
    assert by_step[2200].persisted_s == 114.0 and by_step[1500].problem and len(by_step) == 13
    assert list(seen.pinned) == [night.path_of(Path(seen.settings.dir), 2200)]
    (start,) = seen.starts
    assert (start.attempt, start.from_step, start.path) == (2, 1200, night.path_of(Path(seen.settings.dir), 1200))
    assert start.loss_before == pytest.approx(2.15, abs=0.05) and start.loss_after == pytest.approx(2.15, abs=0.05)
    assert start.settings == "changed since it was saved: script"
    found = {row.key: (row.judgement.value, row.value) for row in seen.card}
    assert found["disk"] == ("good", "6 saves") and found["young_daly"] == ("unknown", "too few failures")
    assert found["state"] == ("look", "no data position") and found["async"][0] == "good"


def test_the_story_of_a_checkpoint_tells_proof_contents_and_why_it_is_not_the_one(seen: RunView) -> None:
    by_step = {one.step: one for one in seen.checkpoints}
    good = {line.label: line.value for line in words.detail_lines(by_step[2200], seen, NOW)}
    assert "hashes that the writer took" in good["bytes compared"] and good["written by"] == "128 ranks · dp 16 × tp 8"
    assert "data position: NO" in good["holds"] and "the training waited 3 s" in good["save"] and "kept from deletion" in good
    bad = [(line.label, line.value) for line in words.detail_lines(by_step[2400], seen, NOW)]
    assert ("", "shard __7_0.distcp ends 8,192 bytes early") in bad
    assert any(label == "not recommended" and "damaged" in value for label, value in bad)
    bare = {line.label: line for line in words.detail_lines(by_step[2000], seen, NOW)}
    assert bare["holds"].tone == "warning" and "optimizer: NO" in bare["holds"].value
    resumed = {line.label: line.value for line in words.detail_lines(by_step[1200], seen, NOW)}
    assert resumed["went on from it"].startswith("attempt 2")


def choice(run: RunView, step: int | None, problem: str = "") -> ResumeChoice:
    directory = str(night.directory_of(Path(run.settings.dir)))
    path = None if step is None else night.path_of(Path(run.settings.dir), step)
    return ResumeChoice(directory, path, step, "latest", problem)


@pytest.mark.parametrize(
    ("step", "tone", "said"),
    [
        (2200, "", "would load step 2,200 (latest), content verified."),
        (1800, "critical", "would load step 1,800 (latest); the newest verified is step 2,200."),
        (1200, "critical", "which is deleted"),
        (None, "critical", "would begin from scratch (latest); the newest verified is step 2,200."),
        (7777, "warning", "not among those that are watched"),
    ],
)
def test_what_a_restart_would_load_is_loud_only_where_it_is_wrong(seen: RunView, step: int | None, tone: str, said: str) -> None:
    (line,) = words.choice_lines(replace(seen, choices=(choice(seen, step),)))
    assert line.tone == tone and said in line.value


def test_a_save_under_way_that_a_restart_would_load_is_no_alarm(seen: RunView) -> None:
    young = night.report(Path(seen.settings.dir), 2450, NOW, state=CheckpointState.COMPLETE, level=VerificationLevel.PRESENCE)
    quiet = replace(seen, checkpoints=(*seen.checkpoints, young), choices=(choice(seen, 2450),))
    (line,) = words.choice_lines(quiet)
    assert line.tone == "" and "complete, not verified; the newest verified is step 2,200" in line.value
    assert words.restart_note(quiet) == ""


def test_a_suspect_one_that_a_restart_would_load_is_loud(seen: RunView) -> None:
    late = night.report(Path(seen.settings.dir), 2450, NOW)
    run = replace(seen, checkpoints=(*seen.checkpoints, late), suspects={late.path: 2397}, choices=(choice(seen, 2450),))
    (line,) = words.choice_lines(run)
    assert line.tone == "critical" and "saved at or after the onset at step 2,397; safe is step 2,200" in line.value


def test_an_empty_directory_that_a_restart_would_look_into_is_not_mentioned(seen: RunView) -> None:
    assert words.choice_lines(replace(seen, choices=(ResumeChoice("/elsewhere", None, None, "latest"),))) == ()


def test_the_table_is_bounded_and_holds_what_is_named(seen: RunView) -> None:
    run_dir = Path(seen.settings.dir)
    old = [night.report(run_dir, step, NOW, state=CheckpointState.DELETED, path=f"/old/{step}") for step in range(5000)]
    many = replace(seen, checkpoints=(*seen.checkpoints, *old))
    shown = words.table_reports(many)
    assert len(shown) == words.TABLE_ROWS and night.path_of(run_dir, 2200) in {one.path for one in shown}
    steps = [one.step or 0 for one in shown]
    assert steps == sorted(steps, reverse=True)


def test_a_second_look_reads_only_what_came_since_and_agrees_with_a_first_one(store: SqliteStore, tmp_path: Path) -> None:
    night.write_night(store, tmp_path / "run", NOW)
    reader = CheckpointReader()
    first = reader.of(store, sample.RUN, NOW)
    assert reader.of(store, sample.RUN, NOW + 10**9) is first, "nothing new: nothing is put together again"
    later = night.report(tmp_path / "run", 2400, NOW, state=CheckpointState.DELETED, level=None)
    store.write([event_point(sample.RUN, Event("checkpoint", NOW + 10**9, step=2400, attempt=2, id="later", data=asdict(later)))])
    second = reader.of(store, sample.RUN, NOW + 2 * 10**9)
    fresh = CheckpointReader().of(store, sample.RUN, NOW + 2 * 10**9)
    assert second.reports == fresh.reports and second.history == fresh.history and second.saves == fresh.saves
    assert next(one for one in second.reports if one.step == 2400).state is CheckpointState.DELETED
    assert next(one for _, one in second.history if one.step == 2400).state is CheckpointState.CORRUPT, "it was damaged"


def test_a_clock_that_was_ahead_hides_nothing_that_comes_later(store: SqliteStore, tmp_path: Path) -> None:
    made = night.report(tmp_path, 100, NOW)
    ahead = Event("checkpoint", NOW + 3600 * 10**9, step=100, id="ahead", data=asdict(made))
    store.write([event_point(sample.RUN, ahead)])
    reader = CheckpointReader()
    assert len(reader.of(store, sample.RUN, NOW).reports) == 1
    now = Event("checkpoint", NOW + 10**9, step=200, id="now", data=asdict(night.report(tmp_path, 200, NOW)))
    store.write([event_point(sample.RUN, now)])
    assert len(reader.of(store, sample.RUN, NOW + 2 * 10**9).reports) == 2


def test_events_that_are_no_records_are_counted(store: SqliteStore, tmp_path: Path) -> None:
    broken = [
        Event(kind, NOW - n, id=f"{kind}/{n}", data={"path": 1, "n": n})
        for n, kind in enumerate(("checkpoint", "pointer", "room"))
    ]
    store.write([event_point(sample.RUN, event) for event in broken])
    found = CheckpointReader().of(store, sample.RUN, NOW)
    assert found.unreadable.count == 3 and found.reports == () and found.choices == () and found.rooms == ()


def test_a_pin_that_was_let_go_or_broke_is_no_pin() -> None:
    def pin(state: str, path: str) -> Event:
        return Event("pin", NOW, data={"state": state, "path": path, "pinned": f"{path}.kept"})

    told = [
        pin("kept", "/a"),
        pin("kept", "/b"),
        pin("kept", "/c"),
        pin("let_go", "/a"),
        pin("broken", "/b"),
        pin("failed", "/c"),
    ]
    assert pinned_by(told) == {"/c": "/c.kept"}


def test_only_ends_that_nobody_planned_are_failures() -> None:
    ends = ["process gone", "finished", "stopped by alice", "", "followed by a new start", None]
    attempts = [
        AttemptView(number, number * 100, 1, 9, ended_ns=None if end is None else number * 100 + 50, end_reason=end or "")
        for number, end in enumerate(ends, 1)
    ]
    rate = failures_of(attempts, 680)
    assert rate.failures == 3 and rate.observed_s == pytest.approx((5 * 50 + 80) / 1e9)


def test_hostile_texts_stay_in_their_lines(store: SqliteStore, tmp_path: Path) -> None:
    night.write_night(store, tmp_path / "run", NOW, hostile=HOSTILE)
    found = view(store, tmp_path)
    assert found.card and words.way_back_lines(found) and words.start_lines(found)
    for one in found.checkpoints:
        assert words.detail_lines(one, found, NOW)
    odd = night.report(tmp_path, 1, NOW, path="/c/\x1b[2Jx")
    assert words.verify_command(odd) == ""
    assert words.verify_command(replace(odd, path="/c/a b; rm -rf ~")).endswith("'/c/a b; rm -rf ~' --level content")


def test_ten_thousand_checkpoints_cost_a_look_little(store: SqliteStore, tmp_path: Path) -> None:
    sample.write_run(store, tmp_path / "run", NOW)
    points = []
    for number in range(10_000):
        made = night.report(tmp_path / "run", 100_000 + number, NOW, path=f"/many/{number}")
        points.append(
            event_point(
                sample.RUN,
                Event("checkpoint", NOW - (20_000 - number) * 10**7, step=made.step, id=f"m/{number}", data=asdict(made)),
            )
        )
    store.write(points)
    reader = CheckpointReader()
    assert len(reader.of(store, sample.RUN, NOW).reports) == 10_012
    begun = time.perf_counter()
    found = reader.of(store, sample.RUN, NOW + 10**9)
    again_s = time.perf_counter() - begun
    facts = replace(sort_out([]), checkpoints=found.reports)
    begun = time.perf_counter()
    back = way_back_of(RunSettings(name=sample.RUN), facts, found, attempts_of([], [], lambda _: None), [], 3.0, {})
    advice_s = time.perf_counter() - begun
    assert back.checkpoint is not None and back.checkpoint.step == 109_999
    assert again_s < 1.0 and advice_s < 2.0


class Counting:
    """A store that counts how often rows are read."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self.reads = store, 0

    def __getattr__(self, name: str) -> object:
        if name == "raw":
            self.reads += 1
        return getattr(self._store, name)


def test_losses_around_a_start_are_read_once_and_those_of_one_that_ended_early_are_not_read_for_ever(
    store: SqliteStore, seen: RunView
) -> None:
    counting = Counting(store)
    reader = StartReader()
    short = replace(seen.attempts[1], number=3, first_step=2300, last_step=2301, ended_ns=NOW - 3600 * 10**9)

    def look() -> tuple[Start, ...]:
        return reader.of(counting, sample.RUN, [*seen.attempts, short], (), seen.checkpoint_history, {}, (), NOW)  # type: ignore[arg-type]

    first = look()
    assert [one.attempt for one in first] == [2, 3] and first[0].loss_after is not None and first[1].loss_after is None
    reads = counting.reads
    assert look() == first and counting.reads == reads


def test_skipping_data_is_not_advised_when_the_evidence_is_in_the_program(seen: RunView) -> None:
    skip = DataToSkip(1_960, 2_159)
    run = replace(seen, rollback=replace(seen.rollback, skip=skip), checks=())
    assert "data" in [line.label for line in words.way_back_lines(run)]
    code, data = Check("code", "!", "Learning rate 141×", "x"), Check("data", "!", "New data began", "x")
    assert "data" not in [line.label for line in words.way_back_lines(replace(run, checks=(code,)))]
    assert "data" in [line.label for line in words.way_back_lines(replace(run, checks=(data, code)))]
