"""From a change of an incident, and what the watchdog knows around it, to a notice. Pure: the same input is the same notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from trainvitals.alerts.costs import Cost, going_back
from trainvitals.alerts.notice import REFUSALS, Item, Notice, NoticeKind, Suspect, Verb, notice_id
from trainvitals.alerts.text import plain
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.incidents.deciding import HUNG_RULES, STOPPED_RULES, is_about_training, is_slow
from trainvitals.incidents.rollback import Rollback
from trainvitals.incidents.symptoms import OF_ITS_OWN, symptom
from trainvitals.incidents.triage import Check
from trainvitals.masking import mask_text
from trainvitals.records import Finding, Incident, Severity

#: Characters of what came from a log that a notice carries.
WHAT_CHARACTERS = 500
EVIDENCE_CHARACTERS = 300
#: Of what else is open, how many a message that something is over names.
MAX_STILL_OPEN = 3
#: Steps before the onset and after it that the link shows, at least.
WINDOW_STEPS = 200
#: The three groups in which a message names suspects; numbers are a matter of the program.
_GROUPS = {"data": "data", "code": "code", "numerics": "code", "cluster": "cluster"}
#: Rules that end a run or leave it without steps, beside those that the pages call so.
_STOPPED = STOPPED_RULES | {"out_of_memory", "restart_failed", "restart_loop"}
_HUNG = HUNG_RULES | {"pause_not_honoured"}
_KINDS = {
    ChangeKind.OPENED: NoticeKind.OPENED, ChangeKind.ESCALATED: NoticeKind.ESCALATED, ChangeKind.RECOVERED: NoticeKind.RECOVERED,
    ChangeKind.REOPENED: NoticeKind.REOPENED, ChangeKind.ACKNOWLEDGED: NoticeKind.ACKNOWLEDGED,
    ChangeKind.PAUSED: NoticeKind.PAUSED,
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What is known of a run at one moment; empty or None = not known.

    findings: those of the incident, in any order. checks: of the triage table, for this incident. is_paused: the trainer says so.
    breaker, control: a sentence each. public_url, runbook_url: of the settings; the latter may hold ``{rule}``.
    others, other_findings: what else is open in the run, and the findings of that.
    """

    findings: Sequence[Finding] = ()
    checks: Sequence[Check] = ()
    rollback: Rollback | None = None
    last_step: int | None = None
    step_s: float | None = None
    gpus: int = 0
    gpu_hour_price: float = 0.0
    is_paused: bool = False
    breaker: str = ""
    control: str = ""
    public_url: str = ""
    runbook_url: str = ""
    audit_head: str = ""
    others: Sequence[Incident] = ()
    other_findings: Sequence[Finding] = ()


def compose(change: IncidentChange, known: Known) -> Notice:
    """The notice of ``change``; its id depends on the incident, when it began, the kind and the number alone."""
    incident, kind = change.incident, _KINDS[change.kind]
    lead = leading(change.rule, incident, known.findings)
    is_over = kind is NoticeKind.RECOVERED
    safe = known.rollback.checkpoint if known.rollback is not None and not is_over else None
    last = known.last_step
    cost = going_back(last, safe.step, known.step_s, known.gpus, known.gpu_hour_price) if safe is not None else Cost()
    what = incident.title or (lead.message if lead is not None else ", ".join(incident.rules))
    refusal = next(
        (one for one in known.findings if one.id in incident.finding_ids and one.rule in REFUSALS and one.is_open), None
    )
    if refusal is not None and not is_over:  # that nothing is mended any more is what a person must know first
        lead, what = refusal, refusal.message if what in refusal.message else f"{refusal.message}; {what}"
    rule = lead.rule if lead is not None else change.rule
    others = _still_open(incident, known) if is_over else []
    is_partly = any(one.severity is Severity.CRITICAL for one in others)
    return Notice(
        id=notice_id(f"{incident.id}@{incident.opened_at_ns}", kind.value, change.number), kind=kind, number=change.number, run=incident.run,
        incident_id=incident.id, family=incident.family, severity=Severity.INFO if kind is NoticeKind.PAUSED else incident.severity,
        verb=Verb.STILL_OPEN if is_partly else verb(incident, known.findings, is_paused=known.is_paused, is_over=is_over), rule=rule, rules=incident.rules,
        what=plain(mask_text(what), WHAT_CHARACTERS), at_ns=_told_of_ns(change, rule), opened_at_ns=_began_ns(incident, lead, is_over=is_over),
        step=lead.first_step if lead is not None else incident.first_step,
        value=lead.value if lead is not None else None, expected=lead.expected if lead is not None else None,
        safe_step=safe.step if safe is not None else None,
        safe_level=safe.level.value if safe is not None and safe.level is not None else "",
        lost_steps=cost.steps, lost_gpu_hours=cost.gpu_hours, cost=cost.money, gpus=known.gpus,
        suspects=() if is_over else suspects(rule, known.checks),
        breaker=plain(known.breaker, EVIDENCE_CHARACTERS), control=plain(known.control, EVIDENCE_CHARACTERS),
        acknowledged_by=plain(change.by, 100), runbook_url=runbook(known.runbook_url, rule),
        link=incident_link(known.public_url, others[0] if is_partly else incident, last), audit_head=known.audit_head,
        still_open=tuple(_item(one, known) for one in others[:MAX_STILL_OPEN]),
    )  # fmt: skip


def _still_open(incident: Incident, known: Known) -> list[Incident]:
    """What else of the run is open, whoever has it and whoever is silent about it: the gravest first, then the newest."""
    waiting = [one for one in known.others if one.id != incident.id and one.is_open and one.severity is not Severity.INFO]
    return sorted(waiting, key=lambda one: (one.severity.rank, one.opened_at_ns), reverse=True)


def _item(incident: Incident, known: Known) -> Item:
    lead = leading("", incident, [one for one in known.other_findings if one.is_open])
    rule = lead.rule if lead is not None else next(iter(incident.rules), incident.family)
    what = lead.message if lead is not None else incident.title or ", ".join(incident.rules)
    return Item(
        NoticeKind.OPENED, verb(incident, known.other_findings, is_paused=known.is_paused), incident.severity, rule,
        plain(mask_text(what), EVIDENCE_CHARACTERS), incident.opened_at_ns, lead.first_step if lead is not None else incident.first_step,
        lead.value if lead is not None else None, lead.expected if lead is not None else None,
    )  # fmt: skip


def _began_ns(incident: Incident, lead: Finding | None, *, is_over: bool) -> int:
    """A death, or a loss that is no number, joins what was wrong before it; the message tells of it alone."""
    is_own = lead is not None and (lead.rule in _STOPPED or (lead.rule in OF_ITS_OWN and not is_over))
    own_ns = lead.time_ns if lead is not None and is_own and lead.time_ns is not None else incident.opened_at_ns
    return max(incident.opened_at_ns, own_ns)


def _told_of_ns(change: IncidentChange, rule: str) -> int:
    """An end is told when it has lasted for a while, which is no part of the trouble; over is a death with the first step after it."""
    closed_ns = change.incident.closed_at_ns
    if change.kind is not ChangeKind.RECOVERED or closed_ns is None or rule in _STOPPED:
        return change.at_ns
    return min(closed_ns, change.at_ns)


def leading(rule: str, incident: Incident, findings: Sequence[Finding]) -> Finding | None:
    """The finding that speaks for the incident: of ``rule``, of those the gravest, then an open one, then the newest."""
    members = [one for one in findings if one.id in incident.finding_ids]
    of_rule = [one for one in members if one.rule == rule] or members
    return max(of_rule, key=lambda one: (one.severity.rank, one.is_open, one.detected_step), default=None)


def verb(incident: Incident, findings: Sequence[Finding], *, is_paused: bool = False, is_over: bool = False) -> Verb:
    """What a person hears first. A pause counts where the incident is about the training: it is what was done about it."""
    if is_over:
        return Verb.RECOVERED
    members = [one for one in findings if one.id in incident.finding_ids]
    still = [one for one in members if one.is_open] or members
    rules = {one.rule for one in still} or set(incident.rules)
    if rules & _STOPPED:
        return Verb.STOPPED
    grave = {one.rule for one in still if one.severity is Severity.CRITICAL} or (
        rules if incident.severity is Severity.CRITICAL else set()
    )
    if grave & _HUNG:
        return Verb.HUNG
    if is_about_training(rules) or any(rule.startswith("lr_") for rule in rules):
        return Verb.PAUSED if is_paused else Verb.TRAINING_SICK
    if is_slow(rules):
        return Verb.TRAINING_SLOW
    return Verb.CHECK


def suspects(rule: str, checks: Sequence[Check]) -> tuple[Suspect, ...]:
    """What to look at, in the order data, code, cluster whatever the rule is. Numbers stand with the code, and only when there is
    evidence or the rule's own first suspect is there."""
    is_numeric = symptom(rule).suspect_layer == "numerics"
    found = []
    for check in checks:
        is_found = check.mark == "!"
        if check.layer == "numerics" and not (is_found or is_numeric):
            continue
        title = plain(mask_text(check.title), EVIDENCE_CHARACTERS)
        evidence = plain(mask_text(check.evidence), EVIDENCE_CHARACTERS)
        text = title if is_found or not evidence else f"{title}. {evidence}"
        found.append(Suspect(_GROUPS[check.layer], text, (evidence or title) if is_found else ""))
    return tuple(sorted(found, key=lambda one: ("data", "code", "cluster").index(one.group)))


def incident_link(public_url: str, incident: Incident, last_step: int | None) -> str:
    """Address of the incident's page with run, window and incident; "" without ``public_url``: a guessed address helps nobody."""
    if not public_url:
        return ""
    query = {"run": incident.run}
    if incident.first_step is not None:
        last = incident.last_step if incident.last_step is not None else last_step
        air = max(WINDOW_STEPS, (last or 0) - incident.first_step)
        end = max(incident.first_step + WINDOW_STEPS, (last or 0) + air // 2)
        query |= {"by": "step", "from": str(max(0, incident.first_step - air)), "to": str(end)}
    return f"{public_url.rstrip('/')}/incidents?{urlencode(query | {'incident': incident.id}, quote_via=quote, errors='replace')}"


def runbook(template: str, rule: str) -> str:
    """``runbook_url`` for one rule."""
    return template.replace("{rule}", quote(rule, safe=""))
