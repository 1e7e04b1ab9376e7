"""One incident as a page that stands alone, and as JSON: read on a phone, in a ticket, or while dashboard and store are away. Pure.

Names, messages and log lines are untrusted: each is escaped, control characters and signs that turn the direction of text are shown
as a replacement sign, nothing is a link but the dashboard's own address, and the page forbids scripts and everything that would be loaded.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from trainvitals.incidents.amounts import span
from trainvitals.incidents.static_page_curve import Curve, svg
from trainvitals.incidents.static_page_style import STYLE
from trainvitals.incidents.symptoms import onset_step
from trainvitals.incidents.triage import Check
from trainvitals.records import Event, Finding, Incident

SCHEMA = 1
MAX_TEXT = 2_000
MAX_ROWS = 100
_CONTENT = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
_MARKS = {"!": "evidence", "–": "nothing found", "?": "not known"}


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """Everything that a page tells. facts: (label, sentence), in order. link: the dashboard's page of it, "" = none is set up.

    near: what happened around the onset, by time. written_at_ns: UTC; a page of an open incident is of that moment.
    """

    incident: Incident
    written_at_ns: int
    symptom: str = ""
    suspect: str = ""
    action: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    near: tuple[Event, ...] = ()
    curves: tuple[Curve, ...] = ()
    link: str = ""


def file_name(incident_id: str) -> str:
    """Name of its files without ending: readable, unique, safe as a path whatever the run is called."""
    words = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(incident_id.split("/")[-4:])).strip("-")[:60]
    return f"{words or 'incident'}-{hashlib.sha256(incident_id.encode('utf-8', 'replace')).hexdigest()[:10]}"


def to_html(page: IncidentPage) -> str:
    """The whole page; a few hundred kilobytes at most."""
    incident = page.incident
    first, last = onset_step(incident, page.findings), incident.last_step
    curves = [(curve.name, svg(curve, first, last)) for curve in page.curves]
    parts = [
        f"<p class='state {incident.severity.value}'>{'OPEN' if incident.is_open else 'OVER'} · {incident.severity.value} · {_text(incident.run, 200)}</p>",
        f"<h1>{_text(incident.title)}</h1>",
        f"<p>{_text(_when(page))}</p>",
        _people(incident),
        _table([], [(label, sentence) for label, sentence in page.facts if sentence], "facts"),
        _link(page.link),
        "".join(f"<h2>{_text(name, 64)}</h2>{drawn}" for name, drawn in curves if drawn)
        or "<p class='quiet'>No curve: no step of this run was read around the incident.</p>",
        _checks(page),
        "<h2>Findings</h2>",
        _table(
            ["severity", "rule", "steps", "what"],
            [(f.severity.value, f.rule, _steps(f), f.message) for f in page.findings[:MAX_ROWS]], "rows",
        ),
        _more(page.findings),
        "<h2>What happened around it</h2>" if page.near else "",
        _table(["time", "kind", "step", "what"], [_event(event) for event in page.near[:MAX_ROWS]], "rows"),
        _more(page.near),
        f"<footer>Written {_text(_utc(page.written_at_ns))}; incident {_text(incident.id, 300)}. It stands alone and loads nothing.</footer>",
    ]  # fmt: skip
    return _document(f"{incident.severity.value}: {incident.title}", "".join(parts))


def index_html(incidents: Sequence[Incident], run: str, written_at_ns: int) -> str:
    """The list, open ones first, with links to the pages beside it."""
    ordered = sorted(incidents, key=lambda one: (not one.is_open, -one.severity.rank, -one.opened_at_ns))
    rows = [
        f"<tr><td>{'OPEN' if one.is_open else 'over'}</td><td class='{one.severity.value}'>{one.severity.value}</td>"
        f"<td>{_text(_utc(one.opened_at_ns))}</td><td><a href='{file_name(one.id)}.html'>{_text(one.title, 300)}</a></td></tr>"
        for one in ordered
    ]
    head = "<tr><th>state</th><th>severity</th><th>began</th><th>what</th></tr>"
    body = f"<table class='rows'>{head}{''.join(rows)}</table>" if rows else "<p>No incident so far.</p>"
    footer = f"<footer>Written {_text(_utc(written_at_ns))}.</footer>"
    return _document(f"incidents of {run}", f"<h1>Incidents of {_text(run, 200)}</h1>{body}{footer}")


def to_json(page: IncidentPage) -> str:
    """The same as data: one JSON object."""
    told: dict[str, Any] = {
        "schema": SCHEMA, "written_at": _utc(page.written_at_ns), "incident": asdict(page.incident),
        "symptom": page.symptom, "suspect": page.suspect, "action": page.action, "facts": [list(fact) for fact in page.facts],
        "checks": [asdict(check) for check in page.checks], "findings": [asdict(one) for one in page.findings[:MAX_ROWS]],
        "near": [asdict(event) for event in page.near[:MAX_ROWS]],
        "curves": [{"name": c.name, "points": [list(p) for p in c.points], "bad_steps": list(c.bad_steps)} for c in page.curves],
        "link": page.link,
    }  # fmt: skip
    return json.dumps(told, ensure_ascii=True, separators=(",", ":"), default=str) + "\n"


def _document(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT}"><meta name="referrer" content="no-referrer">'
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{_text(title, 200)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _when(page: IncidentPage) -> str:
    incident = page.incident
    onset = onset_step(incident, page.findings)
    step = f" at step {onset:,}" if onset is not None else ""
    if incident.closed_at_ns is None:
        lasts = f"open for {span((page.written_at_ns - incident.opened_at_ns) / 1e9)} when this was written"
    else:
        at = f" at step {incident.last_step:,}" if incident.last_step is not None else ""
        lasts = f"over {_utc(incident.closed_at_ns)}{at}, after {span((incident.closed_at_ns - incident.opened_at_ns) / 1e9)}"
    return f"Began {_utc(incident.opened_at_ns)}{step}; {lasts}."


def _people(incident: Incident) -> str:
    said = []
    if incident.acknowledged_by:
        note = f": {incident.acknowledged_note}" if incident.acknowledged_note else ""
        said.append(f"{incident.acknowledged_by} has it since {_utc(incident.acknowledged_at_ns)}{note}.")
    if incident.silenced_until_ns is not None:
        said.append(f"Silenced until {_utc(incident.silenced_until_ns)}.")
    return "".join(f"<p>{_text(sentence)}</p>" for sentence in said)


def _checks(page: IncidentPage) -> str:
    if not page.checks and not page.symptom:
        return ""
    lead = f"Seen: {page.symptom}. First suspect: {page.suspect} {page.action}" if page.symptom else ""
    rows = [(check.layer, _MARKS.get(check.mark, check.mark), f"{check.title}. {check.evidence}") for check in page.checks]
    return f"<h2>Check in this order</h2><p>{_text(lead)}</p>" + _table(["where", "", "what is known"], rows, "rows")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    if not rows:
        return ""
    top = "<tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>" if head else ""
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table class='{kind}'>{top}{body}</table>"


def _event(event: Event) -> tuple[str, str, str, str]:
    return _utc(event.time_ns), event.kind, "" if event.step is None else f"{event.step:,}", event.text


def _steps(finding: Finding) -> str:
    return f"{finding.first_step:,} – {'…' if finding.last_step is None else f'{finding.last_step:,}'}"


def _more(rows: Sequence[object]) -> str:
    return f"<p class='quiet'>{len(rows) - MAX_ROWS:,} more are left out.</p>" if len(rows) > MAX_ROWS else ""


def _link(link: str) -> str:
    """The dashboard's own address, out of the settings; anything but a web address is text."""
    if not link:
        return ""
    if not link.startswith(("https://", "http://")):
        return f"<p>{_text(link)}</p>"
    return f'<p><a rel="noreferrer" href="{html.escape(link, quote=True)}">Open it in the dashboard</a></p>'


def _utc(time_ns: int | None) -> str:
    if time_ns is None:
        return "?"
    try:
        return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


def _text(text: str, longest: int = MAX_TEXT) -> str:
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape("".join(c if _is_plain(c) else "\N{REPLACEMENT CHARACTER}" for c in cut), quote=True)


def _is_plain(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
