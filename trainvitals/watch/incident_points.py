"""The newest points of the curves that an incident's page shows, in memory: the store may be away when it is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from trainvitals.incidents.static_page_curve import Curve
from trainvitals.records import Incident, Step

METRICS = ("loss", "grad_norm", "lr")
#: Of these the first that the run tells.
PACE = ("tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s")
MAX_POINTS = 4_000
#: Steps before the onset that are shown, at least; an incident that lasted longer shows as many as it lasted.
BEFORE_STEPS = 200


class IncidentPoints:
    """``take`` is fed every step, ``around`` gives the curves around an incident."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[int, float]]] = {}
        self._bad: dict[str, deque[int]] = {}

    def take(self, step: Step) -> None:
        """A step of the trainer."""
        pace = next((name for name in PACE if name in step.values), "")
        for name in (*METRICS, pace):
            if name in step.values:
                self._points.setdefault(name, deque(maxlen=MAX_POINTS)).append((step.step, step.values[name]))
            elif name in step.nonfinite:
                self._bad.setdefault(name, deque(maxlen=MAX_POINTS)).append(step.step)

    def around(self, incident: Incident) -> tuple[Curve, ...]:
        """Of each metric the points around the incident; a step that was made twice as it was made last."""
        onset = incident.first_step
        first = last = None
        if onset is not None:
            long = BEFORE_STEPS if incident.last_step is None else max(BEFORE_STEPS, incident.last_step - onset)
            first, last = onset - long, None if incident.last_step is None else incident.last_step + long
        names = sorted(self._points, key=lambda name: (*METRICS, *PACE).index(name))
        curves = []
        for name in names:
            points = sorted((s, v) for s, v in dict(self._points[name]).items() if _within(s, first, last))
            bad = sorted({s for s in self._bad.get(name, ()) if _within(s, first, last)})
            if points:
                curves.append(Curve(name, tuple(points), tuple(bad)))
        return tuple(curves)

    def fill(self, curves: Iterable[Mapping[str, object]]) -> None:
        """Points of a page that was written before a restart; what is none of ours is left out, and what was read since stays."""
        for curve in curves:
            name, points = curve.get("name"), curve.get("points")
            if name not in (*METRICS, *PACE) or not isinstance(points, list) or self._points.get(str(name)):
                continue
            kept = [(point[0], float(point[1])) for point in points[-MAX_POINTS:] if _is_point(point)]
            if kept:
                self._points[str(name)] = deque(kept, maxlen=MAX_POINTS)


def _within(step: int, first: int | None, last: int | None) -> bool:
    return (first is None or step >= first) and (last is None or step <= last)


def _is_point(raw: object) -> bool:
    if not isinstance(raw, list) or len(raw) != 2:
        return False
    return type(raw[0]) is int and abs(raw[0]) < 2**53 and type(raw[1]) in (int, float) and abs(raw[1]) < 1.7e308
