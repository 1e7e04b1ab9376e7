"""Who may do what with a run: viewers look, operators act. Pure; whoever carries an action out asks here, whatever a page shows.

In local mode a name is what somebody typed: it is told and kept, not proven. Other ways to log in give an ``Identity`` of their own.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainvitals.settings_sections import AccessSettings

OPERATOR, VIEWER = "operator", "viewer"
#: In a list of names: everybody.
EVERYBODY = "*"
_WILD = "*?[]"


@dataclass(frozen=True)
class Identity:
    """Who asks. is_proven: somebody else than the person vouches for the name (a proxy, a login)."""

    name: str
    is_proven: bool = False


def rule_of(rules: Mapping[str, AccessSettings], run: str) -> tuple[str, AccessSettings] | None:
    """(pattern, its table) of the most specific pattern that fits the run: the one with the most letters that are no wildcard."""
    fitting = [pattern for pattern in rules if fnmatch.fnmatchcase(run, pattern)]
    if not fitting:
        return None
    chosen = max(fitting, key=lambda pattern: (sum(letter not in _WILD for letter in pattern), len(pattern), pattern))
    return chosen, rules[chosen]


def role_of(rules: Mapping[str, AccessSettings], run: str, who: Identity) -> str:
    """``operator``, ``viewer``, or "" where viewers are listed and this is none. Without a table everybody is an operator."""
    found = rule_of(rules, run)
    if found is None:
        return OPERATOR
    _, rule = found
    if _is_among(who, rule.operators):
        return OPERATOR
    return VIEWER if not rule.viewers or _is_among(who, rule.viewers) else ""


def refusal(rules: Mapping[str, AccessSettings], run: str, who: Identity) -> str:
    """Why this person may not act on the run, as a sentence; "" when they may."""
    if role_of(rules, run, who) == OPERATOR:
        return ""
    found = rule_of(rules, run)
    table = f'[access.runs."{found[0]}"]' if found is not None else "[access]"
    name = who.name.strip() or "somebody without a name"
    return f"{name} may look at {run!r}, but not act on it: {table} in the settings names its operators. Ask one of them."


def may_somebody_act(rules: Mapping[str, AccessSettings], run: str) -> bool:
    """Whether anybody at all is an operator of the run."""
    found = rule_of(rules, run)
    return found is None or bool(found[1].operators)


def _is_among(who: Identity, names: Sequence[str]) -> bool:
    return EVERYBODY in names or (bool(who.name.strip()) and who.name.strip() in names)
