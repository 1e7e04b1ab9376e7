"""A stored run for tests and pictures: one bad night, written through the public encoders only.

Attempt 1 has a one-step spike, a NaN and ends; attempt 2 goes on from step 1,200, its loss diverges at step 2,400 and the breaker
pauses it at 2,460. Checkpoint 2,400 is truncated. All numbers come from a fixed seed; nothing here is anybody's data.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict
from pathlib import Path

from trainvitals.clock import ManualClock
from trainvitals.control.records import ControlStatus
from trainvitals.control.request import init, submit
from trainvitals.identity import step_time_ns
from trainvitals.incidents.grouping import Grouper
from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    Event,
    Finding,
    NodeSample,
    Point,
    Severity,
    Step,
    VerificationLevel,
    split_nonfinite,
)
from trainvitals.store.encode import event_point, node_point, step_point
from trainvitals.store.protocol import Sink

RUN = "llama-night"
STEP_S = 3.0
SECOND_NS = 10**9
PAUSED_AT = 2460
ONSET = 2400
RESTART_AT = 1201
FIRST_END = 1500


def write_run(
    store: Sink, run_dir: Path, now_ns: int, *, run: str = RUN, sick: bool = True, hostile: str = "", heartbeat: bool = True
) -> None:
    """Fill ``store`` with the night that ends at ``now_ns``, and ``run_dir`` with its control files. ``hostile``: text put
    wherever the outside can put text."""
    last = PAUSED_AT if sick else 2390
    ended_ns = now_ns - (120 * SECOND_NS if sick else SECOND_NS)
    begun_ns = ended_ns - round((FIRST_END + 30 + last - RESTART_AT + 40) * STEP_S * SECOND_NS)

    def time_of(step: int, attempt: int) -> int:
        elapsed = step if attempt == 1 else FIRST_END + 30 + step - RESTART_AT + 40
        return begun_ns + round(elapsed * STEP_S * SECOND_NS)

    points: list[Point] = []
    for attempt, steps in ((1, range(1, FIRST_END + 1)), (2, range(RESTART_AT, last + 1))):
        noise = random.Random(attempt)
        for step in steps:
            raw = _values(step, attempt, noise)
            values, nonfinite = split_nonfinite(raw)
            time_ns = time_of(step, attempt)
            points.append(step_point(run, Step(step, attempt, time_ns, values, nonfinite), step_time_ns(time_ns, step)))
    events = _events(run, time_of, sick, hostile)
    events += _checkpoints(run, run_dir, time_of, last, hostile)
    findings = _findings(time_of, sick, hostile)
    grouper = Grouper(run)
    for finding in findings:
        at_ns = finding.time_ns or now_ns
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
    points.extend(event_point(run, event) for event in events)
    if heartbeat:
        points.append(beat(run, now_ns))
    points.extend(node_points(run, now_ns, hostile))
    store.write(points)
    _control_files(run_dir, run, sick, ended_ns, now_ns)


def step_now(run: str, step: int, now_ns: int) -> Point:
    """One more healthy step of attempt 2."""
    return step_point(
        run, Step(step, 2, now_ns, _values(min(step, ONSET - 10), 2, random.Random(step))), step_time_ns(now_ns, step)
    )


def beat(run: str, now_ns: int) -> Point:
    """A heartbeat of the watchdog."""
    fields = {"ranks": 1, "alive": 1, "lost_records": 0, "step_min": 1, "step_max": 1}
    return Point("heartbeat", {"run": run, "node": "run-host"}, now_ns, fields)


def node_points(run: str, now_ns: int, hostile: str = "") -> list[Point]:
    """Sixteen made-up nodes, one of them hot."""
    samples = [
        NodeSample(
            f"rack{number // 4:02d}-node{number % 4:02d}", now_ns, "warn" if number == 11 else "ok", gpus=8, is_simulated=True, run=run,
            text=hostile or ("GPU 3: 92 °C" if number == 11 else ""),
        )
        for number in range(16)
    ]  # fmt: skip
    return [node_point(sample) for sample in samples]


def _values(step: int, attempt: int, noise: random.Random) -> dict[str, float]:
    loss = 2.0 + 8.0 * math.exp(-step / 300) + noise.gauss(0, 0.02)
    grad_norm = abs(0.25 + noise.gauss(0, 0.03))
    if attempt == 1 and step == 900:
        loss += 1.5
    if attempt == 1 and step == 1100:
        loss = math.nan
    if attempt == 2 and step >= ONSET:
        loss += min(0.9, 0.03 * (step - ONSET))
    if attempt == 2 and step >= ONSET - 3:
        grad_norm *= 40
    return {
        "loss": loss, "grad_norm": grad_norm, "lr": 3e-4 * min(1.0, step / 200), "tokens_per_s": 2.61e6 * (1 + noise.gauss(0, 0.01)),
        "step_time_s": STEP_S,
    }  # fmt: skip


def _events(run: str, time_of, sick: bool, hostile: str) -> list[Event]:
    events = [
        Event("attempt_start", time_of(1, 1) - 30 * SECOND_NS, step=1, attempt=1, id=f"{run}/1/start", source="hook",
              text=hostile or "attempt 1 started", data={"attempt": 1, "first_step": 1, "config_sha256": "ab" * 32}),
        Event("attempt_end", time_of(FIRST_END, 1) + 5 * SECOND_NS, attempt=1, id=f"{run}/1/end", source="watch",
              text=hostile or "process gone", data={"attempt": 1, "reason": hostile or "process gone", "last_step": FIRST_END}),
        Event("attempt_start", time_of(RESTART_AT, 2) - 60 * SECOND_NS, step=RESTART_AT, attempt=2, id=f"{run}/2/start", source="hook",
              text=hostile or "attempt 2 started", data={"attempt": 2, "first_step": RESTART_AT, "config_sha256": "ab" * 32}),
        Event("resume", time_of(RESTART_AT, 2) - 20 * SECOND_NS, step=1200, attempt=2, id=f"{run}/2/resume", source="hook",
              text=hostile or "resumed from step 1200", data={}),
        Event("data", time_of(1300, 2), step=1300, attempt=2, id=f"{run}/2/data/1300", source="hook", data={"source": "books"}),
        Event("data", time_of(2380, 2), step=2380, attempt=2, id=f"{run}/2/data/2380", source="hook", text=hostile or "new shard mix",
              data={"source": hostile or "web-2024", "shards": [hostile or "part-0412", "part-0413"], "sample_first": 9_748_480}),
    ]  # fmt: skip
    if sick:
        events.append(
            Event("breaker", time_of(PAUSED_AT, 2) - SECOND_NS, step=PAUSED_AT - 2, attempt=2, id=f"{run}/breaker", source="watch",
                  severity=Severity.CRITICAL, text=hostile or f"asked the trainer to pause at step {PAUSED_AT - 2:,}: loss not coming back",
                  data={"decision": "paused", "mode": "armed", "reason": "loss not coming back"})
        )  # fmt: skip
        events.append(
            Event("control", time_of(PAUSED_AT, 2), step=PAUSED_AT, attempt=2, id=f"{run}/control/1", source="hook",
                  text=hostile or "paused at step 2,460",
                  data={"seq": 1, "desired": "paused", "by": "breaker", "reason": hostile or "loss not coming back", "state": "paused"})
        )  # fmt: skip
    return events


def _checkpoints(run: str, run_dir: Path, time_of, last: int, hostile: str) -> list[Event]:
    events = []
    for step in range(200, last + 1, 200):
        attempt = 1 if step < RESTART_AT else 2
        broken = step == 2400
        report = CheckpointReport(
            path=str(run_dir / "checkpoints" / f"step-{step:07d}"), step=step, format="torch_distributed",
            state=CheckpointState.CORRUPT if broken else CheckpointState.VERIFIED,
            level=None if broken else VerificationLevel.CONTENT if step % 400 == 0 else VerificationLevel.STRUCTURE,
            has_optimizer=True, files=12, bytes=213_000_000_000,
            reasons=(hostile or "shard __7_0.distcp ends 8,192 bytes early",) if broken else (),
            modified_at_ns=time_of(step, attempt) + 20 * SECOND_NS, loss=2.1,
        )  # fmt: skip
        events.append(
            Event("checkpoint", time_of(step, attempt) + 30 * SECOND_NS, step=step, attempt=attempt, id=f"{report.path}/{report.state}",
                  source="watch", text=f"checkpoint {report.path}", data=asdict(report))
        )  # fmt: skip
    return events


def _findings(time_of, sick: bool, hostile: str) -> list[Finding]:
    findings = [
        Finding("f/outlier/900", "loss_outlier", "loss", Severity.INFO, 900, 900, 900, 1, time_of(900, 1), 3.9, 2.4,
                hostile or "loss 3.90 at step 900, one step only", False),
        Finding("f/nan/1100", "loss_nonfinite", "loss", Severity.WARNING, 1100, 1100, 1100, 1, time_of(1100, 1), None, None,
                hostile or "loss is NaN at step 1,100", False),
    ]  # fmt: skip
    if sick:
        findings += [
            Finding("f/grad/2397", "grad_norm_spike", "grad_norm", Severity.WARNING, ONSET - 3, ONSET, None, 2, time_of(ONSET - 3, 2), 10.1,
                    0.25, hostile or "grad norm 10.1, usual 0.25, since step 2,397", True),
            Finding("f/diverge/2400", "loss_divergence", "loss", Severity.CRITICAL, ONSET, ONSET + 12, None, 2, time_of(ONSET, 2), 2.9, 2.0,
                    hostile or "loss 2.00 → 2.90 since step 2,400, not coming back", True),
            Finding("f/ckpt/2400", "checkpoint_corrupt", "checkpoint", Severity.WARNING, 2400, 2400, None, 2, time_of(2400, 2), None, None,
                    hostile or "checkpoint of step 2,400 cannot be restored: a shard is truncated", True),
        ]  # fmt: skip
    return findings


def _control_files(run_dir: Path, run: str, sick: bool, ended_ns: int, now_ns: int) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    init(run_dir, run, clock=ManualClock(ended_ns - 3600 * SECOND_NS))
    state, seq = "running", 0
    if sick:
        submit(
            run_dir,
            run,
            action="pause",
            by="breaker",
            source="breaker",
            reason="loss not coming back",
            clock=ManualClock(ended_ns),
        )
        state, seq = "paused", 1
    write_status(run_dir, run, state, seq, ended_ns, now_ns, PAUSED_AT if sick else 2390)


def write_status(run_dir: Path, run: str, state: str, seq: int, since_ns: int, now_ns: int, step: int) -> None:
    """The trainer's answer, as its control client writes it."""
    is_paused = state == "paused"
    status = ControlStatus(
        run=run, attempt=2, state=state, desired="paused" if is_paused else "running", ack_seq=seq, applied_seq=seq,
        applied_at_step=step, checkpoint_step=step if is_paused else None, heartbeat_ns=now_ns, heartbeat_seq=1, since_ns=since_ns,
        step=step, step_age_s=1.0, by="breaker" if is_paused else "", source="breaker" if is_paused else "",
        reason="loss not coming back" if is_paused else "", pid=4242, host="run-host",
    )  # fmt: skip
    path = run_dir / "control" / "control_status.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(status.to_json(), encoding="utf-8")
    temporary.replace(path)
