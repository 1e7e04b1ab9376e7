"""What every page asks first: the poller, the run that is looked at, the theme. The address carries the run."""

from dataclasses import dataclass

import streamlit as st

from trainvitals.web.alerts_view import AlertsView
from trainvitals.web.poller import Poller
from trainvitals.web.process import StartError, alert_peer, poller
from trainvitals.web.told_troubles import LOG
from trainvitals.web.view import RunView, Snapshot

RUN_KEY = "tv_run"
WAITING = (
    "Waiting for the first step. The curves begin by themselves as soon as the trainer logs one.\n"
    "If it trains already: are the log globs and the run directory in trainvitals.toml the trainer's own?"
)
UNREAD = "No step is read yet: the log is found and grows, and no known format fits its lines (docs/formats.md)."


def waiting(run: RunView) -> str:
    """What stands in the curves' place before the first step."""
    return UNREAD if LOG in run.troubles else WAITING


@dataclass(frozen=True)
class Look:
    """One look at the poller: everything on a page comes from one of these, so that its parts agree."""

    snapshot: Snapshot
    run: RunView
    now_ns: int

    @property
    def zone(self) -> str:
        return self.run.settings.log_timezone


def the_poller() -> Poller:
    """The poller of this process; wrong settings end the page with the sentence that says what is wrong."""
    try:
        return poller()
    except StartError as error:
        st.text(f"Trainvitals cannot start: {error}")
        st.stop()


def alerts_now() -> AlertsView:
    """What is told, to whom, and whether it gets there, as of the last look; never waits."""
    the_poller()
    return alert_peer().view()


def look(*, speaks: bool = False) -> Look | None:
    """The newest snapshot of the chosen run; None before the first one. speaks: then say why (the head of a page, once)."""
    held = the_poller()
    snapshot = held.snapshot()
    run = snapshot.run(str(st.session_state.get(RUN_KEY, "")))
    if run is not None:
        return Look(snapshot, run, held.now_ns())
    if not speaks:
        return None
    if snapshot.error:
        st.text(f"Nothing to show yet: {snapshot.error} This page goes on by itself as soon as it can be read.")
    else:
        st.text("Reading the store for the first time …")
    return None


def refresh_s() -> float:
    """Seconds between two refreshes of a fragment."""
    return max(0.5, the_poller().settings.dashboard.refresh_s)


def theme() -> str:
    """``light`` or ``dark``, as the browser shows it."""
    return "dark" if st.context.theme.type == "dark" else "light"
