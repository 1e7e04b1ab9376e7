"""What the three roads of Slurm have in common: looks at the nodes, whom an end is put down to, the job's time limit. Which one is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trainvitals.clock import Clock
from trainvitals.incidents.postmortem import Postmortem
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import slurm_commands as slurm
from trainvitals.supervisor import time_limit
from trainvitals.supervisor.desk import ME, Desk
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.road import Road
from trainvitals.supervisor.slurm_commands import SlurmError
from trainvitals.supervisor.slurm_nodes import NODES_FAULT, drain_command, has_doubt, node_named
from trainvitals.supervisor.slurm_text import Node, joined

if TYPE_CHECKING:
    from trainvitals.supervisor.running import Running

_Answer = TypeVar("_Answer")
MAX_BLAMED = 16
#: The controller serves the whole cluster, whatever the settings say.
LEAST_POLL_S = 0.5


class SlurmRoad(Road):
    """``_bad`` and ``_known``: of the last look after an end, for ``blame``."""

    def __init__(self, run: RunSettings, settings: SupervisorSettings, clock: Clock, desk: Desk) -> None:
        self._run, self._settings, self._clock, self._desk = run, settings, clock, desk
        self._poll_s = max(LEAST_POLL_S, settings.slurm_poll_s)
        self._due_s = 0.0
        self._first_look: Mapping[str, Node] | None = None
        self._known: Collection[str] = ()
        self._bad: tuple[str, ...] = ()
        self._said = time_limit.Said()

    def _ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """None when Slurm gave no answer; that is said, and it is asked again after a while."""
        try:
            return question()
        except SlurmError as error:
            self._due_s = self._clock.monotonic_s() + self._poll_s
            self._desk.trouble("Slurm cannot be asked", error)
            return None

    def _looks(self, names: Collection[str], partition: str = "") -> Sequence[Mapping[str, Node]]:
        """One look at the nodes, or two some time apart when one of ``names`` did not respond; nothing while there is none yet."""
        look = self._ask(lambda: slurm.show_nodes(partition))
        if look is None:
            return ()
        first, self._first_look = self._first_look, None
        if first is None and has_doubt(look, names):
            self._first_look = look
            self._due_s = self._clock.monotonic_s() + self._poll_s
            return ()
        return [look] if first is None else [first, look]

    @property
    def _must_wait(self) -> bool:
        return self._clock.monotonic_s() < self._due_s

    def begun(self, start: Start) -> None:
        self._said = time_limit.Said()  # what was said of the limit ended with the start before

    def _needed(self, history: History) -> int:
        return self._settings.slurm_nodes or next((start.nodes for start in history.starts if start.nodes), 0)

    def blame(self, start: Start, found: Postmortem | None) -> Start:
        """The host that the post-mortem names for a node's own fault, and the nodes that Slurm lost."""
        if start.kind not in NODES_FAULT:
            return start
        host = found.cause.host if found is not None and found.cause is not None and found.cause.kind in NODES_FAULT else None
        named = node_named(host, self._known)
        names = joined([*([named] if named else []), *(self._bad if start.kind == "node_failure" else ())][:MAX_BLAMED])
        if named and named not in self._bad:
            self._desk.tell(
                "bad_node", f"{named} is not used by the next starts of this run ({start.kind.replace('_', ' ')}). To keep other jobs off it, too: "
                f"{drain_command(named, f'{self._run.name}: {start.kind}')}",
                severity="warning", step=start.last_step, node=named, attempt=start.number,
            )  # fmt: skip
        return replace(start, bad_nodes=names)

    def _tend_limit(self, running: Running, job: str, ends_at_ns: int | None) -> None:
        if ends_at_ns is None:
            return
        said = self._said.of(ends_at_ns)
        left_s = (ends_at_ns - self._clock.time_ns()) / 1e9
        severity, said = time_limit.due(said, left_s, self._settings)
        if severity:
            self._desk.tell(
                time_limit.STATE, time_limit.sentence(left_s, job), severity=severity, step=running.start.last_step,
                ends_at_ns=ends_at_ns, remaining_s=round(left_s, 1), job=job, attempt=running.start.number,
            )  # fmt: skip
        save_s = running.progress.save_s()
        if time_limit.wants_save(said, left_s, save_s, self._settings) and running.obeys():
            reason = f"the time limit of job {job} is {left_s:.0f} s away"
            if self._desk.ask("checkpoint", ME, reason) is not None:
                said = replace(said, is_asked=True)
                self._desk.tell("save_asked", f"asked for a checkpoint: {reason}", step=running.start.last_step, job=job)
        self._said = said
