"""What a visitor may do with a run. The pages ask it to leave out buttons; ``actions`` asks it before it does anything."""

from __future__ import annotations

from trainvitals.access import OPERATOR, Identity, may_somebody_act, refusal, role_of, rule_of
from trainvitals.settings import Settings


def has_table(settings: Settings, run: str) -> bool:
    """Whether the settings say who may act on the run; else everybody at this machine may."""
    return rule_of(settings.access, run) is not None


def may_act(settings: Settings, run: str, who: str | Identity) -> bool:
    """Whether this person is an operator of the run. Somebody who is not logged in is none, except in local mode."""
    identity = _identity(who)
    return (identity.is_proven or settings.login.mode == "local") and role_of(settings.access, run, identity) == OPERATOR


def may_look(settings: Settings, run: str, who: str | Identity) -> bool:
    """Whether this person may see the run. In local mode everybody at this machine may: a typed name hides nothing."""
    return settings.login.mode == "local" or (_identity(who).is_proven and role_of(settings.access, run, _identity(who)) != "")


def viewer_sentence(settings: Settings, run: str, who: str | Identity) -> str:
    """Why there are no buttons; "" for an operator."""
    if may_act(settings, run, who):
        return ""
    name = _identity(who).name
    if not may_somebody_act(settings.access, run):
        return "Nobody may act on this run: its table of [access.runs] names no operators."
    if not name.strip():
        return "Only operators may act on this run. Say who you are; the name is kept with what you ask for."
    return refusal(settings.access, run, _identity(who))


def _identity(who: str | Identity) -> Identity:
    return who if isinstance(who, Identity) else Identity(who)
