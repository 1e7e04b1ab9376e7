"""What the supervisor did, as events in ``supervisor.events.jsonl``: the hook's own kind of lines, which ``watch`` reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trainvitals.clock import Clock

EVENTS_FILE = "supervisor.events.jsonl"
KIND = "supervisor"
#: Beyond this the file is put aside once, so that it cannot grow for ever.
MAX_BYTES = 16 << 20
#: What readers of the hook's lines keep of a text.
MAX_TEXT = 500


class EventFile:
    """``lost`` counts events that could not be written (a full disk); the next one that can tells it."""

    def __init__(self, run_dir: str, clock: Clock) -> None:
        self._path = Path(run_dir) / EVENTS_FILE
        self._clock = clock
        self.lost = 0

    def tell(self, state: str, text: str, *, severity: str = "info", step: int | None = None, **data: Any) -> None:
        """Append one event and say its sentence to stderr. Never raises."""
        record = {
            "type": "event", "kind": KIND, "time_ns": self._clock.time_ns(), "step": step, "severity": severity, "text": text[:MAX_TEXT],
            "data": {"state": state, **data, **({"lost_events": self.lost} if self.lost else {})},
        }  # fmt: skip
        try:
            self._append(json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n")
        except (OSError, ValueError):
            self.lost += 1
        _say(text)

    def _append(self, line: bytes) -> None:
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640
        )
        try:
            if os.fstat(descriptor).st_size > MAX_BYTES:
                os.replace(self._path, f"{self._path}.1")  # noqa: PTH105
            if os.write(descriptor, line) != len(line):
                raise OSError("only a part could be written")
            self.lost = 0
        finally:
            os.close(descriptor)


def _say(sentence: str) -> None:
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence)
    try:
        print(f"trainvitals run: {shown}", file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        return  # a closed terminal must not end what keeps the trainer running
