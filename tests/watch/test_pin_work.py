"""Pins are made in a thread: one job at a time, in order, and what goes wrong is told and ends nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.checkpoints.checkpoint_makers import huggingface_parts, write_parts
from trainvitals.checkpoints import inspect
from trainvitals.watch import pin_work
from trainvitals.watch.pin_work import Done, Job, PinWork


def finished(work: PinWork, count: int) -> list[Done]:
    done: list[Done] = []
    nothing = threading.Event()
    for _ in range(2000):
        done += work.poll()
        if len(done) >= count and work.is_idle:
            return done
        nothing.wait(0.005)
    raise AssertionError(f"only {len(done)} of {count} jobs were done")


def test_jobs_are_done_in_order_and_each_says_what_came_of_it(tmp_path: Path) -> None:
    saved = write_parts(tmp_path / "checkpoint-5", huggingface_parts(5))
    report = inspect(str(saved))
    work = PinWork()
    work.add([Job("look", str(tmp_path)), Job("pin", str(saved), report), Job("pin", str(tmp_path / "nothing-7"), report)])
    pinned = str(tmp_path / ".trainvitals-pinned" / "checkpoint-5")
    work.add([Job("check", pinned, report), Job("release", pinned, why="enough"), Job("check", pinned, report)])
    done = finished(work, 6)
    assert [one.job.kind for one in done] == ["look", "pin", "pin", "check", "release", "check"]
    assert [bool(one.problem) for one in done] == [False, False, True, False, False, True]
    ((made, kept),) = done[1].made
    assert made.path == kept.path == pinned and kept.level is report.level
    assert "not there" in done[2].problem


def test_a_fault_of_our_own_is_told_and_the_next_job_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = write_parts(tmp_path / "checkpoint-5", huggingface_parts(5))
    work = PinWork()
    real = pin_work.pin

    def broken(path: str, limit: int, owner: str) -> object:
        monkeypatch.setattr(pin_work, "pin", real)
        raise RuntimeError("a bug")

    monkeypatch.setattr(pin_work, "pin", broken)
    report = inspect(str(saved))
    work.add([Job("pin", str(saved), report), Job("pin", str(saved), report)])
    first, second = finished(work, 2)
    assert first.problem == "RuntimeError: a bug" and not second.problem


def test_what_does_not_verify_is_not_kept(tmp_path: Path) -> None:
    saved = write_parts(tmp_path / "checkpoint-5", huggingface_parts(5))
    report = inspect(str(saved))
    (saved / "model.safetensors").write_bytes(b"cut off")
    (done,) = [pin_work.carry_out(Job("pin", str(saved), report))]
    assert done.problem and done.made == () and not (tmp_path / ".trainvitals-pinned").exists()


def test_an_earlier_starts_pins_are_found_with_what_they_are(tmp_path: Path) -> None:
    saved = write_parts(tmp_path / "checkpoint-5", huggingface_parts(5))
    pin_work.carry_out(Job("pin", str(saved), inspect(str(saved))))
    ((made, report),) = pin_work.carry_out(Job("look", str(tmp_path))).made
    assert made.original == str(saved) and report.step == 5 and report.path == made.path
