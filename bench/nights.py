"""How often people are woken: thirty simulated days of a large run with a supervisor, through detectors, incidents and policy.

    python bench/nights.py [--days 30] [--seeds 3]

Interruptions come as often as on Llama 3 405B (419 unexpected and 47 planned ones in 54 days), 1 in 10 of them a hang as among ByteDance's
jobs (9.9 %), 3 of 419 such that no restart leads on without a person; a 20 % slow stretch for every 0.8 %, a NaN for every 0.3 %;
a loss spike that heals by itself every three days and one that does not every ten. Of the restarts 1 in 100 stays stuck before its first
step until the supervisor ends it, 1 in 150 loses its supervisor. What a person does takes half an hour. Everything is made up from a
seed; time is simulated. Writes a table for people, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainvitals.clock import ManualClock
from trainvitals.control.view import unreadable
from trainvitals.detect.engine import Engine
from trainvitals.incidents.engine import IncidentEngine
from trainvitals.records import Event, Severity, Step
from trainvitals.settings import parse
from trainvitals.watch.alert_facts import AlertFacts, Seen
from trainvitals.watch.alerting import Alerting

STEP_S = 10.0
SAVE_EVERY = 100
HANG_S = 1800.0
TICK_S = 15.0
PERSON_S = 1800.0
NIGHT_HOURS = range(0, 8)
UNEXPECTED_A_DAY, PLANNED_A_DAY = 419 / 54, 47 / 54
HANGS, HOPELESS, SLOW, NANS = 0.099, 3 / 419, 0.008, 0.003
STUCK, ORPHANED = 1 / 100, 1 / 150
FIRST_STEP_S = 3600.0
#: Seconds of the phases of a restart: median; together about 6 minutes.
PHASES_S = {"start": 120.0, "load": 150.0, "first_step": 70.0}
SPREAD = 0.5
HEALING_SPIKE_DAYS, BAD_SPIKE_DAYS = 3.0, 10.0


@dataclass
class Box:
    """What people were told."""

    told: list[tuple[int, Any]] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)

    def enqueue(self, notice: Any, target: str, not_before_ns: int = 0) -> bool:
        self.told.append((self.clock.time_ns(), notice))
        return True


class Days:
    """One run from start to end of the simulated days."""

    def __init__(self, days: float, seed: int) -> None:
        self.chance, self.clock, self.days = random.Random(seed), ManualClock(1_800_000_000 * 10**9), days
        self.box = Box(clock=self.clock)
        settings = parse(
            {
                "runs": [{"name": "r", "dir": "/nowhere", "gpus": 16_384}],
                "alerts": {"targets": {"pager": {"kind": "webhook", "url": "https://pager.example", "repeat_s": 0}}},
            }
        )
        run = settings.runs[0]
        facts = AlertFacts(settings, run, lambda run_dir, now_ns: unreadable("not simulated"))
        self.alerting = Alerting(settings, run, self.box, self.clock, lambda text: None, facts=facts)
        self.detect, self.incidents = Engine("r"), IncidentEngine("r")
        self.step, self.attempt, self.saved = 0, 0, 0
        self.happened: Counter[str] = Counter()
        self.needed: list[tuple[int, int]] = []  # when a person was needed: from, to
        self.excess = 0.0
        self.is_supervised = True
        self.took: dict[str, list[float]] = {name: [] for name in PHASES_S}

    def tell(self, record: Step | Event) -> None:
        self.alerting.take(record)
        if isinstance(record, Event):
            self.incidents.hear(record)
        else:
            self.incidents.stepped(record.attempt)
        self.found(self.detect.update(record))

    def found(self, findings: Any) -> None:
        now_ns = self.clock.time_ns()
        self.incidents.advance(now_ns)
        for finding in findings:
            self.incidents.add(finding, now_ns)
            self.alerting.found(finding)

    def look(self) -> None:
        now_ns = self.clock.time_ns()
        self.incidents.advance(now_ns)
        changes = self.incidents.take_changes(now_ns, is_supervised=self.is_supervised)
        self.alerting.poll(changes, self.incidents.open_incidents, Seen(self.step, now_ns, STEP_S), now_ns)
        self.alerting.flush()

    def wait(self, seconds: float) -> None:
        """Nothing is made, and the watchdog looks all the same."""
        end_ns = self.clock.time_ns() + round(seconds * 1e9)
        while self.clock.time_ns() < end_ns:
            self.clock.advance(TICK_S)
            self.found(self.detect.tick(self.clock.time_ns()))
            self.look()

    def event(self, kind: str, text: str = "", severity: Severity = Severity.INFO, **data: Any) -> None:
        now_ns = self.clock.time_ns()
        self.tell(
            Event(kind, now_ns, step=self.step, attempt=self.attempt or None, id=f"{kind}/{now_ns}", severity=severity, text=text, data=data)
        )  # fmt: skip

    def start(self) -> None:
        self.attempt += 1
        self.event("attempt_start", attempt=self.attempt, resumed_from_step=self.saved)
        if self.attempt > 1:
            self.tell(Event("resume", self.clock.time_ns(), step=self.saved, attempt=self.attempt, id=f"resume/{self.attempt}"))
        self.step, self.excess = self.saved, 0.0

    def make(self, seconds: float, *, slow: float = 1.0, loss_of: Any = None) -> None:
        """Train for so long."""
        end_ns = self.clock.time_ns() + round(seconds * 1e9)
        while self.clock.time_ns() < end_ns:
            took_s = STEP_S * slow * (1 + abs(self.chance.gauss(0, 0.01)))
            self.clock.advance(took_s)
            self.step += 1
            noise = self.chance.gauss(0, 0.012) * (1 if self.chance.random() > 0.002 else 6)
            loss = 1.9 + 8.5 * (1 + self.step / 60) ** -0.42 + noise + self.excess
            value = loss if loss_of is None else loss_of(loss)
            norm = 0.3 * (1 + abs(self.chance.gauss(0, 0.15))) * (1 + 8 * self.excess)
            finite = {} if value is None else {"loss": value}
            self.tell(
                Step(self.step, self.attempt, self.clock.time_ns(), {**finite, "grad_norm": norm, "tokens_per_s": 16e6 / took_s * STEP_S},
                     {} if value is not None else {"loss": "nan"})
            )  # fmt: skip
            if self.step % SAVE_EVERY == 0:
                self.saved = self.step
            if self.step % 2 == 0:
                self.found(self.detect.tick(self.clock.time_ns()))
            self.look()

    def person(self, what: str) -> Iterator[None]:
        """What only a person ends: the caller goes on when it has been done."""
        begun_ns = self.clock.time_ns()
        yield
        self.needed.append((begun_ns, self.clock.time_ns()))
        self.happened[what] += 1

    def die(self, reason: str) -> None:
        self.event("supervisor", state="ending")
        self.event("attempt_end", text=reason, attempt=self.attempt, reason=reason, exit_code=1)
        self.event("supervisor", state="ended")

    def usual_s(self) -> dict[str, float | None]:
        """As the supervisor tells it: medians of the newest ten."""
        return {name: median(times[-10:]) if times else None for name, times in self.took.items()}

    def mend(self) -> None:
        """The supervisor starts it again, until it makes steps."""
        while True:
            self.wait(self.chance.lognormvariate(math.log(20), SPREAD))
            self.event("supervisor", state="started", usual_s=self.usual_s(), hang_s=HANG_S)
            draw = self.chance.random()
            if draw < STUCK:
                self.happened["restart that is stuck, ended by the supervisor"] += 1
                self.wait(FIRST_STEP_S)
                self.event("supervisor", state="ending")
                self.event("supervisor", state="ended")
                continue
            if draw < STUCK + ORPHANED:
                for _ in self.person("the supervisor is gone"):
                    self.is_supervised = False
                    self.wait(PERSON_S)
                    self.is_supervised = True
                    self.event("supervisor", state="adopted", hang_s=HANG_S)
                    self.event("supervisor", state="started", usual_s=self.usual_s(), hang_s=HANG_S)
            for name, usual_s in PHASES_S.items():
                took_s = self.chance.lognormvariate(math.log(usual_s), SPREAD)
                self.wait(took_s)
                self.took[name].append(took_s)
                self.event("supervisor", state="phase", phase=name, seconds=took_s)
            return

    def interrupt(self) -> None:
        """One unexpected interruption."""
        draw = self.chance.random()
        if draw < HOPELESS:
            for _ in self.person("no restart leads on"):
                self.die("crashed")
                self.wait(60)
                self.event("supervisor", "not starting it again: no healthy node is left", Severity.CRITICAL, state="held", reason="no healthy node is left")  # fmt: skip
                self.wait(PERSON_S)
                self.event("supervisor", "released", state="released")
        elif draw < HOPELESS + HANGS:
            self.happened["hang, ended by the supervisor"] += 1
            self.wait(HANG_S)
            self.die("hang")
            self.mend()
        elif draw < HOPELESS + HANGS + SLOW:
            self.happened["20 % slow for two hours"] += 1
            self.make(7_200, slow=1.25)
            return
        elif draw < HOPELESS + HANGS + SLOW + NANS:
            for _ in self.person("NaN"):
                self.make(PERSON_S, loss_of=lambda loss: None)
                self.event("attempt_end", attempt=self.attempt, reason="cancelled")
                self.wait(120)
        else:
            self.happened["death, mended by the supervisor"] += 1
            self.die("crashed")
            self.mend()
        self.start()

    def spike(self, *, heals: bool) -> None:
        if heals:
            self.happened["spike that heals"] += 1
            for height in (0.2, 0.6, 0.9, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03):
                self.excess = height
                self.make(STEP_S * 2)
            self.excess = 0.0
            return
        for _ in self.person("divergence"):
            for minute in range(int(PERSON_S / 60)):
                self.excess = min(0.7, 0.1 + 0.05 * minute)
                self.make(60)
            self.event("attempt_end", attempt=self.attempt, reason="cancelled")
            self.saved = max(0, self.saved - 300)
            self.wait(300)
        self.start()

    def run(self) -> None:
        end_ns = self.clock.time_ns() + round(self.days * 86_400e9)
        self.event("supervisor", state="started", usual_s=self.usual_s(), hang_s=HANG_S)
        self.start()
        self.make(6 * 3600)
        rates = {
            "interrupt": UNEXPECTED_A_DAY, "planned": PLANNED_A_DAY, "heals": 1 / HEALING_SPIKE_DAYS, "diverges": 1 / BAD_SPIKE_DAYS,
        }  # fmt: skip
        while self.clock.time_ns() < end_ns:
            self.make(self.chance.expovariate(sum(rates.values())) * 86_400)
            what = self.chance.choices(list(rates), list(rates.values()))[0]
            if what == "interrupt":
                self.interrupt()
            elif what == "planned":
                self.happened["planned stop"] += 1
                self.event("attempt_end", attempt=self.attempt, reason="cancelled")
                self.wait(600)
                self.start()
            else:
                self.spike(heals=what == "heals")

    def result(self) -> dict[str, Any]:
        slack_ns = 15 * 60 * 10**9
        pages = [(at_ns, one) for at_ns, one in self.box.told if one.kind.value in ("opened", "escalated", "reopened")]
        useful = [one for at_ns, one in pages if any(a <= at_ns <= b + slack_ns for a, b in self.needed)]
        unheard = sum(not any(a <= at_ns <= b + slack_ns for at_ns, _ in pages) for a, b in self.needed)
        waits = [min((at_ns - a for at_ns, _ in pages if a <= at_ns <= b + slack_ns), default=0) / 1e9 for a, b in self.needed]
        night = sum((at_ns // 3_600_000_000_000) % 24 in NIGHT_HOURS for at_ns, _ in pages)
        return {
            "days": self.days, "pages": len(pages), "pages_at_night": night, "needed_a_person": len(useful),
            "a_person_was_needed": len(self.needed), "and_nobody_was_told": unheard,
            "longest_until_told_s": round(max(waits, default=0)),
            "pages_by_rule": dict(Counter(one.rule for _, one in pages)), "summaries": sum(n.kind.value == "summary" for _, n in self.box.told),
            "happened": dict(self.happened),
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    results = []
    for seed in range(options.seeds):
        begun_s = time.monotonic()
        days = Days(options.days, seed)
        days.run()
        results.append({"seed": seed, **days.result(), "took_s": round(time.monotonic() - begun_s, 1)})
        one = results[-1]
        print(
            f"seed {seed}: {sum(one['happened'].values())} events in {options.days:g} days; {one['pages']} pages, "
            f"{one['pages'] / options.days:.2f} a day, {one['pages_at_night']} between 00 and 08; {one['needed_a_person']} needed a person; "
            f"{one['and_nobody_was_told']} of {one['a_person_was_needed']} troubles that needed one were not told, the others within {one['longest_until_told_s']} s"
        )  # fmt: skip
        print(f"        happened: {one['happened']}\n        pages: {one['pages_by_rule']}", flush=True)
    print(json.dumps(results))
    return 1 if any(one["and_nobody_was_told"] for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
