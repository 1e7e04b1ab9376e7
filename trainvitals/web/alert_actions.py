"""Sending a message again from the alerts page: checked here, on the server, whatever the page shows."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trainvitals.access import Identity
from trainvitals.errors import TrainvitalsError
from trainvitals.settings import Settings
from trainvitals.web.actions import Outcome, _refused
from trainvitals.web.alerts_view import AlertsView

log = logging.getLogger(__name__)


def send_again(
    settings: Settings, view: AlertsView, message_id: str, who: Identity, send: Callable[[str], bool]
) -> Outcome:  # fmt: skip
    """Give a message that was not delivered all its tries again. Who may act on its run may ask for it; never raises for what people
    or files do."""
    message = next((one for one in view.messages if one.id == message_id), None)
    if message is None:
        return Outcome(False, "That message is not known here any more.")
    try:
        asked = {"action": "send_again", "target": message.target, "notice": message.id}
        # The outbox is one of this user and machine: a run of other settings is not ours to speak for.
        if refused := _refused(settings, settings.run(message.run).name, who, asked, None):
            return refused
        if not send(message.id):
            return Outcome(False, "It is no dead letter any more: it was delivered, or somebody sent it again already.")
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    log.info("%r sent %s to %s again", who.name[:200], message.id, message.target)
    return Outcome(True, f"It is sent to {message.target} again.")
