"""How a start reaches its machines. Here: as a process of this host; ``slurm_allocation`` and ``slurm_outside`` are the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainvitals.incidents.postmortem import Postmortem
from trainvitals.supervisor import command as commands
from trainvitals.supervisor import process
from trainvitals.supervisor.exits import Scheduler
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.process import Process
from trainvitals.supervisor.slurm_nodes import Plan

if TYPE_CHECKING:
    from trainvitals.supervisor.running import Running


@dataclass(frozen=True, slots=True)
class Told:
    """What the road knows of an end. code: the trainer's, as far as it is known. bad_nodes: nodes of this start that are bad now."""

    code: int | None
    scheduler: Scheduler | None = None
    bad_nodes: int = 0


class Road:
    """Asked by the supervisor's turns, so nothing here may wait long. ``name``: "" or one of ``[supervisor] slurm``."""

    name = ""
    #: The trainer runs in a job of its own, so it goes on when this host is gone.
    is_outside = False

    def plan(self, history: History) -> Plan:
        """What the next start may use; asked again while it ``is_pending``."""
        return Plan()

    def command(self, template: Sequence[str], start: Start, plan: Plan, mark: str) -> list[str]:
        """The arguments of the process that is started here."""
        return commands.filled(template, start.resume_from, start.resume_step, start.skip_samples, plan.exclude, plan.nodes)

    def variables(self, start: Start, plan: Plan) -> Mapping[str, str]:
        """What its environment tells it."""
        return commands.variables(start.resume_from, start.resume_step, start.skip_samples, plan.exclude, plan.nodes)

    def is_told(self, template: Sequence[str]) -> bool:
        """Whether the trainer is told its checkpoint by more than the environment."""
        return commands.can_be_told(template)

    def begun(self, start: Start) -> None:
        """A start is under way: begun now, or by a supervisor before this one."""

    def look(self, start: Start) -> Start:
        """One turn while it runs: ``start`` with what is new."""
        return start

    def tend(self, running: Running) -> None:
        """One turn while it runs and nobody ended it: what must be said or asked."""

    def ask_to_end(self, own: Process) -> None:
        """The trainer should end by itself; asked again it may be said again."""
        process.ask_to_end(own)

    def again(self, start: Start) -> Process | None:
        """Where the process is gone and what it stood for is not: a new process that stands for it; else None."""
        return None

    def logs(self, start: Start) -> Sequence[str]:
        """Further logs of this start, as globs."""
        return ()

    def ended(self, start: Start, code: int | None) -> Told:
        """``code``: of the process. It may ask Slurm, once and within its time limit."""
        return Told(code)

    def blame(self, start: Start, found: Postmortem | None) -> Start:
        """With the nodes that the end is put down to; ``start`` has its kind."""
        return start

    def stamped(self, start: Start, plan: Plan) -> Start:
        """With what is known of the road before it begins."""
        return replace(start, road=self.name, nodes=plan.nodes)

    def close(self) -> None:
        """What works beside the supervisor ends."""
