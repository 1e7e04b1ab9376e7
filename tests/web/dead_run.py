"""A stored run that died: the start before changed settings, the ends of its logs name a host, and it told validation losses.

Made up from a fixed seed; written through the public encoders only, as ``watch`` would have written it.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict
from pathlib import Path

from trainvitals.identity import step_time_ns
from trainvitals.incidents.grouping import Grouper
from trainvitals.incidents.postmortem import Cause, Postmortem, Reading
from trainvitals.records import Event, Finding, Point, Severity, Step
from trainvitals.store.encode import event_point, step_point
from trainvitals.store.protocol import Sink

RUN = "llama-night"
S = 10**9
STEP_S = 3.0
FIRST_END, RESTART_AT, LAST = 900, 801, 1_500
LINE = (
    "[rank12]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 4 has a total capacity of 79.11 GiB of which "
    "1.02 GiB is free. Process 1923 has 78.07 GiB memory in use."
)
CHANGES = (
    ("git", "commit", "1a2b3c4d5e6f70819203a4b5c6d7e8f901234567", "4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70", "warning"),
    ("config", "optimizer.lr", "3e-4", "4.5e-4", "warning"),
    ("config", "training.micro_batch_size", "1", "2", "warning"),
    (
        "config",
        "data.blend",
        "/data/web-2023:0.7 /data/books:0.2 /data/code:0.1 " * 3,
        "/data/web-2024:0.8 /data/books:0.2",
        "warning",
    ),
    ("packages", "torch", "2.9.0", "2.10.0", "warning"),
    ("environment", "NCCL_ALGO", None, "Ring", "warning"),
    ("config", "hub.token", None, "***", "info"),
    ("config", "logging.dir", "/runs/llama/logs-1", "/runs/llama/logs-2", "info"),
    ("job", "id", "88121", "88177", "info"),
    ("job", "partition", "gpu", "gpu-long", "info"),
)


def postmortem(died_ns: int, line: str = LINE, host: str = "node17") -> Postmortem:
    """What the ends of 64 logs said."""
    cause = Cause(
        "out_of_memory", "CUDA out of memory", line, host, 12, "node17/4/GPU-5d1c9a70-2f0e", died_ns - 37 * S,
        "/runs/llama/stderr/node17-12.err",
    )  # fmt: skip
    reading = Reading(64, 2, 3, 0, 1.24, ("/runs/llama/stderr/node03-2.err: Permission denied",))
    return Postmortem(
        2, cause, {"nccl_timeout": 62, "network": 3, "process_failed": 1}, 63, (), reading, "/runs/llama/tails/attempt-00002"
    )


def write_run(
    store: Sink, run_dir: Path, now_ns: int, *, run: str = RUN, line: str = LINE, host: str = "node17", is_read: bool = True
) -> None:
    """Fill ``store`` with a run that died two minutes before ``now_ns``. is_read: the ends of its logs have been read."""
    run_dir.mkdir(parents=True, exist_ok=True)
    died_ns = now_ns - 120 * S
    begun_ns = died_ns - round((FIRST_END + 60 + LAST - RESTART_AT) * STEP_S) * S

    def time_of(step: int, attempt: int) -> int:
        return begun_ns + round((step if attempt == 1 else FIRST_END + 50 + step - RESTART_AT) * STEP_S) * S

    points: list[Point] = []
    events: list[Event] = []
    for attempt, steps in ((1, range(1, FIRST_END + 1)), (2, range(RESTART_AT, LAST + 1))):
        noise = random.Random(attempt)
        started_ns = time_of(steps[0], attempt) - 45 * S
        events.append(
            Event("attempt_start", started_ns, step=steps[0], attempt=attempt, id=f"{run}/{attempt}/start", source="hook",
                  data={"attempt": attempt, "first_step": steps[0], "config_sha256": "ab" * 32})
        )  # fmt: skip
        events += metadata(run, attempt, started_ns + S)
        for step in steps:
            time_ns = time_of(step, attempt)
            loss = 2.0 + 6 * math.exp(-step / 250)
            values = {
                "loss": loss + noise.gauss(0, 0.02), "grad_norm": abs(0.3 + noise.gauss(0, 0.03)), "lr": 3e-4 if attempt == 1 else 4.5e-4,
                "tokens_per_s": 2.4e6 * (1 + noise.gauss(0, 0.01)), "step_time_s": STEP_S,
            }  # fmt: skip
            points.append(step_point(run, Step(step, attempt, time_ns, values, {}), step_time_ns(time_ns, step)))
            if step % 50 == 0:
                events.append(
                    Event("message", time_ns + S, step=step, attempt=attempt, id=f"{run}/{attempt}/valid/{step}", source="log",
                          text=f"validation loss at iteration {step}", data={"validation_loss": loss + 0.12 + noise.gauss(0, 0.01)})
                )  # fmt: skip
    events.append(
        Event("attempt_end", time_of(FIRST_END, 1) + 20 * S, attempt=1, id=f"{run}/1/end", source="watch", text="process gone",
              data={"attempt": 1, "reason": "process gone", "last_step": FIRST_END})
    )  # fmt: skip
    told = postmortem(died_ns, line, host)
    events += [
        Event("fault", died_ns - 37 * S, step=LAST, attempt=2, id=f"{run}/2/oom", source="log", severity=Severity.CRITICAL, text=line,
              data={"class": "out_of_memory", "host": host, "rank": 12, "count": 1}),
        Event("attempt_end", died_ns, attempt=2, id=f"{run}/2/end", source="watch", text="process gone",
              data={"attempt": 2, "reason": "process gone", "last_step": LAST}),
        Event("watch", died_ns - 600 * S, attempt=2, id=f"{run}/2/hook-lost", source="hook", severity=Severity.WARNING,
              text="The hook lost 14 records and met 2 errors since its start.", data={"lost": 14, "errors": 2}),
        Event("watch", died_ns - 590 * S, id=f"{run}/lost/1", source="watch", text="not everything could be read or kept",
              data={"lost_by_kind": {"hook_lost": 14, "torn_lines": 5}}),
    ]  # fmt: skip
    if is_read:
        events.append(
            Event("postmortem", died_ns, step=LAST, attempt=2, id=f"{run}/2/postmortem", source="watch", text=told.message,
                  data=told.to_data())
        )  # fmt: skip
    grouper = Grouper(run)
    for finding in findings(time_of, died_ns, told.message if is_read else ""):
        at_ns = finding.time_ns or died_ns
        events.append(
            Event("finding", at_ns, step=finding.detected_step, attempt=finding.attempt, id=finding.id, severity=finding.severity,
                  source="watch", text=finding.message, data=asdict(finding))
        )  # fmt: skip
        incident = grouper.add(finding, at_ns)
        if incident is not None:
            events.append(
                Event("incident", incident.opened_at_ns, step=incident.first_step, attempt=finding.attempt, id=incident.id,
                      severity=incident.severity, source="watch", text=incident.title, data=asdict(incident))
            )  # fmt: skip
    points += [event_point(run, event) for event in events]
    points.append(beat(run, now_ns))
    store.write(points)


def beat(run: str, now_ns: int) -> Point:
    """A heartbeat of a watchdog that could not read everything."""
    return Point(
        "heartbeat", {"run": run, "node": "run-host"}, now_ns, {"ranks": 1, "alive": 0, "lost_records": 20, "step_max": 1}
    )


def findings(time_of, died_ns: int, told: str) -> list[Finding]:
    changes = [dict(zip(("section", "key", "before", "after", "severity"), one, strict=True)) for one in CHANGES]
    message = "settings differ from attempt 1: git 1a2b3c4 → 4d5e6f7; optimizer.lr 3e-4 → 4.5e-4; micro_batch_size 1 → 2; 9 more"
    dead = f"the run died after step {LAST:,}: the trainer's process is gone"
    return [
        Finding(f"{RUN}/2/config", "resume_config_changed", "resume", Severity.WARNING, RESTART_AT, RESTART_AT, RESTART_AT, 2,
                time_of(RESTART_AT, 2), 12.0, None, message, False,
                {"compared_with": 1, "changed": 12, "changes": changes, "not_compared": ["software"]}),
        Finding(f"{RUN}/2/dead", "run_dead", "liveness", Severity.CRITICAL, LAST, LAST, None, 2, died_ns, None, None,
                f"{dead}; {told}" if told else dead, True),
    ]  # fmt: skip


def metadata(run: str, attempt: int, time_ns: int) -> list[Event]:
    """What a start tells, the configuration in two parts."""
    now = attempt == 2
    sections: list[tuple[str, dict[str, object], int, int]] = [
        ("config", {"optimizer.lr": 4.5e-4 if now else 3e-4, "optimizer.name": "adamw", "hub.token": "***",
                    "training.micro_batch_size": 2 if now else 1}, 0, 2),
        ("config", {"data.blend": CHANGES[3][3 if now else 2], "data.seed": 1234, "logging.dir": f"/runs/llama/logs-{attempt}"}, 1, 2),
        ("layout", {"tp": 8, "pp": 1, "dp": 8, "world_size": 64}, 0, 1),
        ("git", {"commit": CHANGES[0][3 if now else 2], "branch": "main", "dirty": False}, 0, 1),
        ("packages", {"torch": "2.10.0" if now else "2.9.0", "transformers": "4.60.0"}, 0, 1),
        ("environment", {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **({"NCCL_ALGO": "Ring"} if now else {})}, 0, 1),
    ]  # fmt: skip
    return [
        Event("metadata", time_ns, attempt=attempt, id=f"{run}/{attempt}/metadata/{name}/{part}", source="hook",
              data={"section": name, "values": values, "part": part, "parts": parts})
        for name, values, part, parts in sections
    ]  # fmt: skip
