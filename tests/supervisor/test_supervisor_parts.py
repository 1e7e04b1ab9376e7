"""The command's placeholders, the phases of a restart, recovery, and the reading of a trainer's own files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.errors import InputError
from trainvitals.supervisor.command import checked_skip, filled, variables
from trainvitals.supervisor.history import Start
from trainvitals.supervisor.progress import Progress
from trainvitals.supervisor.recovery import Look, lacking, phases, remaining_s

S = 10**9


def test_the_checkpoint_is_one_argument_whatever_it_is_called() -> None:
    path = "/c/$(rm -rf ~); `x` 'y' checkpoint-10"
    assert filled(["train", "--resume", "{resume_from}", "--step={step}"], path, 10) == ["train", "--resume", path, "--step=10"]


def test_a_start_from_scratch_leaves_out_the_argument_and_its_option() -> None:
    template = ["train", "--resume", "{resume_from}", "--step={step}", "--skip={skip_samples}", "--lr", "0.1"]
    assert filled(template, None, None) == ["train", "--lr", "0.1"]
    assert filled(template, "/c", 5, "1:9") == ["train", "--resume", "/c", "--step=5", "--skip=1:9", "--lr", "0.1"]


def test_a_checkpoints_name_that_looks_like_a_placeholder_is_not_filled_in_again() -> None:
    assert filled(["{resume_from}"], "/c/{step}", 5) == ["/c/{step}"]


@given(st.lists(st.text(max_size=20), max_size=8), st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text))
def test_no_argument_appears_from_nowhere(template: list[str], path: str) -> None:
    assert len(filled(template, path, 1)) <= len(template)


def test_a_path_that_no_program_takes_is_refused() -> None:
    with pytest.raises(InputError):
        filled(["{resume_from}"], "a\0b", 1)


@pytest.mark.parametrize("text", ["", "5", "9:5", "a:b", "1:2:3", "-1:5", "1 :2", "٣:٤"])
def test_samples_to_skip_are_two_rising_numbers(text: str) -> None:
    with pytest.raises(InputError):
        checked_skip(text)


def test_the_environment_tells_only_what_there_is() -> None:
    assert variables(None, None) == {}
    assert variables("/c", 5)["TRAINVITALS_RESUME_FROM"] == "/c"


def start(number: int, opened: float | None, first: float | None, caught: float | None, ended: float | None = 100) -> Start:
    def ns(value: float | None) -> int | None:
        return None if value is None else number * 1000 * S + round(value * S)

    return Start(
        number, number * 1000 * S, opened_ns=ns(opened), first_step_ns=ns(first), caught_up_ns=ns(caught), ended_ns=ns(ended)
    )


def test_the_phases_of_a_restart_have_the_usual_times_of_earlier_ones_and_an_end_in_sight() -> None:
    starts = [start(1, 2, 12, 42), start(2, 4, 14, 44), start(3, 3, None, None, None)]
    now_ns = 3000 * S + 8 * S
    seen = {phase.name: phase for phase in phases(starts, now_ns)}
    assert (seen["start"].seconds, seen["start"].usual_s, seen["start"].is_over) == (3, 3, True)
    assert remaining_s(starts, now_ns) is not None


def test_without_earlier_starts_there_is_no_usual_time() -> None:
    assert remaining_s([start(1, 2, None, None, None)], 1005 * S) is None


CURVE = [(step, 2.0 + 0.01 * (step % 5)) for step in range(80, 101)]


def look(**changes: object) -> Look:
    values = {
        "peak_step": 100, "last_step": 160, "steps_beyond": 50, "old_curve": CURVE,
        "new_curve": [(step, 2.01) for step in range(90, 160)], "old_rate": 1000.0, "new_rate": 990.0, "verified_step": 150,
        "resumed_step": 80,
    }  # fmt: skip
    return Look(**{**values, **changes})  # type: ignore[arg-type]


def test_a_run_that_is_as_before_lacks_nothing() -> None:
    assert lacking(look()) == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"last_step": 120}, "steps until"),
        ({"new_curve": [(step, 2.5) for step in range(101, 160)]}, "the loss"),
        ({"new_curve": []}, "no finite loss"),
        ({"new_rate": 970.0}, "throughput"),
        ({"new_rate": None}, "throughput"),
        ({"verified_step": 80}, "checkpoint"),
        ({"verified_step": None}, "checkpoint"),
    ],
)
def test_each_thing_that_a_recovery_needs_is_named_when_it_lacks(change: dict[str, object], word: str) -> None:
    (missing,) = lacking(look(**change))
    assert word in missing


def progress(tmp_path: Path) -> Progress:
    return Progress(str(tmp_path), tmp_path / "log", ManualClock())


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_what_a_trainers_file_holds_never_ends_the_supervisor(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    place = tmp_path_factory.mktemp("p")
    (place / "metrics.rank00000.jsonl").write_bytes(b"\n".join(lines))
    (place / "log").write_bytes(b"\r".join(lines))
    one = progress(place)
    one.look()
    one.look()
    one.close()


def test_a_line_is_read_once_also_when_it_comes_in_pieces(tmp_path: Path) -> None:
    one = progress(tmp_path)
    file = tmp_path / "metrics.rank00000.jsonl"
    line = json.dumps({"type": "step", "step": 7, "time_ns": 1, "values": {"loss": 2.0}}).encode() + b"\n"
    file.write_bytes(line[:20])
    one.look()
    assert one.last_step is None
    with file.open("ab") as target:
        target.write(line[20:])
    one.look()
    one.look()
    assert (one.last_step, list(one.losses)) == (7, [(7, 2.0)])
    one.close()


def test_a_pipe_or_an_endless_line_in_place_of_the_file_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.rank00000.jsonl")
    one = progress(tmp_path)
    one.look()
    (tmp_path / "metrics.rank00000.jsonl").unlink()
    (tmp_path / "metrics.rank00000.jsonl").write_bytes(b"{" * (3 << 20))
    one.look()
    one.look()
    assert one.bad_lines >= 1
    one.close()


def test_a_loss_that_came_back_is_no_onset(tmp_path: Path) -> None:
    one = progress(tmp_path)
    records = [
        {"type": "step", "step": 1, "time_ns": 1, "values": {}, "nonfinite": {"loss": "nan"}},
        {"type": "step", "step": 2, "time_ns": 2, "values": {"loss": 2.0}},
        {"type": "step", "step": 3, "time_ns": 3, "values": {}, "nonfinite": {"loss": "nan"}},
        {"type": "step", "step": 4, "time_ns": 4, "values": {}, "nonfinite": {"loss": "nan"}},
    ]
    (tmp_path / "metrics.rank00000.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    one.look()
    assert one.nonfinite_step == 3
    one.close()


def test_without_the_hook_the_log_tells_the_steps(tmp_path: Path) -> None:
    one = progress(tmp_path)
    lines = "".join(f"iter {step}: loss {3 - step / 100:.4f}, time {10:.2f}ms, mfu 1.00%\n" for step in range(10, 40))
    (tmp_path / "log").write_text(lines)
    one.look()
    one.look()
    assert one.last_step is not None and one.last_step >= 38
    one.close()
