"""A verdict ages: what was healthy when the store was last readable is not called healthy minutes later."""

from __future__ import annotations

from trainvitals.incidents.verdict import WATCH_SILENT_S, Verdict, VerdictWord, span
from trainvitals.web.view import RunView, Snapshot

_GOOD = frozenset({VerdictWord.HEALTHY, VerdictWord.RECOVERED, VerdictWord.RECOVERING, VerdictWord.SLOW})


def data_age_s(run: RunView, now_ns: int) -> float | None:
    """Seconds since the watchdog last reported on this run, as far as this dashboard could see; None = never."""
    return None if run.watch_seen_ns is None else max(0.0, (now_ns - run.watch_seen_ns) / 1e9)


def verdict_now(snapshot: Snapshot, run: RunView, now_ns: int) -> Verdict:
    """The snapshot's verdict, or NO DATA when the snapshot is too old to say that all is well."""
    age_s = (now_ns - snapshot.taken_at_ns) / 1e9
    if not snapshot.error or age_s <= WATCH_SILENT_S:
        return run.verdict
    if run.verdict.word in _GOOD:
        return Verdict(
            VerdictWord.UNKNOWN, "warning", f"the store cannot be read; {span(age_s)} ago it was {run.verdict.word.value}",
            snapshot.error_since_ns, "", "Training may be fine or not: this page cannot see it. See the store and its disk.",
        )  # fmt: skip
    return Verdict(
        run.verdict.word, run.verdict.tone, f"{run.verdict.headline} (as known {span(age_s)} ago: the store cannot be read)",
        run.verdict.since_ns, run.verdict.automatic, run.verdict.decision, run.verdict.incident_id,
    )  # fmt: skip
