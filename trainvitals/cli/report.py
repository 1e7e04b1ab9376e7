"""``report RUN --incident ID -o FILE.html``: one incident out of the store as one HTML file that stands alone.

It holds what the incidents page shows: curves around the moment, checks in their order, findings, what happened around it. Exit codes:
0 written, 2 wrong usage, no such incident, or a store that does not answer.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from trainvitals import settings as settings_module
from trainvitals.alerts.compose import incident_link
from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.incidents.static_page import IncidentPage, to_html, to_json
from trainvitals.incidents.static_page_curve import Curve
from trainvitals.records import Incident
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Store
from trainvitals.web.assemble import run_view
from trainvitals.web.incident import incident_story
from trainvitals.web.incident_then import attempts_in, read_then
from trainvitals.web.nodes_then import nodes_at, outside_at
from trainvitals.web.process import read_control
from trainvitals.web.view import RunView

METRICS = ("loss", "grad_norm", "lr", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s")
#: Time shown before and after, at least; and rows read, so that an incident of weeks is one small file, too.
AROUND_NS = 30 * 60 * 10**9
MAX_ROWS = 20_000
MAX_POINTS = 4_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit code 0: written. 2: wrong usage, no such incident, or a store that does not answer."
    parser.add_argument("run_name", metavar="RUN", help="name of the run in the settings, or in the store")
    parser.add_argument(
        "--incident", metavar="ID", help="its id, or a unique beginning of it; default: the newest one of the run"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="file to write: .html, or .json for the same as data"
    )
    parser.add_argument("--config", metavar="FILE", help="settings file (default: as everywhere)")


def run(args: argparse.Namespace) -> int:
    """Raises ``TrainvitalsError`` for what cannot be read or written."""
    settings = settings_module.load(args.config)
    run_settings = next((one for one in settings.runs if one.name == args.run_name), RunSettings(name=args.run_name))
    clock = SystemClock()
    store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    try:
        page = build(settings, run_settings, store, args.incident or "", clock)
    finally:
        store.close()
    path = Path(args.output)
    _write(path, to_json(page) if path.suffix == ".json" else to_html(page))
    print(f"{path}: {page.incident.id}, {path.stat().st_size:,} bytes.", file=sys.stderr)  # noqa: T201
    return 0


def build(settings: Settings, run_settings: RunSettings, store: Store, incident_id: str, clock: Clock) -> IncidentPage:
    """Everything that the page tells. Raises ``TrainvitalsError`` when there is no such incident, and what the store raises."""
    now_ns = clock.time_ns()
    view = run_view(settings, store, run_settings, read_control(run_settings, now_ns), now_ns)
    incident = _named(view, incident_id)
    name, opened_ns = run_settings.name, incident.opened_at_ns
    then = read_then(store, name, incident, view.findings)
    then = replace(then, nodes=nodes_at(store, opened_ns), events=(*then.events, *outside_at(store, name, opened_ns)))
    view = replace(view, thens={incident.id: then})
    story = incident_story(view, (), incident)
    link = incident_link(settings.dashboard.public_url, incident, view.last_step)
    return IncidentPage(
        incident, now_ns, story.symptom.name, story.suspect, story.action, _facts(view, story.nodes_then), story.checks, story.findings, story.near,
        _curves(store, run_settings.name, incident, attempts_in(incident, view.findings), now_ns), link,
    )  # fmt: skip


def _named(view: RunView, incident_id: str) -> Incident:
    if not incident_id:
        if not view.incidents:
            raise TrainvitalsError(f"The store knows no incident of the run {view.name!r}.")
        return max(view.incidents, key=lambda one: one.opened_at_ns)
    found = [one for one in view.incidents if one.id == incident_id] or [
        one for one in view.incidents if one.id.startswith(incident_id)
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(one.id for one in view.incidents[:5]) or "none"
    what = "Several incidents begin" if found else "No incident of this run begins"
    raise TrainvitalsError(f"{what} with {incident_id[:100]!r}. The store knows: {known}.")


def _facts(view: RunView, nodes_then: str) -> tuple[tuple[str, str], ...]:
    safe = view.recommended
    level = f", verified: {safe.level.value}" if safe is not None and safe.level is not None else ""
    where = f"step {safe.step:,}{level}: {safe.path}" if safe is not None and safe.step is not None else view.rollback.why
    verdict = view.verdict
    return (
        ("Safe checkpoint", where), ("Newest step", f"step {view.last_step:,}" if view.last_step is not None else "none is stored"),
        ("Run now", f"{verdict.word.value}: {verdict.headline}"), ("Done by itself", verdict.automatic), ("To decide", verdict.decision),
        ("Trainer", view.control.sentence), ("Nodes when it began", nodes_then),
    )  # fmt: skip


def _curves(store: Store, run: str, incident: Incident, attempts: frozenset[int], now_ns: int) -> tuple[Curve, ...]:
    end_ns = incident.closed_at_ns if incident.closed_at_ns is not None else now_ns
    long_ns = max(AROUND_NS, end_ns - incident.opened_at_ns)
    frame = store.raw(
        "train", ["step", *METRICS, *(f"{name}_nf" for name in METRICS)], {"run": run}, incident.opened_at_ns - long_ns, end_ns + long_ns,
        limit=MAX_ROWS, newest_first=True,
    )  # fmt: skip
    if frame.empty or "step" not in frame:
        return ()
    # Of a step that was made twice the last one counts, but what a later start made of it is no part of the incident.
    is_later = frame["time_ns"] > end_ns
    if attempts:
        is_later |= pd.to_numeric(frame["attempt"], errors="coerce") > max(attempts)
    ranked = frame.assign(is_own=~is_later).sort_values(["is_own", "time_ns"])
    frame = ranked.drop_duplicates("step", keep="last").sort_values("step")
    curves = [_curve(frame, name) for name in METRICS if name in frame]
    pace = [curve for curve in curves if curve.points and curve.name in METRICS[3:]][:1]
    return (*(curve for curve in curves if curve.points and curve.name in METRICS[:3]), *pace)


def _curve(frame: pd.DataFrame, name: str) -> Curve:
    pairs = zip(frame["step"], frame[name], strict=True)
    points = _thinned([(int(step), float(value)) for step, value in pairs if math.isfinite(value)])
    bad: Sequence[int] = ()
    if f"{name}_nf" in frame:
        bad = [int(step) for step in frame.loc[frame[f"{name}_nf"].fillna(0) > 0, "step"]][:MAX_POINTS]
    return Curve(name, tuple(points), tuple(bad))


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most ``MAX_POINTS``: of neighbours the lowest and the highest, so that a spike of one step is still there."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = -(-2 * len(points) // MAX_POINTS)
    kept: list[tuple[int, float]] = []
    for begin in range(0, len(points), size):
        some = points[begin : begin + size]
        kept += sorted({min(some, key=lambda point: point[1]), max(some, key=lambda point: point[1])})
    return kept


def _write(path: Path, text: str) -> None:
    """Whole or not at all. Raises ``InputError`` when the place refuses."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"Cannot write into {path.parent}: {error.strerror or error}. Name another place with -o.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise InputError(f"Cannot write {path}: {error.strerror or error}. Name another place with -o.") from error
