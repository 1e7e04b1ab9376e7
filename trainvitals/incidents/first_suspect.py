"""The first suspect in words, and what to do first, by what was found in this very incident. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.incidents.triage import Check


def suspect_words(suspect: str, suspect_layer: str, checks: Sequence[Check]) -> str:
    """The first suspect, and where the evidence of this very incident lies when that is elsewhere."""
    found = [check for check in checks if check.mark == "!"]
    if not found or any(check.layer == suspect_layer for check in found):
        return f"{suspect}."
    return f"{suspect}, as a rule. Here the evidence is in {' and '.join(check.layer for check in found)}: {found[0].title}."


def action_words(action: str, suspect_layer: str, checks: Sequence[Check]) -> str:
    """What to do first: where evidence was found, when that is not where such trouble mostly comes from."""
    found = [check for check in checks if check.mark == "!"]
    if not found or any(check.layer == suspect_layer for check in found):
        return action
    return f"Begin with the {found[0].layer}. Only if that explains nothing: {action[:1].lower()}{action[1:]}"
