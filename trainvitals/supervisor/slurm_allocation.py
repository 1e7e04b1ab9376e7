"""Road ``allocation``: the supervisor is the batch script of an ``sbatch --no-kill`` job with spare nodes, the trainer an ``srun`` in it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainvitals.clock import Clock
from trainvitals.errors import SettingsError
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import process
from trainvitals.supervisor import slurm_commands as slurm
from trainvitals.supervisor.desk import Desk
from trainvitals.supervisor.exits import Scheduler
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.road import Told
from trainvitals.supervisor.slurm_commands import SlurmError
from trainvitals.supervisor.slurm_nodes import Plan, bad_nodes, blamed, in_allocation
from trainvitals.supervisor.slurm_road import SlurmRoad
from trainvitals.supervisor.slurm_text import JOB_ID, Job, shown

if TYPE_CHECKING:
    from trainvitals.supervisor.running import Running

#: Steps that began so long before a start are none of its; clocks of two hosts differ a little.
SLACK_NS = 30 * 10**9
CANCEL_AGAIN_S = 30.0


class Allocation(SlurmRoad):
    """Raises ``SettingsError`` outside of a job."""

    name = "allocation"

    def __init__(
        self, run: RunSettings, settings: SupervisorSettings, clock: Clock, desk: Desk, environment: Mapping[str, str]
    ) -> None:
        super().__init__(run, settings, clock, desk)
        self._job = environment.get("SLURM_JOB_ID", "")
        if JOB_ID.fullmatch(self._job) is None:
            raise SettingsError(
                '[supervisor] slurm = "allocation" needs a job: start run in the script given to sbatch --no-kill.'
            )
        self._own_step = f"{self._job}.{environment.get('SLURM_STEP_ID', '')}"
        self._nodes: tuple[str, ...] = ()
        self._cancel_due_s = 0.0
        self._seen: Job | None = None
        self._trouble = ""
        self._ending = threading.Event()
        self._watcher: threading.Thread | None = None

    def plan(self, history: History) -> Plan:
        if self._must_wait or not self._is_free_of_steps(history):
            return Plan(is_pending=True)
        job = self._ask(lambda: slurm.show_job(self._job))
        looks = self._looks(job.nodes) if job is not None else ()
        if job is None or not looks:
            return Plan(is_pending=True)
        blames = blamed(history, self._clock.time_ns())
        plan = in_allocation(job.nodes, bad_nodes(looks), blames, self._needed(history), self._job)
        excluded = set(plan.exclude.split(","))
        self._nodes = tuple(name for name in job.nodes if name not in excluded)
        return plan

    def _is_free_of_steps(self, history: History) -> bool:
        """What the last start began on other nodes has ended: the death of ``srun`` alone ends nothing there."""
        last = history.last
        if last is None:
            return True
        left = self._ask(lambda: slurm.steps(self._job, last.started_ns - SLACK_NS))
        left = None if left is None else tuple(step for step in left if step != self._own_step)
        left = self._without_strange(left) if left else left
        if left and self._clock.monotonic_s() >= self._cancel_due_s:
            self._cancel_due_s = self._clock.monotonic_s() + CANCEL_AGAIN_S
            self._desk.tell(
                "cleaned",
                f"ending what the start before left behind: step {shown(left)}",
                severity="warning",
                attempt=last.number,
            )
            for step in left:
                self._ask(lambda step=step: slurm.cancel_step(step))  # type: ignore[misc]
        if left:
            self._due_s = self._clock.monotonic_s() + min(2.0, self._poll_s)
        return left == ()

    def _without_strange(self, steps: Sequence[str]) -> tuple[str, ...] | None:
        """Without those of the batch script and of people: their ``srun`` lives without our mark, or on another host. What the trainer
        left behind has none any more."""
        began_by = self._ask(lambda: slurm.sruns(self._job))
        if began_by is None:
            return None
        mark, here = process.mark_of(self._run.dir), socket.gethostname().partition(".")[0]
        return tuple(
            step for step in steps
            if step not in began_by
            or (began_by[step][0].partition(".")[0] == here and not process.is_strange(began_by[step][1], "srun", f"{mark}/"))
        )  # fmt: skip

    def begun(self, start: Start) -> None:
        super().begun(start)
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="look at the job", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                self._seen, self._trouble = slurm.show_job(self._job), ""
            except SlurmError as error:
                self._trouble = str(error)
            self._ending.wait(self._poll_s)

    def tend(self, running: Running) -> None:
        if self._trouble:
            self._desk.tell_once(self._trouble, "trouble", f"Slurm cannot be asked: {self._trouble}")
        seen = self._seen
        if seen is not None:
            self._nodes = self._nodes or seen.nodes
            self._tend_limit(running, self._job, seen.ends_at_ns)

    def ended(self, start: Start, code: int | None) -> Told:
        job, look = self._ask(lambda: slurm.show_job(self._job)), self._ask(slurm.show_nodes)
        if look is None or code == 0:
            return Told(code)
        self._known = look.keys()
        # Slurm takes a node that it lost out of a job of --no-kill.
        gone = set(self._nodes) - set(job.nodes) if job is not None and job.nodes else set()
        bad = tuple(name for name in self._nodes if name in gone or (name in look and look[name].is_bad))
        self._bad = bad
        if not bad:
            return Told(code)
        why = {look[name].reason for name in bad if name in look and look[name].reason}
        text = f"Slurm lost {shown(bad)}" + (f" ({'; '.join(sorted(why)[:3])})" if why else "")
        return Told(code, Scheduler("node_failure", text, is_sure=False), len(bad))

    def close(self) -> None:
        self._ending.set()
