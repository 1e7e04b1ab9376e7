"""Trouble that comes again and again while the training goes on, each time as an incident of its own: told less and less often. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainvitals.incidents.suppression import NO_STEPS
from trainvitals.records import Incident, Severity

#: So many times within ``FORGOTTEN_NS`` are told at once; each one after that waits twice as long since the one before.
AT_ONCE = 2
LONGEST_NS = 30 * 60 * 10**9
FORGOTTEN_NS = 60 * 60 * 10**9
#: What always needs somebody at once: no step is made, or the breaker decides.
NEVER_LATER = NO_STEPS | {"breaker_trip"}
_MAX_KEPT = 100


class Pacing:
    """Of one run."""

    def __init__(self) -> None:
        #: family/rule: how often, when last, the gravest, the newest incident
        self._told: dict[str, tuple[int, int, str, str]] = {}

    def is_soon(self, incident: Incident, rule: str, wait_ns: int, now_ns: int) -> bool:
        """Whether the same trouble, as grave, was told so lately that it may wait. wait_ns: how long an end must last."""
        count, last_ns, gravest, _ = self._told.get(_key(incident, rule), (0, 0, Severity.INFO.value, ""))
        if count < AT_ONCE or NEVER_LATER & {rule, *incident.rules} or incident.severity.rank > Severity(gravest).rank:
            return False
        return 0 <= now_ns - last_ns < min(wait_ns << min(count - 1, 8), LONGEST_NS)

    def told(self, incident: Incident, rule: str, now_ns: int, *, is_return: bool = False) -> None:
        """It was told. is_return: it had been over; that the same incident became graver is no second coming."""
        key = _key(incident, rule)
        count, last_ns, gravest, newest = self._told.pop(key, (0, now_ns, Severity.INFO.value, ""))
        if not 0 <= now_ns - last_ns < FORGOTTEN_NS:
            count, gravest, newest = 0, Severity.INFO.value, ""
        worst = max(Severity(gravest), incident.severity, key=lambda severity: severity.rank)
        count += is_return or newest != incident.id
        self._told[key] = (count, now_ns, worst.value, incident.id)
        while len(self._told) > _MAX_KEPT:
            del self._told[next(iter(self._told))]

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {key: list(one) for key, one in self._told.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._told = {
            str(key): (int(count), int(last_ns), Severity(gravest).value, str(newest[0]) if newest else "")
            for key, (count, last_ns, gravest, *newest) in state.items()
        }


def _key(incident: Incident, rule: str) -> str:
    return f"{incident.family}/{rule}"
