"""What a visitor may do with a run. The pages ask it to leave out buttons; ``actions`` asks it before it does anything."""

from __future__ import annotations

from trainvitals.access import OPERATOR, Identity, may_somebody_act, refusal, role_of, rule_of
from trainvitals.settings import Settings


def has_table(settings: Settings, run: str) -> bool:
    """Whether the settings say who may act on the run; else everybody at this machine may."""
    return rule_of(settings.access, run) is not None


def may_act(settings: Settings, run: str, name: str) -> bool:
    """Whether somebody who typed this name is an operator of the run."""
    return role_of(settings.access, run, Identity(name)) == OPERATOR


def viewer_sentence(settings: Settings, run: str, name: str) -> str:
    """Why there are no buttons; "" for an operator."""
    if may_act(settings, run, name):
        return ""
    if not may_somebody_act(settings.access, run):
        return "Nobody may act on this run: its table of [access.runs] names no operators."
    if not name.strip():
        return "Only operators may act on this run. Say who you are; the name is kept with what you ask for."
    return refusal(settings.access, run, Identity(name))
