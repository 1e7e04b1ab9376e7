"""What an event of a log may show of it: no secrets, and no more than a few lines of text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from trainvitals.masking import mask_cut_text, mask_json
from trainvitals.records import Event

#: Characters of an event's text.
MAX_TEXT = 500


def without_secrets(event: Event) -> Event:
    """Logs are read by few people, the store and its pages by many. A configuration is masked key by key where it is read."""
    if event.kind == "metadata":
        return replace(event, text=mask_cut_text(event.text, MAX_TEXT))
    data = cast("dict[str, Any]", mask_json(dict(event.data)))
    return replace(event, text=mask_cut_text(event.text, MAX_TEXT), data=data)
