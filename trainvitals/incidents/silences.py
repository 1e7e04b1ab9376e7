"""Silences: what nobody is told of until a moment, asked for by a person who says why. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainvitals.errors import InputError
from trainvitals.records import Incident, Severity

MAX_SILENCES = 50
MAX_PATTERNS = 20
MAX_PATTERN = 100
MAX_COMMENT = 2_000
#: A month: a silence that is forgotten hides everything.
LONGEST_S = 31 * 86_400
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Silence:
    """rules, families: names or patterns, empty = all; ``runs`` likewise. up_to: graver incidents are told all the same.

    An incident is silenced when all of its rules are: what else it turns out to be is told. Times are UTC ns.
    """

    id: str
    by: str
    comment: str
    begin_ns: int
    until_ns: int
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    up_to: Severity = Severity.WARNING

    def covers(self, incident: Incident, now_ns: int) -> bool:
        """Whether nobody is told of the incident now."""
        return (
            now_ns < self.until_ns
            and incident.severity.rank <= self.up_to.rank
            and _fits(incident.run, self.runs)
            and _fits(incident.family, self.families)
            and all(_fits(rule, self.rules) for rule in incident.rules)
        )

    def words(self) -> str:
        """``loss_*, straggler up to warning``, for people."""
        what = ", ".join((*self.rules, *(f"all of {family}" for family in self.families))) or "everything"
        return f"{what} up to {self.up_to.value}"

    def to_mapping(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Silence:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        patterns = {name: tuple(str(one) for one in data.get(name, ())) for name in ("rules", "families", "runs")}
        return cls(**{**data, **patterns, "up_to": Severity(data["up_to"])})


def checked_silence(data: Mapping[str, Any], *, identifier: str, by: str, begin_ns: int) -> Silence:
    """A silence as a person asks for it: ``rules``, ``families``, ``runs`` (lists), ``up_to``, ``seconds``, ``comment``.

    Raises ``InputError`` that names the value and what it must be.
    """
    seconds = data.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST_S:
        raise InputError(f"a silence lasts from 1 to {LONGEST_S:,} seconds, not {str(seconds)[:50]!r}")
    comment = data.get("comment")
    if not isinstance(comment, str) or not comment.strip():
        raise InputError("a silence needs a comment: whoever comes next asks why")
    up_to = data.get("up_to", Severity.WARNING.value)
    if up_to not in [severity.value for severity in Severity]:
        raise InputError(f"up_to must be info, warning or critical, not {str(up_to)[:50]!r}")
    patterns = {name: _patterns(name, data.get(name, ())) for name in ("rules", "families", "runs")}
    return Silence(
        identifier, by, comment.strip()[:MAX_COMMENT], begin_ns, begin_ns + round(seconds * _SECOND_NS), **patterns, up_to=Severity(up_to)
    )  # fmt: skip


class Silences:
    """Those of one run, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Silence] = {}

    def add(self, silence: Silence) -> None:
        """Raises ``InputError`` when there are too many."""
        if silence.id not in self._known and len(self._known) >= MAX_SILENCES:
            raise InputError(f"there are {MAX_SILENCES} silences already; end one of them first")
        self._known[silence.id] = silence

    def remove(self, identifier: str) -> Silence:
        """End one now. Raises ``InputError`` when there is none of that id (its first eight characters will do)."""
        found = [
            one
            for one in self._known.values()
            if one.id == identifier or (len(identifier) >= 8 and one.id.startswith(identifier))
        ]
        if len(found) != 1:
            raise InputError(f"there is no silence {identifier[:100]!r} now; see `python -m trainvitals incident list`")
        return self._known.pop(found[0].id)

    def expire(self, now_ns: int) -> list[Silence]:
        """Take away those whose time is over, and return them."""
        over = [silence for silence in self._known.values() if now_ns >= silence.until_ns]
        for silence in over:
            del self._known[silence.id]
        return over

    def covering(self, incident: Incident, now_ns: int) -> Silence | None:
        """The one that lasts longest of those that cover the incident."""
        fitting = [silence for silence in self._known.values() if silence.covers(incident, now_ns)]
        return max(fitting, key=lambda silence: silence.until_ns, default=None)

    @property
    def all(self) -> tuple[Silence, ...]:
        return tuple(self._known.values())

    def to_state(self) -> list[dict[str, Any]]:
        """JSON values only."""
        return [silence.to_mapping() for silence in self._known.values()]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Continue where ``to_state`` was taken."""
        self._known = {one.id: one for one in (Silence.from_mapping(data) for data in state)}


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _patterns(name: str, raw: object) -> tuple[str, ...]:
    if not isinstance(raw, (list, tuple)) or len(raw) > MAX_PATTERNS:
        raise InputError(f"{name} must be a list of at most {MAX_PATTERNS} names or patterns")
    for one in raw:
        if not isinstance(one, str) or not 0 < len(one) <= MAX_PATTERN or not one.isprintable():
            raise InputError(f"{name}: {str(one)[:50]!r} is no name or pattern")
    return tuple(raw)
