"""The audit of a run as the pages show it: the newest records, whether the chain is whole, and how long the last request took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainvitals.clock import Clock, SystemClock
from trainvitals.control.audit import AuditRecord, newest
from trainvitals.control.audit_chain import Chain, history_anchors, verify
from trainvitals.control.files import control_dir
from trainvitals.errors import TrainvitalsError
from trainvitals.settings import RunSettings
from trainvitals.web.format import span
from trainvitals.web.view import AuditView

SHOWN = 20
#: Records looked through for what became of the last request.
LOOKED_THROUGH = 200


#: A check that took long is not made again before so many times as long: the poller has other things to do.
RESTS = 20.0


_Stamps = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class _Kept:
    """seen: the files as they were read, checked: as they were at the last check, which found chain and is due again at due_s
    (monotonic)."""

    seen: _Stamps
    checked: _Stamps
    view: AuditView
    chain: Chain
    due_s: float


class AuditReader:
    """Reads and checks a run's audit when its files have changed. Never raises for what they hold."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._kept: dict[str, _Kept] = {}

    def read(self, run: RunSettings) -> AuditView:
        """The audit as it is now."""
        try:
            seen = _stamps(run.dir)
            kept, began_s = self._kept.get(run.name), self._clock.monotonic_s()
            is_due = kept is None or began_s >= kept.due_s
            if kept is not None and kept.seen == seen and (not is_due or kept.checked == seen):
                return kept.view
            records = newest(run.dir, LOOKED_THROUGH)
            chain = verify(run.dir, history_anchors(run.dir)) if kept is None or is_due else kept.chain
            view = AuditView(tuple(records[-SHOWN:]), chain.records, _state(chain), not chain.is_intact, latency(records))
        except (TrainvitalsError, OSError) as error:
            return AuditView(state=f"The audit cannot be read: {error}", is_broken=True)
        ended_s = self._clock.monotonic_s()
        due_s = ended_s + RESTS * (ended_s - began_s) if kept is None or is_due else kept.due_s
        checked = seen if kept is None or is_due else kept.checked
        self._kept[run.name] = _Kept(seen, checked, view, chain, due_s)
        return view


def latency(records: Sequence[AuditRecord]) -> str:
    """How long the trainer took for the newest request of which the audit knows, in a sentence; "" when there is none."""
    request = next((record for record in reversed(records) if record.kind == "request" and "seq" in record.data), None)
    if request is None:
        return ""
    seq = request.data["seq"]
    found = {record.kind: record for record in records if record.n > request.n and record.data.get("seq") == seq}
    said = f"Last request: number {seq}, {request.data.get('action')} by {request.by}"
    parts = []
    for kind, word in (("acknowledged", "acknowledged"), ("applied", "carried out"), ("refused", "refused")):
        if kind in found:
            parts.append(f"{word} after {_after(found[kind].data)}")
    return f"{said}: {', '.join(parts) or 'no answer of the trainer yet'}."


def rows(view: AuditView) -> list[Mapping[str, object]]:
    """One mapping a record, newest first: n, time_ns, kind, by, source, what."""
    return [
        {
            "n": record.n,
            "time_ns": record.time_ns,
            "kind": record.kind,
            "by": record.by,
            "source": record.source,
            "what": _what(record),
        }
        for record in reversed(view.records)
    ]


def _what(record: AuditRecord) -> str:
    asked = record.data.get("asked")  # of the watchdog: what was wanted stands one level deeper
    data = {**(asked if isinstance(asked, Mapping) else {}), **record.data}
    lead = " ".join(str(data[key]) for key in ("action", "kind", "decision", "outcome", "mode") if data.get(key))
    number = f"number {data['seq']}" if "seq" in data else ""
    why = next((str(data[key]) for key in ("reason", "refusal", "why", "answer", "text") if data.get(key)), "")
    return " · ".join(part for part in (lead, number, why) if part)


def _after(data: Mapping[str, object]) -> str:
    seconds = data.get("after_s")
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return "a time that is not known"
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def _state(chain: Chain) -> str:
    if not chain.is_intact:
        return chain.problem
    if not chain.records:
        return "Nothing was audited here yet."
    return f"Chain whole: records {chain.first_n:,} to {chain.head.n:,}, head {chain.head.hash[:12]}."


def _stamps(run_dir: str) -> _Stamps:
    found = []
    directory = control_dir(run_dir)
    if directory.is_dir():
        for path in directory.glob("audit*.jsonl"):
            stamp = path.lstat()
            found.append((path.name, stamp.st_ino, stamp.st_size, stamp.st_mtime_ns))
    return tuple(sorted(found))
