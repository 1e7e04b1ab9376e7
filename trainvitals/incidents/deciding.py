"""Which incident decides what a person reads first: the gravest that is open, or the gravest that is over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainvitals.records import Finding, Incident, Severity

#: How long a closed incident is still told at the top, and how long it is more than one line.
RECOVERED_FOR_S = 30 * 60.0
RECOVERED_LOUD_S = 120.0
HUNG_RULES = frozenset({"stall", "nccl_timeout", "rank_silent"})
STOPPED_RULES = frozenset({"run_dead", "run_dead_holding_nodes", "restart_failed", "restart_loop"})
SLOW_RULES = frozenset({"throughput_drop", "straggler", "checkpoint_blocking"})
#: Rules that speak of the training itself.
SICK_PREFIXES = ("loss_", "grad_norm_", "resume_", "rank_loss_", "lr_schedule_", "breaker_")
#: ... but not these: the training is as it was, only older than it could be.
NOT_SICK_RULES = frozenset({"resume_behind"})
#: How a death's message ends once the next start has closed it; the next start is told in its own words.
_STARTED_AGAIN = "; the trainer was started again"


def main_incident(incidents: Sequence[Incident]) -> Incident | None:
    """The open incident that decides: worst first, then a dead or hung run before a sick one, then the oldest."""
    waiting = [incident for incident in incidents if incident.is_open and incident.severity.rank >= Severity.WARNING.rank]
    return max(waiting, key=lambda one: (*_gravity(one), -one.opened_at_ns), default=None)


def recovered(incidents: Sequence[Incident], now_ns: int) -> list[Incident]:
    """Those that are over for less than half an hour, the gravest first, of equally grave ones the newest."""
    over = [
        one
        for one in incidents
        if one.closed_at_ns is not None
        and one.severity.rank >= Severity.WARNING.rank
        and 0 <= now_ns - one.closed_at_ns <= RECOVERED_FOR_S * 1e9
    ]
    return sorted(over, key=lambda one: (*_gravity(one), one.closed_at_ns or 0), reverse=True)


def recovered_words(incident: Incident, goes_on: str, others: int) -> str:
    """What is over, how it goes on (``attempt 2 started from step 1,200``), and how many others are over too."""
    title = incident.title or ", ".join(incident.rules)
    if goes_on:
        title = f"{title.removesuffix(_STARTED_AGAIN)}; {goes_on}"
    return title + (f" (and {others:,} more incident{'s' if others != 1 else ''}, over too)" if others else "")


def open_rules(incident: Incident | None, findings: Sequence[Finding]) -> set[str]:
    """Rules of an incident whose findings are still open; all its rules when none of its findings is known here."""
    if incident is None:
        return set()
    members = [finding for finding in findings if finding.id in incident.finding_ids]
    return {finding.rule for finding in members if finding.is_open} or set(incident.rules)


def is_about_training(rules: Iterable[str]) -> bool:
    """Whether one of the rules speaks of the training itself."""
    return any(rule.startswith(SICK_PREFIXES) and rule not in NOT_SICK_RULES for rule in rules)


def is_slow(rules: set[str]) -> bool:
    """Slow, and no checkpoint that cannot be trusted beside it."""
    return bool(rules & SLOW_RULES) and not any(rule.startswith("checkpoint_") for rule in rules - SLOW_RULES)


def _gravity(incident: Incident) -> tuple[int, int]:
    rules = set(incident.rules)
    kind = 3 if rules & STOPPED_RULES else 2 if rules & HUNG_RULES else 0 if is_slow(rules) else 1
    return incident.severity.rank, kind
