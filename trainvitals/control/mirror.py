"""What the control directory says, as one text for hosts that do not share it: `watch` writes it into the store, the dashboard reads it.

Pure. The parts are the documents of the files themselves, so a reader checks them as it checks the files. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from trainvitals.control import document
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.requests import Watcher
from trainvitals.control.signed import REASONS
from trainvitals.errors import InputError

SCHEMA = 1
SCHEMAS = (1,)
#: InfluxDB keeps no longer text.
MAX_BYTES = 60_000
MAX_HISTORY = 10
MAX_TROUBLE = 1_000
_T = TypeVar("_T", ControlRequest, ControlStatus, Watcher)


@dataclass(frozen=True, slots=True)
class Mirror:
    """request: what is desired. status: what the trainer says, None = nothing yet. heartbeat_age_s: of the trainer, as measured on the
    run's host. watcher: the watchdog that tells this. supervisor: the live one, None = none. trouble: why the files cannot be read,
    "" = they can. refused: reason -> signed requests refused so far. history: newest requests, oldest first."""

    request: ControlRequest = field(default_factory=ControlRequest)
    status: ControlStatus | None = None
    heartbeat_age_s: float | None = None
    watcher: Watcher = field(default_factory=lambda: Watcher("", ()))
    supervisor: Watcher | None = None
    trouble: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)
    history: tuple[ControlRequest, ...] = ()

    def to_text(self) -> str:
        """One JSON object. What would make it too long is left out: first the oldest of the history, then the texts of the status."""
        kept = self
        text = kept._text()
        while len(text) > MAX_BYTES and kept.history:
            kept = replace(kept, history=kept.history[1:])
            text = kept._text()
        if len(text) > MAX_BYTES:
            status = self.status and replace(self.status, refusal=self.status.refusal[:500], error=(self.status.error or "")[:500] or None,
                                             by=self.status.by[:200], reason=self.status.reason[:500], host=self.status.host[:200],
                                             source=self.status.source[:200], hook_version=self.status.hook_version[:200],
                                             understands=())  # fmt: skip
            text = replace(kept, status=status)._text()
        if len(text) > MAX_BYTES:
            text = replace(kept, status=None, supervisor=None, trouble="what the trainer says is too long to be told")._text()
        return text

    def _text(self) -> str:
        return json.dumps(
            {
                "schema": SCHEMA, "request": _plain(self.request), "status": _plain(self.status), "heartbeat_age_s": self.heartbeat_age_s,
                "watcher": _plain(self.watcher), "supervisor": _plain(self.supervisor), "trouble": self.trouble[:MAX_TROUBLE],
                "refused": dict(self.refused), "history": [_plain(one) for one in self.history],
            },
            separators=(",", ":"), allow_nan=False,
        )  # fmt: skip

    @classmethod
    def from_text(cls, text: str, where: str = "the control state in the store") -> Mirror:
        """Raises ``InputError`` naming the key and what it must be."""
        if len(text) > 2 * MAX_BYTES:
            raise InputError(f"{where} has {len(text):,} characters; the most is {2 * MAX_BYTES:,}.")
        raw = document.load(text, where, SCHEMAS)
        age, refused, history = raw.get("heartbeat_age_s"), raw.get("refused"), raw.get("history")
        if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not 0 <= age < 1e12):
            raise document.wrong(where, "heartbeat_age_s", "seconds, 0 or more, or null", age)
        if not isinstance(refused, dict):
            raise document.wrong(where, "refused", "an object", refused)
        if not isinstance(history, list) or len(history) > MAX_HISTORY:
            raise document.wrong(where, "history", f"a list of at most {MAX_HISTORY} requests", history)
        return cls(
            request=_part(ControlRequest, raw.get("request"), where) or ControlRequest(),
            status=_part(ControlStatus, raw.get("status"), where),
            heartbeat_age_s=None if age is None else float(age),
            watcher=_part(Watcher, raw.get("watcher"), where) or Watcher("", ()),
            supervisor=_part(Watcher, raw.get("supervisor"), where),
            trouble=document.text(raw, "trouble", where, None),
            refused={reason: document.count(refused, reason, where, 0) for reason in REASONS if reason in refused},
            history=tuple(one for item in history if (one := _part(ControlRequest, item, where)) is not None),
        )


def _plain(record: ControlRequest | ControlStatus | Watcher | None) -> Any:
    return None if record is None else json.loads(record.to_json())


def _part(kind: type[_T], raw: object, where: str) -> _T | None:
    return None if raw is None else kind.from_json(json.dumps(raw), where)
