"""Two runs that save into one directory, a state that is lost, a disk that is not mounted: nobody's last way back is let go."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checkpoints.checkpoint_makers import huggingface_parts, write_parts
from trainvitals.checkpoints import inspect, pinning
from trainvitals.records import CheckpointReport, Finding, Incident, Severity
from trainvitals.settings import RunSettings, WatchSettings
from trainvitals.watch.pin_work import PinWork
from trainvitals.watch.safe_checkpoint import SafeCheckpoint

NOW_NS = 1_800_000_000 * 10**9
HOUR_NS = 3600 * 10**9


class Place:
    """A checkpoint directory with steps 100, 200 and 300."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "checkpoints"
        self.now_ns = NOW_NS
        for step in (100, 200, 300):
            write_parts(self.path / f"checkpoint-{step}", huggingface_parts(step))
        self.pin = self.path / ".trainvitals-pinned" / "checkpoint-200"

    def run(self, name: str, state: dict | None = None) -> SafeCheckpoint:
        run = RunSettings(name=name, dir=str(self.path.parent / name), checkpoints=(str(self.path),))
        made = SafeCheckpoint(run, replace(WatchSettings(), checkpoint_content="off"), PinWork(in_thread=False))
        if state is not None:
            made.restore(state)
        return made

    def reports(self) -> list[CheckpointReport]:
        return [inspect(str(path)) for path in sorted(self.path.glob("checkpoint-*"))]

    def turn(self, *runs: SafeCheckpoint, hours: float = 0) -> list[str]:
        self.now_ns += round(hours * HOUR_NS)
        texts = []
        for run in runs:
            for _ in range(3):
                self.now_ns += 61 * 10**9
                run.scanned(self.reports())
                run.poll(self.now_ns, 1)
                texts += [f"{event.data['state']}: {event.text}" for event in run.take_events() if event.kind == "pin"]
        return texts


def incident(first_step: int, *, is_open: bool = True, name: str = "a") -> Incident:
    return Incident(
        id=f"{name}/1", severity=Severity.CRITICAL, family="loss", rules=("loss_divergence",), finding_ids=("f",), first_step=first_step,
        last_step=None if is_open else first_step + 20, opened_at_ns=NOW_NS, updated_at_ns=NOW_NS,
        closed_at_ns=None if is_open else NOW_NS, title="the loss rose", message="the loss rose", run=name,
    )  # fmt: skip


def fall_sick(run: SafeCheckpoint, first_step: int, *, is_open: bool = True) -> None:
    finding = Finding(
        id="f", rule="loss_divergence", family="loss", severity=Severity.CRITICAL, first_step=first_step, detected_step=first_step,
        last_step=None if is_open else first_step + 20, attempt=1, time_ns=NOW_NS, value=4.0, expected=2.0, message="the loss rose",
        is_open=is_open,
    )  # fmt: skip
    run.found(finding, incident(first_step, is_open=is_open))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_another_run_of_the_same_directory_never_lets_go_of_a_pin(place: Place) -> None:
    sick, well = place.run("sick"), place.run("well")
    fall_sick(sick, 250)
    assert [text.split(":")[0] for text in place.turn(sick)] == ["kept"]
    shutil.rmtree(place.path / "checkpoint-200")
    assert place.turn(well) == [] and place.turn(well, hours=1000) == []
    assert place.pin.is_dir() and place.turn(place.run("renamed", well.to_state()), hours=1000) == []
    fall_sick(sick, 250, is_open=False)
    assert any("newer" in text for text in place.turn(sick)) and not place.pin.exists()
    assert place.turn(well) == []  # nobody is alarmed by what the other run let go


def test_a_pin_that_two_runs_need_stays_until_the_second_lets_go(place: Place) -> None:
    first, second = place.run("first"), place.run("second")
    fall_sick(first, 250)
    fall_sick(second, 250)
    place.turn(first, second)
    fall_sick(first, 250, is_open=False)
    (text,) = [text for text in place.turn(first) if text.startswith("let_go")]
    assert "stays for second" in text and place.pin.is_dir()
    fall_sick(second, 250, is_open=False)
    place.turn(second)
    assert not place.pin.parent.exists()


@pytest.mark.parametrize("has_owner", [True, False])
def test_a_pin_that_nobody_remembers_is_kept_for_a_while(place: Place, has_owner: bool) -> None:
    pinning.pin(str(place.path / "checkpoint-200"), owner="run" if has_owner else "")
    shutil.rmtree(place.path / "checkpoint-200")
    found = place.run("run")  # a new store: the incident is not read again yet
    assert place.turn(found) == [] and place.turn(found, hours=5) == [] and place.pin.is_dir()
    again = place.run("run", found.to_state())
    assert place.turn(again) == [] and place.pin.is_dir()
    place.turn(again, hours=2)
    assert not place.pin.exists()


def test_a_pin_that_is_found_in_trouble_belongs_to_who_needs_it(place: Place) -> None:
    pinning.pin(str(place.path / "checkpoint-200"), owner="run")
    shutil.rmtree(place.path / "checkpoint-200")
    found = place.run("run")
    fall_sick(found, 250)
    assert place.turn(found) == []
    fall_sick(found, 250, is_open=False)
    assert any("newer" in text for text in place.turn(found)) and not place.pin.exists()


def test_two_pins_of_another_run_do_not_keep_a_run_from_its_own(place: Place) -> None:
    for step in (100, 300):
        pinning.pin(str(place.path / f"checkpoint-{step}"), owner="other")
    run = place.run("run")
    fall_sick(run, 250)
    assert [text.split(":")[0] for text in place.turn(run)] == ["kept"] and place.pin.is_dir()
    assert len(pinning.pins(str(place.path))) == 3


def test_a_pin_on_a_disk_that_is_not_mounted_is_found_again(place: Place) -> None:
    run = place.run("run")
    fall_sick(run, 250)
    place.turn(run)
    reports, away = place.reports(), place.path.with_name("away")
    place.path.rename(away)
    place.reports = lambda: reports  # type: ignore[method-assign]
    assert "is it mounted?" in place.turn(run)[0]
    again = place.run("run", run.to_state())
    place.turn(again)
    away.rename(place.path)
    place.turn(again)
    fall_sick(again, 250, is_open=False)
    assert any("newer" in text for text in place.turn(again)) and not place.pin.exists()


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_pin_that_is_written_over_through_the_trainers_own_name_is_proven_no_longer(place: Place, is_sound: bool) -> None:
    run = place.run("run")
    fall_sick(run, 250)
    place.turn(run)
    weights = place.path / "checkpoint-200" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content if is_sound else b"\xff" * len(content))  # the same file, as large as before
    reports = place.reports()
    place.reports = lambda: reports  # type: ignore[method-assign]
    texts = place.turn(run)
    if is_sound:
        assert [text for text in texts if text.startswith("changed") and "looked at anew" in text] and place.pin.is_dir()
        assert place.turn(run) == []
    else:
        assert any(text.startswith("broken") for text in texts)


def test_what_speaks_of_pins_that_were_deleted_by_hand_is_tidied_up(place: Place) -> None:
    pinning.pin(str(place.path / "checkpoint-200"), owner="run")
    shutil.rmtree(place.pin)
    pinning.tidy(str(place.path))
    assert not (place.pin.parent / ".owners").exists()
