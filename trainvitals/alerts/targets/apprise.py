"""``apprise``: whatever the Apprise library reaches (e-mail, Teams, Discord, …), as an optional extra. Text only, no attachments.

The library opens its own connections: the check of addresses, ``proxy`` and ``ca_file`` of a target do not reach it.
"""

from __future__ import annotations

import logging
from typing import Any

from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import as_lines, fit
from trainvitals.alerts.targets.protocol import DELIVERED, PERMANENT, RETRY, Verdict
from trainvitals.alerts.words import Message
from trainvitals.records import Severity

MAX_TEXT_BYTES = 8_000
#: The library waits up to 5.5 s between two messages to a chat service, and 8 s for an answer.
TIMEOUT_S = 30.0
_HOW = "install the extra: pip install 'trainvitals[apprise]'"


class Apprise:
    per_minute = 10
    needs_secret = False

    def deliver(self, notice: Notice, message: Message, credentials: Credentials) -> Verdict:
        """Send and say what came of it. The library tells no status, so every failure is tried again."""
        try:
            import apprise
        except ImportError:
            return Verdict(PERMANENT, f"the library apprise is not installed; {_HOW}")
        # Its log repeats addresses and answers.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        asset: Any = apprise.AppriseAsset(async_mode=False, http_redirects=False, app_id="Trainvitals")
        service = apprise.Apprise(asset=asset)
        if not service.add(credentials.url.reveal()):
            return Verdict(PERMANENT, "the address is none that apprise knows")
        types = apprise.NotifyType
        kind = {Severity.CRITICAL: types.FAILURE, Severity.WARNING: types.WARNING}.get(notice.severity, types.INFO)
        if notice.kind is NoticeKind.RECOVERED and not notice.still_open:
            kind = types.SUCCESS
        lines = as_lines(message)
        try:
            result = service.notify(
                title=lines[0], body=fit(lines[1:] or ["-"], message.link, MAX_TEXT_BYTES), notify_type=kind,
                body_format=apprise.NotifyFormat.TEXT, attach=None, timeout=TIMEOUT_S,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 (a plugin of a library; the sender must live)
            return Verdict(RETRY, f"apprise failed with {type(error).__name__}")
        return Verdict(DELIVERED) if result else Verdict(RETRY, "apprise says that it was not delivered")
