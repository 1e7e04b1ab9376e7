"""Texts from outside without the characters that turn the direction of writing: in a log line or a name such a character turns the
words of ours that stand beside it on the page, too, and a sentence may then read as its opposite.

Identifiers, paths and the text of commands are left as they are: something is found again, or done, by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainvitals.records import Event, Incident
from trainvitals.web.view import RunView

#: Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm (UAX 9).
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SHOWN = "\ufffd"
_LEFT_ALONE = frozenset({"id", "path", "command", "resume_command"})


def upright(text: str) -> str:
    """``text`` with a � in place of each such character."""
    return _TURNS.sub(_SHOWN, text)


def upright_run(run: RunView) -> RunView:
    """The view with every sentence upright; what held none of these characters is the same object as before."""
    verdict, control = run.verdict, run.control
    return replace(
        run,
        verdict=replace(
            verdict, headline=upright(verdict.headline), automatic=upright(verdict.automatic), decision=upright(verdict.decision)
        ),
        control=replace(
            control, sentence=upright(control.sentence), by=upright(control.by), source=upright(control.source),
            reason=upright(control.reason),
        ),
        checks=tuple(replace(one, title=upright(one.title), evidence=upright(one.evidence)) for one in run.checks),
        findings=tuple(
            replace(one, message=upright(one.message)) if _TURNS.search(one.message) else one for one in run.findings
        ),
        incidents=tuple(map(_incident, run.incidents)),
        events=tuple(map(_event, run.events)),
        control_history=tuple(map(_event, run.control_history)),
    )  # fmt: skip


def _incident(one: Incident) -> Incident:
    told = (one.title, one.message, one.acknowledged_by, one.acknowledged_note)
    if not any(map(_TURNS.search, told)):
        return one
    title, message, by, note = map(upright, told)
    return replace(one, title=title, message=message, acknowledged_by=by, acknowledged_note=note)


def _event(event: Event) -> Event:
    data = _value(event.data)
    if data is event.data and not _TURNS.search(event.text):
        return event
    return replace(event, text=upright(event.text), data=data)


def _value(value: Any) -> Any:
    """The value with its texts upright; the same object when there is nothing to change."""
    if isinstance(value, str):
        return upright(value) if _TURNS.search(value) else value
    if isinstance(value, Mapping):
        made = {key: item if key in _LEFT_ALONE else _value(item) for key, item in value.items()}
        return made if any(made[key] is not item for key, item in value.items()) else value
    if isinstance(value, (list, tuple)):
        items = [_value(item) for item in value]
        return type(value)(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
