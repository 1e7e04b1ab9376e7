"""Which incident decides what a person reads first: the gravest that is open, or the gravest that is over. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainvitals.records import Finding, Incident, Severity

#: How long a closed incident is still told at the top, and how long it is more than one line.
RECOVERED_FOR_S = 30 * 60.0
RECOVERED_LOUD_S = 120.0
HUNG_RULES = frozenset({"stall", "nccl_timeout", "rank_silent"})
STOPPED_RULES = frozenset({"run_dead", "run_dead_holding_nodes", "restart_failed", "restart_loop"})
#: The supervisor starts nothing any more until a person lets it.
HELD_RULES = frozenset({"restart_failed", "restart_loop"})
SLOW_RULES = frozenset({"throughput_drop", "straggler", "checkpoint_blocking"})
#: Rules that speak of the training itself.
SICK_PREFIXES = ("loss_", "grad_norm_", "resume_", "rank_loss_", "lr_schedule_", "breaker_")
#: ... but not these: the training is as it was, only older than it could be.
NOT_SICK_RULES = frozenset({"resume_behind"})
#: How a death's message ends once the next start has closed it; the next start is told in its own words.
_STARTED_AGAIN = "; the trainer was started again"
#: True of when it was found: the pages say which checkpoint is the newest now. And what a launcher said before the cause was known.
_OF_THEN = re.compile(r"; newest (?:verified|complete): step [0-9,]{1,20}", re.ASCII)
_FIRST_TOLD = "; first told as: "
#: Classes of causes that are no words of a person's.
_CLASSES = {": numerics": ": NaN or infinite numbers"}
#: An end closes with the start after it; both are told by clocks that may differ.
_SLACK_NS = 10 * 10**9


def main_incident(incidents: Sequence[Incident]) -> Incident | None:
    """The open incident that decides: worst first, then a dead or hung run before a sick one, then the oldest."""
    waiting = [incident for incident in incidents if incident.is_open and incident.severity.rank >= Severity.WARNING.rank]
    return max(waiting, key=lambda one: (*_gravity(one), -one.opened_at_ns), default=None)


def apart(incidents: Sequence[Incident], findings: Sequence[Finding], started_ns: int | None) -> list[Incident]:
    """An open incident whose gravest part is over becomes two: what is open with its own words, and what is over.

    A slow node is one incident with the death that came of it; after the next start only the slow node is still there.
    started_ns: when the running attempt began, which is when a death is over.
    """
    known = {finding.id: finding for finding in findings}
    found = []
    for incident in incidents:
        members = [known[id_] for id_ in incident.finding_ids if id_ in known]
        still = [one for one in members if one.is_open]
        worst = max(still, key=lambda one: (one.severity.rank, -one.first_step), default=None)
        over = [one for one in members if not one.is_open and worst is not None and one.severity.rank > worst.severity.rank]
        if not incident.is_open or worst is None or not over:
            found.append(incident)
            continue
        gravest = max(over, key=lambda one: (one.severity.rank, one.first_step))
        is_of_start = started_ns is not None and started_ns > incident.opened_at_ns
        ended_ns = started_ns if is_of_start else incident.updated_at_ns
        found.append(_part(incident, worst, still, None))
        found.append(_part(incident, gravest, over, ended_ns))
    return found


def _part(incident: Incident, worst: Finding, members: Sequence[Finding], closed_at_ns: int | None) -> Incident:
    return replace(
        incident, severity=worst.severity, title=worst.message, message=worst.message, closed_at_ns=closed_at_ns,
        rules=tuple(dict.fromkeys(one.rule for one in members)), finding_ids=tuple(one.id for one in members),
        first_step=min(one.first_step for one in members),
        opened_at_ns=min((one.time_ns for one in members if one.time_ns is not None), default=incident.opened_at_ns),
    )  # fmt: skip


def title_words(incident: Incident) -> str:
    """What an incident is called in a headline: its title without what was true only then."""
    title = incident.title or incident.message or ", ".join(incident.rules)
    head, told, said = _OF_THEN.sub("", title).partition(_FIRST_TOLD)
    title = head + (_STARTED_AGAIN if told and said.endswith(_STARTED_AGAIN) else "")
    for name, words in _CLASSES.items():
        if title.endswith(name) or f"{name} (" in title or f"{name};" in title:
            title = title.replace(name, words, 1)
    return title


def recovered(incidents: Sequence[Incident], now_ns: int, started_ns: int | None = None) -> list[Incident]:
    """Those that are over for less than half an hour: the gravest first, of equally grave ones those that were not over before the running
    start (at started_ns), then a death before others, then the newest."""
    over = [
        one
        for one in incidents
        if one.closed_at_ns is not None
        and one.severity.rank >= Severity.WARNING.rank
        and 0 <= now_ns - one.closed_at_ns <= RECOVERED_FOR_S * 1e9
    ]

    def order(one: Incident) -> tuple[int, bool, int, int]:
        severity, kind = _gravity(one)
        return severity, _is_of_start(one, started_ns), kind, one.closed_at_ns or 0

    return sorted(over, key=order, reverse=True)


def recovered_words(incident: Incident, goes_on: str, others: int) -> str:
    """What is over, how it goes on (``attempt 2 started from step 1,200``), and how many others are over too."""
    title = title_words(incident)
    if goes_on:
        title = f"{title.removesuffix(_STARTED_AGAIN)}; {goes_on}"
    return title + (f" (and {others:,} more, over too)" if others else "")


def goes_on_words(over: Incident, attempt: int | None, started_ns: int | None, from_step: int | None) -> str:
    """``attempt 2 started from step 1,200`` when that ended what is over; empty when it was over before, or began later."""
    if started_ns is None or started_ns <= over.opened_at_ns or from_step is None or not _is_of_start(over, started_ns):
        return ""
    return f"attempt {attempt} started from step {from_step:,}"


def _is_of_start(over: Incident, started_ns: int | None) -> bool:
    return started_ns is None or over.closed_at_ns is None or over.closed_at_ns >= started_ns - _SLACK_NS


def open_rules(incident: Incident | None, findings: Sequence[Finding]) -> set[str]:
    """Rules of an incident whose findings are still open; all its rules when none of its findings is known here."""
    if incident is None:
        return set()
    members = [finding for finding in findings if finding.id in incident.finding_ids]
    return {finding.rule for finding in members if finding.is_open} or set(incident.rules)


def stopped_words(incident: Incident | None, rules: Iterable[str], findings: Sequence[Finding]) -> str:
    """How the run died; before that why the supervisor leaves it at that, which a person has to decide about."""
    if incident is None or not STOPPED_RULES & set(rules):
        return "the trainer ended without saying why"
    held = next(
        (one.message for one in findings if one.is_open and one.rule in HELD_RULES and one.id in incident.finding_ids), ""
    )
    return f"{held} (first told: {incident.title})" if held and incident.title not in ("", held) else held or incident.title


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
