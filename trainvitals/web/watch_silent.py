"""Whether the watchdogs of the runs still beat: the dashboard looks after them, because one that died says nothing. Pure.

Silence is measured on this process's own steady clock, from when a heartbeat was last seen to change: neither clocks that differ
between hosts nor a clock that is set wake anybody. While the store cannot be read nothing is said of a watchdog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainvitals.alerts.notice import Notice, NoticeKind, Verb, notice_id
from trainvitals.incidents.amounts import span
from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import Severity
from trainvitals.settings import RunSettings
from trainvitals.web.view import RunView, Snapshot

RULE = "watch_silent"
#: The training is over, or nobody saw it alive: nothing is left to watch.
OVER = frozenset({VerdictWord.FINISHED, VerdictWord.HISTORY})
#: A watchdog that has been silent for so long when it is first seen was given up.
GIVEN_UP_NS = 24 * 3600 * 10**9
#: Silences that are kept in mind.
MAX_TOLD = 1_000


@dataclass(frozen=True, slots=True)
class _Beat:
    seen_ns: int
    changed_s: float
    told: str = ""  # incident of the silence that was told
    is_old: bool = False


class WatchSilent:
    """``look`` at each snapshot gives the notices that are due. is_reading: whether the watchdog of a run on this file system says so
    itself, which is believed when its heartbeats do not arrive."""

    def __init__(
        self, silent_s: float, public_url: str = "", runbook_url: str = "", is_reading: Callable[[RunSettings], bool] | None = None
    ) -> None:  # fmt: skip
        self._silent_s, self._public_url, self._runbook_url = silent_s, public_url, runbook_url
        self._is_reading = is_reading or (lambda run: False)
        self._beats: dict[str, _Beat] = {}
        #: What is not known or odd now, a sentence each.
        self.sentences: tuple[str, ...] = ()

    def take_up(self, told: Mapping[str, str]) -> None:
        """run -> incident of a silence that was told before this process began and is not over: its end is told too."""
        for run, incident_id in told.items():
            self._beats[run] = _Beat(_seen_ns(incident_id), 0.0, incident_id)

    def look(self, snapshot: Snapshot, now_ns: int, now_s: float) -> list[Notice]:
        """now_ns: UTC; now_s: monotonic seconds."""
        if snapshot.error or not snapshot.taken_at_ns:
            # What was heard before says nothing of the time in which nothing could be read.
            self._beats = {run: replace(beat, changed_s=now_s) for run, beat in self._beats.items()}
            self.sentences = (
                f"The store cannot be read, so it is not known whether the runs are watched. {snapshot.error}".strip(),
            )
            return []
        due: list[Notice] = []
        sentences: list[str] = []
        for run in snapshot.runs:
            due += self._look_at(run, now_ns, now_s, sentences)
        names = {run.name for run in snapshot.runs}
        self._beats = {name: beat for name, beat in self._beats.items() if name in names}
        self.sentences = tuple(sentences)
        return due

    def _look_at(self, run: RunView, now_ns: int, now_s: float, sentences: list[str]) -> list[Notice]:
        seen_ns, beat = run.watch_seen_ns, self._beats.get(run.name)
        if seen_ns is None:
            return []
        if beat is None or (seen_ns > beat.seen_ns):
            is_first = beat is None
            self._beats[run.name] = _Beat(seen_ns, now_s, is_old=is_first and now_ns - seen_ns > GIVEN_UP_NS)
            return [self._recovered(beat.told, run, now_ns)] if beat is not None and beat.told else []
        silent_s = now_s - beat.changed_s
        if beat.told or beat.is_old or run.verdict.word in OVER or silent_s < self._silent_s:
            return []
        if self._is_reading(run.settings):
            sentences.append(f"{run.name}: its watchdog works, and its heartbeats do not reach the store.")
            return []
        told = self._silent(run, seen_ns, now_ns)
        self._beats[run.name] = replace(beat, told=told.incident_id)
        return [told]

    def _silent(self, run: RunView, seen_ns: int, now_ns: int) -> Notice:
        for_s = max(self._silent_s, (now_ns - seen_ns) / 1e9)
        what = f"nobody watches this run: no heartbeat of its watchdog for {span(for_s)}"
        return self._notice(f"{run.name}/{RULE}/{seen_ns}", NoticeKind.WATCH_SILENT, Verb.CHECK, what, run, now_ns)

    def _recovered(self, incident_id: str, run: RunView, now_ns: int) -> Notice:
        return self._notice(incident_id, NoticeKind.RECOVERED, Verb.RECOVERED, "its watchdog is heard again", run, now_ns)

    def _notice(self, incident_id: str, kind: NoticeKind, verb: Verb, what: str, run: RunView, now_ns: int) -> Notice:
        return Notice(
            id=notice_id(incident_id, kind.value, 1), kind=kind, number=1, run=run.name, incident_id=incident_id, family="watch",
            severity=Severity.CRITICAL, verb=verb, rule=RULE, rules=(RULE,), what=what, at_ns=now_ns, opened_at_ns=_seen_ns(incident_id),
            step=run.last_step, gpus=run.settings.gpus, control=run.control.sentence,
            runbook_url=self._runbook_url.replace("{rule}", RULE), link=self._public_url and f"{self._public_url.rstrip('/')}/",
        )  # fmt: skip


def _seen_ns(incident_id: str) -> int:
    """When the heartbeat before the silence came: the end of the silence's id; 0 for an id of another form."""
    end = incident_id.rpartition("/")[2]
    return int(end) if end.isascii() and end.isdigit() and len(end) < 20 else 0
