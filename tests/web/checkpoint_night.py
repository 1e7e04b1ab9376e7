"""The sample run's bad night, seen from its checkpoints: timed saves, a failed one, retention, a pin, a pointer, a full disk, starts.

Written through the public encoders only; nothing here is anybody's data.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import sample_run as sample

from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, Event, ResumeChoice, Severity, VerificationLevel
from trainvitals.store.encode import event_point
from trainvitals.store.protocol import Sink

SECOND_NS = 10**9


def directory_of(run_dir: Path) -> Path:
    """Where the run's checkpoints are."""
    return run_dir / "checkpoints"


def path_of(run_dir: Path, step: int) -> str:
    """Path of the checkpoint of a step."""
    return str(directory_of(run_dir) / f"step-{step:07d}")


def write_night(store: Sink, run_dir: Path, now_ns: int, *, hostile: str = "") -> None:
    """The bad night, with everything that the checkpoints page tells."""
    sample.write_run(store, run_dir, now_ns, hostile=hostile)
    events = [*_saves(run_dir, now_ns, hostile), *_reports(run_dir, now_ns, hostile), *_around(run_dir, now_ns, hostile)]
    store.write([event_point(sample.RUN, event) for event in events])


def written_ns(step: int, now_ns: int) -> int:
    """When a step was saved, about."""
    attempt_seconds = (sample.PAUSED_AT - step) * sample.STEP_S if step >= sample.RESTART_AT else 0
    earlier = (
        (sample.PAUSED_AT - sample.RESTART_AT + 70 + sample.FIRST_END - step) * sample.STEP_S if step < sample.RESTART_AT else 0
    )
    return now_ns - round((120 + attempt_seconds + earlier) * SECOND_NS)


def report(run_dir: Path, step: int, now_ns: int, **changes: object) -> CheckpointReport:
    """A good checkpoint, with ``changes``."""
    made = CheckpointReport(
        path=path_of(run_dir, step), step=step, format="torch_distributed", state=CheckpointState.VERIFIED,
        level=VerificationLevel.CONTENT, has_optimizer=True, files=129, bytes=213_000_000_000, loss=2.1,
        modified_at_ns=written_ns(step, now_ns) + 40 * SECOND_NS, has_rng=True, has_scheduler=True, has_data_position=False,
        world_size=128, parallel={"dp": 16, "tp": 8}, largest_file_bytes=1_700_000_000, proof=ContentProof.MANIFEST,
        verified_at_ns=written_ns(step, now_ns) + 90 * SECOND_NS,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def _reports(run_dir: Path, now_ns: int, hostile: str) -> list[Event]:
    events = []
    for step in range(200, sample.PAUSED_AT, 200):
        made = report(run_dir, step, now_ns)
        if step < 1600:
            made = replace(made, state=CheckpointState.DELETED, level=None, files=0, bytes=0, verified_at_ns=None)
        elif step == 2000:
            made = replace(made, has_optimizer=False)
        elif step == 2400:
            made = replace(
                made, state=CheckpointState.CORRUPT, level=None, proof=ContentProof.NONE,
                reasons=(hostile or "shard __7_0.distcp ends 8,192 bytes early", "no manifest"),
            )  # fmt: skip
        events.append(
            Event("checkpoint", now_ns - 100 * SECOND_NS + step, step=step, attempt=1 if step < sample.RESTART_AT else 2,
                  id=f"night/{step}", source="watch", text=f"checkpoint {made.path}", data=asdict(made))
        )  # fmt: skip
    return events


def _saves(run_dir: Path, now_ns: int, hostile: str) -> list[Event]:
    events = []
    for step in range(200, sample.PAUSED_AT, 200):
        attempt = 1 if step < sample.RESTART_AT else 2
        at_ns = written_ns(step, now_ns)
        slow = 3.0 if step in (1400, 2200) else 1.0
        base = {"path": path_of(run_dir, step), "is_async": True}
        told = [
            ("begun", 0, {}),
            ("staged", 3, {"staged_s": 2.6 * slow, "blocked_s": 0.9 * slow}),
            ("persisted", 40, {"staged_s": 2.6 * slow, "blocked_s": 0.9 * slow, "persisted_s": 38.0 * slow}),
        ]
        for state, after_s, more in told:
            events.append(
                Event("save", at_ns + after_s * SECOND_NS, step=step, attempt=attempt, id=f"save/{step}/{state}", source="hook",
                      data={**base, "state": state, **more})
            )  # fmt: skip
    failed = {"path": path_of(run_dir, 1500), "state": "failed", "reason": "No space left on device", "blocked_s": 4.0}
    text = hostile or "the save failed: OSError: No space left on device"
    events.append(
        Event(
            "save", written_ns(1500, now_ns), step=1500, attempt=1, id="save/1500/failed", source="hook", text=text, data=failed
        )
    )
    return events


def _around(run_dir: Path, now_ns: int, hostile: str) -> list[Event]:
    choice = ResumeChoice(
        str(directory_of(run_dir)), path_of(run_dir, 2400), 2400, "highest step-N with .metadata", hostile or "it is not whole"
    )
    check = {
        "path": path_of(run_dir, 1200), "step": 1200, "step_is_equal": True, "config_is_equal": True, "script_is_equal": False,
        "loss_before": 2.146,
    }  # fmt: skip
    kept = {"path": path_of(run_dir, 2200), "state": "kept", "how": "links"}
    kept["pinned"] = str(directory_of(run_dir) / ".trainvitals-pinned" / "step-0002200")
    room = {"directory": str(directory_of(run_dir)), "free_bytes": 1_290_000_000_000, "total_bytes": 40_000_000_000_000}
    return [
        Event("pointer", now_ns - 90 * SECOND_NS, step=2400, attempt=2, id="night/pointer", severity=Severity.WARNING, source="watch",
              text=choice.problem, data=asdict(choice)),
        Event("message", now_ns - 89 * SECOND_NS, step=1200, attempt=2, id="night/resumed", source="hook", text=hostile or "resumed",
              data={"resume_check": check}),
        Event("pin", now_ns - 88 * SECOND_NS, step=2200, id="night/pin", source="watch", text="kept", data=kept),
        Event("room", now_ns - 87 * SECOND_NS, id="night/room", source="watch", text="room", data=room),
    ]  # fmt: skip
