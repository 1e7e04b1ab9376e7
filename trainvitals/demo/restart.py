"""The demo's small restart loop: start the trainer; when it dies, start it again from the newest checkpoint that can be trusted.

A loop of the demo's own, apart from the supervisor of real runs: it knows one trainer and one directory of checkpoints.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainvitals import checkpoints
from trainvitals.checkpoints import pinning
from trainvitals.clock import StopSignal
from trainvitals.control import read_request
from trainvitals.demo.damage import Damage, is_suspect, known_damage
from trainvitals.demo.last_start import LastStart, read_last_start, write_last_start
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

MAX_RESTARTS = 5
#: Between a death and the next start: short, but long enough that a trainer that cannot start does not spin.
RESTART_WAIT_S = 1.0


def newest_verified(directory: Path, damage: Sequence[Damage] = ()) -> Path | None:
    """The checkpoint with the highest step that holds an optimizer, whose structure verifies, whose numbers are sound when it is
    loaded, and that no ``damage`` makes suspect; a pinned one counts, too. None when there is none."""
    found: list[tuple[int, str]] = []
    for path in _all_checkpoints(directory):
        report = _look(path, VerificationLevel.STRUCTURE)
        if report is None or not report.has_optimizer or report.step is None:
            continue
        if not any(is_suspect(one, report.step, report.modified_at_ns) for one in damage):
            found.append((report.step, report.path))
    # Loading costs a process each, and finds NaN where every byte is as it was written: newest first, until one is sound.
    for _, path in sorted(found, reverse=True):
        if _look(path, VerificationLevel.LOAD) is not None:
            return Path(path)
    return None


def _all_checkpoints(directory: Path) -> list[str]:
    paths = list(checkpoints.find(str(directory)))
    try:
        return [*paths, *pinning.pins(str(directory))]
    except pinning.CannotPin as error:
        sys.stderr.write(f"restart loop: what is pinned is left out: {error}\n")
        return paths


def _look(path: str, level: VerificationLevel) -> CheckpointReport | None:
    """What was found when it verifies; None for anything else."""
    try:
        report = checkpoints.inspect(path, level=level)
    except InputError as error:  # deleted between the listing and the look
        sys.stderr.write(f"restart loop: {error}\n")
        return None
    return report if report.state is CheckpointState.VERIFIED else None


def why_stopped(run_dir: Path) -> str:
    """The sentence for a run that somebody stopped; empty when it may start."""
    try:
        request = read_request(run_dir)
    except (TrainvitalsError, OSError):
        return ""  # the trainer reads the same file, and says what is wrong with it
    if request.desired != "stopped":
        return ""
    return (
        f"the run was stopped by {request.by or 'somebody'}: {request.reason or 'no reason given'}. It is not started again before "
        f"somebody resumes it: python -m trainvitals control resume {run_dir} --by YOU --reason WHY"
    )


class RestartLoop:
    """Runs the trainer's command until it ends well, is stopped, or died more than ``MAX_RESTARTS`` times."""

    def __init__(
        self, command: Sequence[str], directory: Path, logs: Path, wait_s: float = RESTART_WAIT_S, run_dir: Path | None = None
    ) -> None:
        self._command = list(command)
        self._directory = directory
        self._logs = logs
        self._wait_s = wait_s
        self._run_dir = run_dir
        self._stopping = StopSignal()
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the trainer and do not start it again. Safe inside a signal handler."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def run(self, resume_from: Path | None = None) -> int:
        """The exit code of the last attempt; 0 when it was stopped."""
        self._logs.mkdir(parents=True, exist_ok=True)
        attempt = self._last_log_number() + 1
        code = 0
        for restart in range(MAX_RESTARTS + 1):
            if restart:
                damage = known_damage(self._run_dir) if self._run_dir is not None else []
                resume_from = newest_verified(self._directory, damage)
                where = f"from {resume_from}" if resume_from else "from the beginning: no checkpoint can be trusted"
                sys.stderr.write(f"restart loop: the trainer ended with exit code {code}; starting it again {where}.\n")
                self._stopping.wait(self._wait_s)
            if self._stopping.is_set():
                return 0
            code = self._attempt(attempt + restart, resume_from)
            if code == 0 or self._stopping.is_set():
                return 0
        sys.stderr.write(f"restart loop: the trainer died {MAX_RESTARTS + 1} times; not starting it again. See {self._logs}.\n")
        return code

    def _attempt(self, number: int, resume_from: Path | None) -> int:
        command = [*self._command, *(["--resume-from", str(resume_from)] if resume_from else [])]
        with (self._logs / f"attempt-{number}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            if self._stopping.is_set():  # the signal came between the check and the start
                self._process.terminate()
            return self._process.wait()

    def _last_log_number(self) -> int:
        numbers = [path.stem.removeprefix("attempt-") for path in self._logs.glob("attempt-*.log")]
        return max((int(number) for number in numbers if number.isdigit()), default=0)


def trainer_command(run_dir: Path, checkpoint_directory: Path, run: str, schedule: str, more: Sequence[str] = ()) -> list[str]:
    """argv of the trainer, without ``--resume-from``."""
    return [
        sys.executable, "-m", "trainvitals.demo.trainer", "--run-dir", str(run_dir), "--checkpoints", str(checkpoint_directory),
        "--run", run, "--schedule", schedule, *more,
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m trainvitals.demo.restart``; what follows ``--`` goes to the trainer as it is."""
    parser = argparse.ArgumentParser(prog="python -m trainvitals.demo.restart", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True, help="directory for attempt-N.log")
    parser.add_argument("--run", default="demo")
    parser.add_argument("--schedule", help="faults: default, none, or a JSON file (default: as at the last start)")
    parser.add_argument("--resume-from", type=Path, help="checkpoint that the first start continues from")
    parser.add_argument("trainer_arguments", nargs="*", metavar="-- TRAINER ARGUMENTS", help="default: as at the last start")
    args = parser.parse_args(argv)
    try:
        last = read_last_start(args.run_dir)
    except InputError as error:
        sys.stderr.write(f"restart loop: {error}\n")
        return error.exit_code
    # A start by hand names a checkpoint and nothing else: it must not train with other settings for that.
    start = LastStart(args.schedule or last.schedule, tuple(args.trainer_arguments) or last.trainer_arguments)
    command = trainer_command(args.run_dir, args.checkpoints, args.run, start.schedule, start.trainer_arguments)
    stopped = why_stopped(args.run_dir)
    if stopped:
        sys.stderr.write(f"restart loop: {stopped}\n")
        return 1
    write_last_start(args.run_dir, start)
    loop = RestartLoop(command, args.checkpoints, args.logs, run_dir=args.run_dir)

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return loop.run(args.resume_from)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
