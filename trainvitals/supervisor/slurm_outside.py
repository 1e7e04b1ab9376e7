"""Roads ``resubmit`` and ``requeue``: the supervisor stands outside, and the trainer is a batch job that it submits or requeues."""

from __future__ import annotations

import glob
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.clock import Clock
from trainvitals.control import files
from trainvitals.errors import InputError, SettingsError, TrainvitalsError
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import command as commands
from trainvitals.supervisor import process, slurm_job
from trainvitals.supervisor.desk import Desk
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.process import Process
from trainvitals.supervisor.progress import job_log_of
from trainvitals.supervisor.road import Told
from trainvitals.supervisor.running import exit_file_of, log_of
from trainvitals.supervisor.slurm_follow import Order
from trainvitals.supervisor.slurm_job import JobRecord
from trainvitals.supervisor.slurm_nodes import Plan, bad_nodes, blamed, in_partition, is_silent
from trainvitals.supervisor.slurm_road import SlurmRoad

if TYPE_CHECKING:
    from trainvitals.supervisor.running import Running

#: What a script that is started again with the same arguments reads: one value a file, plain text, empty = none.
NEXT_DIR = "next_start"
READ_EVERY_S = 1.0
_ROOT = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from trainvitals.supervisor.slurm_follow import main; "
    "sys.exit(main(sys.argv[2], sys.argv[3:]))"
)


class Outside(SlurmRoad):
    """Raises ``SettingsError`` for a command that cannot be submitted, or could not be told its checkpoint."""

    is_outside = True

    def __init__(
        self, run: RunSettings, settings: SupervisorSettings, clock: Clock, desk: Desk, environment: Mapping[str, str],
        command: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(run, settings, clock, desk)
        self.name = settings.slurm
        self._environment, self._command = dict(environment), tuple(command)
        if os.path.basename(command[0]) != "sbatch":  # noqa: PTH119 - a command's name
            raise SettingsError(
                f'[supervisor] slurm = "{self.name}" needs a command that begins with sbatch, not {command[0]!r}.'
            )
        if self.name == "requeue" and any(name in one for one in command for name in commands.PLACEHOLDERS):
            raise SettingsError(
                "A job that is requeued runs again with the arguments of its first start, so nothing can be filled in: let the script read "
                f"{Path(run.dir) / NEXT_DIR}/resume_from (docs/slurm.md)."
            )
        self._record: JobRecord | None = None
        self._read_due_s = 0.0
        self._linked = 0
        self._is_unreadable = False

    # -- before a start -----------------------------------------------------------------------------------------------

    def plan(self, history: History) -> Plan:
        if self._must_wait:
            return Plan(is_pending=True)
        record = self._latest()
        if self._is_unreadable:
            return Plan(is_pending=True)  # a job that runs may be hidden in it
        if not history.starts or record is None or not record.partition:
            return Plan(nodes=self._settings.slurm_nodes)
        looks = self._looks(record.nodes, record.partition)
        if not looks:
            return Plan(is_pending=True)
        bad = bad_nodes(looks)
        silent = [name for name in record.nodes if is_silent(looks, name)]
        avoided = {*blamed(history, self._clock.time_ns()), *silent}
        return in_partition(
            looks[-1].keys(), bad, avoided, self._settings.slurm_nodes or record.node_count, record.partition
        )  # fmt: skip

    def command(self, template: Sequence[str], start: Start, plan: Plan, mark: str) -> list[str]:
        record = self._latest()
        argv = super().command(template, start, plan, mark)
        try:
            self._tell_script(start, plan)
        except (TrainvitalsError, OSError) as error:
            raise InputError(f"Cannot tell the job where to go on from: {error}.") from error
        order = Order(
            self._run.dir, start.number, self._comment(start), self._poll_s, plan.exclude, record.job if record is not None else "",
            self.name == "requeue",
        )  # fmt: skip
        return _follower(order, argv)

    def _comment(self, start: Start) -> str:
        return f"{slurm_job.mark_of(self._run.dir)}/{start.number}."

    def _tell_script(self, start: Start, plan: Plan) -> None:
        directory = Path(self._run.dir) / NEXT_DIR
        files.make_directory(directory)
        step = "" if start.resume_step is None else str(start.resume_step)
        values = {
            "resume_from": start.resume_from or "",
            "step": step,
            "skip_samples": start.skip_samples,
            "exclude": plan.exclude,
        }
        for name, value in values.items():
            data = os.fsencode(value) + b"\n" if value else b""
            files.replace(directory / name, data, files.STATUS_MODE)

    def variables(self, start: Start, plan: Plan) -> Mapping[str, str]:
        # A requeued job has the environment of its submission for ever: the checkpoint there would soon be an old one.
        return {} if self.name == "requeue" else super().variables(start, plan)

    def is_told(self, template: Sequence[str]) -> bool:
        return self.name == "requeue" or super().is_told(template)

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _latest(self) -> JobRecord | None:
        try:
            self._record = slurm_job.read(self._run.dir)
            self._is_unreadable = False
        except (TrainvitalsError, OSError) as error:
            self._is_unreadable = True
            self._desk.trouble("what is known of the job cannot be read, so nothing is started", error)
        return self._record

    def _own(self, start: Start) -> JobRecord | None:
        record = self._record
        return record if record is not None and record.attempt == start.number else None

    def look(self, start: Start) -> Start:
        now_s = self._clock.monotonic_s()
        if now_s >= self._read_due_s:
            self._read_due_s = now_s + READ_EVERY_S
            self._latest()
        record = self._own(start)
        if record is None:
            return start
        # The trainer's own first word may be read before Slurm is asked the next time.
        marks = [mark for mark in (record.started_ns, start.opened_ns, start.first_step_ns) if mark is not None]
        if not marks:
            return start
        self._link(start, record)
        return replace(start, running_ns=start.running_ns or min(marks), nodes=start.nodes or record.node_count)

    def _link(self, start: Start, record: JobRecord) -> None:
        """So that a trainer without the hook is seen by what it prints; not where an earlier start printed into the same file."""
        if self._linked == start.number or not record.output.startswith("/"):
            return
        self._linked = start.number
        log = job_log_of(log_of(self._run.dir, start.number))
        try:
            earlier = {one.readlink() for one in log.parent.glob("attempt-*.job.log") if one.is_symlink()}
            if Path(record.output) not in earlier:
                log.symlink_to(record.output)
        except OSError as error:
            self._desk.trouble("the job's output cannot be linked", error)

    def tend(self, running: Running) -> None:
        record = self._own(running.start)
        if record is not None and record.trouble and not record.is_over:
            self._desk.tell_once(record.trouble, "trouble", f"Slurm cannot be asked: {record.trouble}")
        if record is not None:
            self._tend_limit(running, record.job, record.ends_at_ns)

    def ask_to_end(self, own: Process) -> None:
        process.ask_to_end(own, signal.SIGUSR1)

    def again(self, start: Start) -> Process | None:
        self._latest()
        record = self._own(start)
        gone = Process(start.pid, start.began)
        if self._is_unreadable:
            return gone
        if record is None or record.is_over:
            return None
        if self._must_wait:
            return gone
        self._due_s = self._clock.monotonic_s() + self._poll_s
        mark = f"{process.mark_of(self._run.dir)}/{start.number}."
        process.kill_all(None, mark)  # a follower whose keeper is gone would follow it beside the new one
        order = Order(
            self._run.dir, start.number, self._comment(start), self._poll_s, is_attach=True, is_requeue=self.name == "requeue"
        )
        try:
            own = process.start(
                _follower(order, self._command), log_of(self._run.dir, start.number), exit_file_of(self._run.dir, start.number), mark,
                self._environment,
            )  # fmt: skip
        except InputError as error:
            self._desk.trouble("the job cannot be followed", error)
            return gone
        self._desk.tell(
            "attached", f"following job {record.job or '(to be looked for)'} again", job=record.job, attempt=start.number
        )
        return own

    # -- its end ------------------------------------------------------------------------------------------------------

    def logs(self, start: Start) -> Sequence[str]:
        record = self._own(start)
        return [] if record is None else [glob.escape(path) for path in (record.output, record.errors) if path.startswith("/")]

    def ended(self, start: Start, code: int | None) -> Told:
        self._latest()
        record = self._own(start)
        if record is None or not record.is_over:
            return Told(code)
        self._bad = record.lost_nodes
        self._known = record.nodes
        return Told(record.code, record.told, len(record.lost_nodes))


def _follower(order: Order, argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-c", _START, _ROOT, order.to_text(), *argv]
