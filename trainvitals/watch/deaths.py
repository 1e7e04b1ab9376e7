"""What the watchdog keeps of deaths: when attempts began, which death is to be looked into, and where its ranks were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainvitals.identity import event_id
from trainvitals.records import Event, Finding
from trainvitals.settings import RunSettings
from trainvitals.watch.postmortem import NAMED_PLACES, Death, PostmortemRunner, rank_places, with_places

#: Attempts whose start is remembered.
MAX_STARTS = 16


class Deaths:
    """Without a runner nothing is read and nothing asked. ``take``, ``found`` and ``poll`` never wait."""

    def __init__(self, run: RunSettings, runner: PostmortemRunner | None) -> None:
        self._run, self._runner = run, runner
        self._starts: dict[str, int] = {}
        self._asked = ""
        self._places: tuple[int, Mapping[int, str]] = (-1, {})

    def take(self, event: Event, attempt: int) -> Event:
        """Remember a start; a fault is given back with host and GPU of its ranks."""
        if event.kind == "attempt_start" and event.attempt is not None:
            started_ns = event.data.get("started_ns")
            at_ns = started_ns if isinstance(started_ns, int) and not isinstance(started_ns, bool) else event.time_ns
            if at_ns is not None:
                self._starts[str(event.attempt)] = at_ns
                while len(self._starts) > MAX_STARTS:
                    del self._starts[next(iter(self._starts))]
        if event.kind != "fault" or not ("rank" in event.data or "ranks_missing" in event.data):
            return event
        places = self._places_of(event.attempt if event.attempt is not None else attempt)
        return with_places(event, places) if places else event

    def with_place(self, finding: Finding) -> Finding:
        """Host and GPU of the ranks that a finding names; a message that names a rank without them sends a person looking."""
        data = finding.data
        if finding.family != "rank" or "place" in data:
            return finding
        named = [data.get("rank"), *(data["ranks"][:NAMED_PLACES] if isinstance(data.get("ranks"), list) else ())]
        numbers = [rank for rank in named if isinstance(rank, int)]
        places = self._places_of(finding.attempt) if numbers else {}
        told = [f"rank {rank}: {places[rank]}" for rank in numbers if rank in places]
        if not told:
            return finding
        place = ", ".join(told) if len(told) > 1 else told[0].partition(": ")[2]
        return replace(finding, message=f"{finding.message} [{', '.join(told)}]", data={**data, "place": place})

    def _places_of(self, attempt: int) -> Mapping[int, str]:
        if self._places[0] != attempt or not self._places[1]:
            self._places = (attempt, rank_places(self._run.dir, attempt))
        return self._places[1]

    def found(self, finding: Finding, time_ns: int) -> None:
        """A run that is found dead is looked into once."""
        if self._runner is None or finding.rule != "run_dead" or not finding.is_open or finding.id == self._asked:
            return
        self._asked = finding.id
        started_ns, until_ns = self._starts.get(str(finding.attempt)), self._starts.get(str(finding.attempt + 1))
        self._runner.ask(Death(finding.attempt, time_ns, started_ns, until_ns, finding.detected_step))

    def poll(self, newest_attempt: int, now_ns: int) -> tuple[Event, str] | None:
        """The ``postmortem`` event of a death that has been looked into, and why the ends of its logs were not kept ("" = they were)."""
        finished = self._runner.poll(newest_attempt, now_ns) if self._runner is not None else None
        if finished is None:
            return None
        death, told = finished.death, finished.postmortem
        event = Event(
            "postmortem", death.time_ns, step=death.step, attempt=death.attempt,
            id=event_id(self._run.name, death.attempt, "postmortem", death.step), source="watch", text=told.message,
            data=told.to_data(),
        )  # fmt: skip
        return event, finished.trouble

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        waiting = self._runner.to_state() if self._runner is not None else []
        return {"starts": self._starts, "asked": self._asked, "waiting": waiting}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken; what was asked and not answered is asked again."""
        self._starts, self._asked = dict(state.get("starts", {})), str(state.get("asked", ""))
        if self._runner is not None:
            self._runner.restore(list(state.get("waiting", [])))
