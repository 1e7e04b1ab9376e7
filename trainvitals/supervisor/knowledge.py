"""What the store knows of a run when it must be started again: incidents, findings, nodes with a fault. Read only, within a time.

The supervisor works without it: then it goes by the pages of incidents that the watchdog writes into the run directory, and by where it
saw itself that the loss was no number.
"""

from __future__ import annotations

import json
import os
import queue
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainvitals.errors import TrainvitalsError
from trainvitals.incidents import kept_pages
from trainvitals.incidents.grouping import finding_from_mapping, incident_from_mapping
from trainvitals.incidents.static_page import file_name
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.supervisor.history import Start

if TYPE_CHECKING:
    from trainvitals.store.protocol import Store

_Found = TypeVar("_Found")

WITHIN_NS = 30 * 86_400 * 10**9
NODES_WITHIN_NS = 180 * 10**9
MAX_EVENTS = 2_000
BUDGET_S = 15.0
#: Of the pages of incidents, when the store does not answer.
MAX_PAGES = 50
MAX_PAGE_BYTES = 4 << 20
_FAULTY = frozenset({"fail", "silent", "lost"})


@dataclass(frozen=True)
class Known:
    """trouble: why the store could not be asked, "" = it was. faulty_nodes: of those that reported lately."""

    incidents: tuple[Incident, ...] = ()
    findings: tuple[Finding, ...] = ()
    faulty_nodes: int = 0
    trouble: str = ""


def ask(
    open_store: Callable[[], Store] | None, run: str, now_ns: int, budget_s: float = BUDGET_S, *, run_dir: str = ""
) -> Known:  # fmt: skip
    """Never raises, and never waits longer: a store that is down must not keep a trainer from starting. run_dir: whose pages of incidents
    are read when the store does not answer; "" = none."""
    known = _of_store(open_store, run, now_ns, budget_s)
    return known if not known.trouble or not run_dir else replace(of_pages(run_dir), trouble=known.trouble)


def of_pages(run_dir: str) -> Known:
    """What the run's watchdog wrote of its incidents, the newest ones; what cannot be read is not there."""
    place = Path(run_dir) / "incidents"
    listed = sorted(kept_pages.incidents_of(_page(place / "index.json")), key=lambda one: one.opened_at_ns, reverse=True)[
        :MAX_PAGES
    ]
    findings = [found for one in listed for found in kept_pages.page_of(_page(place / f"{file_name(one.id)}.json")).findings]
    return Known(tuple(listed), tuple(findings))


def open_critical(run_dir: str) -> str:
    """Title of a critical incident that the run's watchdog has open, the newest; "" = none, or it wrote none."""
    listed = kept_pages.incidents_of(_page(Path(run_dir) / "incidents" / "index.json"))
    grave = [one for one in listed if one.is_open and one.severity is Severity.CRITICAL]
    newest = max(grave, key=lambda one: one.opened_at_ns, default=None)
    return "" if newest is None else (newest.title or ", ".join(newest.rules))[:300]


def _page(path: Path) -> dict[str, Any]:
    """Never blocks on a pipe, never follows a link, never reads more than a page has."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            told = json.loads(file.read(MAX_PAGE_BYTES)) if is_file else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _of_store(open_store: Callable[[], Store] | None, run: str, now_ns: int, budget_s: float) -> Known:
    if open_store is None:
        return Known()
    answers: queue.Queue[Known] = queue.Queue()

    def work() -> None:
        try:
            answers.put(_ask(open_store, run, now_ns))
        except TrainvitalsError as error:
            answers.put(Known(trouble=str(error)))
        except Exception as error:  # noqa: BLE001 (a library's fault is told, and the start goes on without the store)
            answers.put(Known(trouble=f"{type(error).__name__}: {error}"[:300]))

    threading.Thread(target=work, name="ask the store", daemon=True).start()
    try:
        return answers.get(timeout=budget_s)
    except queue.Empty:
        return Known(trouble=f"the store did not answer within {budget_s:g} s")


def _ask(open_store: Callable[[], Store], run: str, now_ns: int) -> Known:
    store = open_store()
    try:
        begin_ns, end_ns = now_ns - WITHIN_NS, now_ns + 60 * 10**9
        events = store.events(run, ["incident", "finding"], begin_ns, end_ns, limit=MAX_EVENTS, newest_first=True)
        nodes = store.latest("node", ["state"], {}, NODES_WITHIN_NS, now_ns)
        faulty = int(nodes["state"].isin(_FAULTY).sum()) if "state" in nodes else 0
        return Known(
            tuple(_newest(events, "incident", incident_from_mapping)),
            tuple(_newest(events, "finding", finding_from_mapping)),
            faulty,
        )
    finally:
        store.close()


def _newest(events: Sequence[Event], kind: str, read: Callable[[Mapping[str, Any]], _Found]) -> list[_Found]:
    """The newest state of each; one that cannot be read is none of ours."""
    found: dict[str, _Found] = {}
    for event in events:
        if event.kind != kind or str(event.data.get("id")) in found:
            continue
        try:
            found[str(event.data["id"])] = read(event.data)
        except (KeyError, TypeError, ValueError):
            continue
    return list(found.values())


def own_incidents(run: str, starts: Sequence[Start]) -> list[Incident]:
    """One for each start that ended while its loss was no number: the onset that the supervisor itself saw."""
    return [
        Incident(
            id=f"{run}/supervisor/{start.number}", run=run, family="loss", severity=Severity.CRITICAL, rules=("loss_nonfinite",),
            finding_ids=(), first_step=start.nonfinite_step, last_step=None, opened_at_ns=start.ended_ns, updated_at_ns=start.ended_ns,
            closed_at_ns=None, title="the loss was no number", message="the loss was no number when the trainer ended",
        )
        for start in starts
        if start.nonfinite_step is not None and start.ended_ns is not None
    ]  # fmt: skip
