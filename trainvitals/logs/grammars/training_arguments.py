"""The arguments that a Hugging Face script prints before it trains: ``TrainingArguments(``, one ``name=value,`` a line, ``)``."""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammars.config_dump import config_events, scalar
from trainvitals.records import Event

OPENINGS = (
    "TrainingArguments(",
    "SFTConfig(",
    "DPOConfig(",
    "GRPOConfig(",
    "PPOConfig(",
    "ORPOConfig(",
    "KTOConfig(",
    "RewardConfig(",
)
#: As a script or a logger prints them; a line of source code has something else before it.
_OPENING = re.compile(
    r"(?:\A|[Pp]arameters:? |>> | - )\w{0,30}(?:TrainingArguments|(?:SFT|DPO|GRPO|PPO|ORPO|KTO|Reward)Config)\(\Z", re.ASCII
)
_PAIR = re.compile(r"\s{0,8}([A-Za-z_]\w{0,79})=(.{0,4000}?),?\s{0,4}\Z", re.ASCII)
#: More than any release has; lines of other ranks may stand between.
_MAX_ARGUMENTS = 600
_MAX_FOREIGN_LINES = 20


def is_opening(line: str) -> bool:
    """Whether the arguments begin behind this line."""
    return line.endswith(OPENINGS) and _OPENING.search(line) is not None


class TrainingArgumentsReader:
    """State: the arguments read so far. What never ends is forgotten, and counted in ``broken``."""

    def __init__(self) -> None:
        self._values: dict[str, str] | None = None
        self._foreign = 0
        self._time_ns: int | None = None
        self.broken = 0

    @property
    def is_reading(self) -> bool:
        return self._values is not None

    def begin(self, time_ns: int | None) -> None:
        """The opening line was seen; another rank's is no second beginning."""
        if self._values is None:
            self._values, self._foreign, self._time_ns = {}, 0, time_ns

    def feed(self, line: str) -> list[Event] | None:
        """The events of the line that ends the arguments, nothing for one of them, None for a line that is none of them."""
        values = self._values
        if values is None:
            return None
        if line.strip() == ")":
            self._values = None
            return config_events({key: _value(raw) for key, raw in values.items()}, "TrainingArguments", self._time_ns)
        if (found := _PAIR.match(line)) is not None and len(values) < _MAX_ARGUMENTS:
            values.setdefault(found[1], found[2][:2000])
            return []
        self._foreign += 1
        if self._foreign > _MAX_FOREIGN_LINES:
            self._values = None
            self.broken += 1
        return None

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"values": self._values, "foreign": self._foreign, "time_ns": self._time_ns, "broken": self.broken}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._values = dict(state["values"]) if state["values"] is not None else None
        self._foreign, self._time_ns, self.broken = int(state["foreign"]), state["time_ns"], int(state["broken"])


def _value(raw: str) -> str | int | float | bool | None:
    return raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"" else scalar(raw)
