"""Made-up runs that save: steps, what the trainer says of its saves, what is found on disk, and ticks (whole numbers), in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from made_up import SECOND, START_NS, last_states

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step

RULES = {
    "checkpoint_corrupt", "checkpoint_no_optimizer", "checkpoint_stuck", "checkpoint_overdue", "checkpoint_blocking",
    "checkpoint_too_few_verified", "resume_behind",
}  # fmt: skip
Item = Step | Event | int


def at(second: float) -> int:
    return START_NS + round(second * SECOND)


def step(number: int, second: float | None, attempt: int = 1) -> Step:
    return Step(number, attempt, None if second is None else at(second), {"loss": 2.0 + 1 / (1 + number)})


def told(state: str, number: int, second: float, path: str | None = None, **data: Any) -> Event:
    """A ``save`` event of the hook."""
    data |= {"state": state, "path": path or f"/c/checkpoint-{number}"}
    return Event("save", at(second), step=number, attempt=1, data=data)


def phase(state: str, number: int | None, second: float | None, name: str = "checkpoint") -> Event:
    return Event("phase", None if second is None else at(second), step=number, data={"phase": name, "state": state})


def report(number: int | None, state: str = "verified", second: float = 0.0, **changes: Any) -> Event:
    """A ``checkpoint`` event of ``watch``; ``written``: seconds at which its files were last written."""
    written = changes.pop("written", second)
    data: dict[str, Any] = {
        "path": f"/c/checkpoint-{number}", "step": number, "format": "huggingface", "state": state, "level": None,
        "has_optimizer": True, "files": 5, "bytes": 1000, "reasons": [], "modified_at_ns": at(written),
    }  # fmt: skip
    return Event("checkpoint", at(second), step=number, data=data | changes)


def pointer(path: str | None, number: int | None, second: float, problem: str = "", directory: str = "/c") -> Event:
    data = {"directory": directory, "path": path, "step": number, "how": "latest", "problem": problem}
    return Event("pointer", at(second), step=number, data=data)


def start(attempt: int, second: float, resumed_from: int | None = None) -> Event:
    data: dict[str, Any] = {"attempt": attempt} | ({} if resumed_from is None else {"resumed_from_step": resumed_from})
    return Event("attempt_start", at(second), attempt=attempt, data=data)


def steps(first: int, last: int, second: float, step_s: float = 1.0, attempt: int = 1, every: int = 1) -> Iterator[Step]:
    for k, number in enumerate(range(first, last + 1, every)):
        yield step(number, second + k * every * step_s, attempt)


def findings(items: Iterable[Item], *, tunables: Any = None, end: bool = True, restart_each: int = 0) -> list[Finding]:
    """Findings on checkpoints in their last state. restart_each: the state goes through JSON after so many items."""
    engine = Engine("r", tunables or {})
    found: list[Finding] = []
    for count, item in enumerate(items):
        found += engine.tick(item) if isinstance(item, int) else engine.update(item)
        if restart_each and count % restart_each == 0:
            state = json.loads(json.dumps(engine.to_state()))
            engine = Engine("r", tunables or {})
            engine.restore(state)
    found += engine.finish() if end else []
    return [finding for finding in last_states(found) if finding.rule in RULES]


def alarms(found: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(f.rule, f.severity.value, f.message) for f in found if f.severity is not Severity.INFO]


def of(found: Iterable[Finding], rule: str) -> list[Finding]:
    return [finding for finding in found if finding.rule == rule]


def live_run(
    last_step: int = 1000, every: int = 100, *, keep: int = 3, save_s: float = 2.0, step_s: float = 1.0, says: str = "save",
    is_watched: bool = True, scan_s: float = 10.0, is_async: bool = False, verify_s: float = 20.0, stop_saving_after: int = 10**9,
    first_step: int = 1, attempt: int = 1, second: float = 0.0, existing: Iterable[int] = (),
) -> list[Item]:  # fmt: skip
    """A run that is watched live: ticks each second, scans each ten, saves that block (or not), rotation that keeps ``keep``."""
    timeline: list[tuple[float, int, Item]] = []
    order = iter(range(10**9))

    def put(when: float, item: Item) -> None:
        timeline.append((when, next(order), item))

    kept = list(existing)
    now = second
    for number in range(first_step, last_step + 1):
        now += step_s
        put(now, step(number, now, attempt))
        if number % every or number > stop_saving_after:
            continue
        done = now + save_s
        blocked_s = 0.2 if is_async else save_s
        if says == "save":
            put(now, told("begun", number, now))
            put(now + blocked_s, told("staged", number, now + blocked_s, blocked_s=blocked_s))
            put(done, told("persisted", number, done, blocked_s=blocked_s, persisted_s=save_s))
        elif says == "phase":
            put(now, phase("begin", number, now))
            put(done, phase("end", number, done))
        elif says == "ends":
            put(done, phase("end", number, done))
        elif says == "begins":
            put(now, phase("begin", number, now))
        if is_watched:
            seen = (now // scan_s + 1) * scan_s
            if seen < done:
                put(seen, report(number, "writing", seen, written=now))
            seen = (done // scan_s + 1) * scan_s
            put(seen, report(number, "complete", seen, written=done))
            put(seen + verify_s, report(number, "verified", seen + verify_s, written=done))
            kept.append(number)
            while len(kept) > keep:
                gone = kept.pop(0)
                put(seen + 1, report(gone, "deleting", seen + 1))
                put(seen + 1 + scan_s, report(gone, "deleted", seen + 1 + scan_s))
        now += blocked_s
    for tick in range(int(second), int(now) + 1):
        put(tick + 0.5, at(tick + 0.5))
    return [item for _, _, item in sorted(timeline, key=lambda entry: entry[:2])]


def without(number: int, second: float) -> Event:
    return report(number, "verified", second, has_optimizer=False)


def troubles() -> list:
    run = live_run(280, 40, keep=1, save_s=4)
    run += [report(280, "corrupt", 900), pointer("/c/checkpoint-240", 240, 900), without(250, 910), at(910), at(2800)]
    run += [told("begun", 290, 2801), at(9000), start(2, 9100, 100), *steps(101, 130, 9110, attempt=2)]
    return run
