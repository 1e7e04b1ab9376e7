"""What follows from a run's checkpoints: the one to go back to, and how well the run saves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from trainvitals.incidents.checkpoint_card import GONE, CardInputs, CardRow, card
from trainvitals.incidents.damaged_values import DamagedValues, is_damaged_in_the_run
from trainvitals.incidents.failure_rate import FailureRate, failure_rate
from trainvitals.incidents.retention import PauseSave, pause_save
from trainvitals.incidents.rollback import Rollback, RollbackInputs, recommend
from trainvitals.incidents.suspect import is_about_weights, suspect_checkpoints
from trainvitals.incidents.verdict import GOOD_ENDS
from trainvitals.records import CheckpointReport, CheckpointState
from trainvitals.settings import RunSettings
from trainvitals.web.checkpoints import CheckpointFacts
from trainvitals.web.facts import Facts
from trainvitals.web.metrics import Row
from trainvitals.web.view import AttemptView, MetricNow


def newest_verified(checkpoints: Sequence[CheckpointReport]) -> CheckpointReport | None:
    """The verified one that was written last: after going back the higher steps are the old ones."""
    verified = [c for c in checkpoints if c.state is CheckpointState.VERIFIED and c.step is not None]
    return max(verified, key=lambda c: (c.modified_at_ns or 0, c.step or 0), default=None)


def suspects_of(facts: Facts, attempts: Sequence[AttemptView]) -> dict[str, int]:
    """Path of each checkpoint whose weights may be damaged -> the step since when: saved while the loss was sick, or after numbers
    that a load found damaged."""
    damaged = DamagedValues(facts.checkpoints, attempts)
    since = {one.path: damaged.damaged_since(one) for one in facts.checkpoints if one.state not in GONE}
    found = {path: step for path, step in since.items() if step is not None}
    for path, step in suspect_checkpoints(facts.checkpoints, facts.incidents, facts.findings, attempts).items():
        found[path] = min(step, found.get(path, step))
    return found


def way_back_of(
    run: RunSettings, facts: Facts, stored: CheckpointFacts, attempts: Sequence[AttemptView], rows: Sequence[Row],
    step_s: float | None, metrics: Mapping[str, MetricNow],
) -> Rollback:  # fmt: skip
    """The recommendation, as the watchdog makes it, with what it costs."""
    newest = rows[-1].attempt if rows else None
    gaps = [
        later.step - one.step for one, later in pairwise(row for row in rows if row.attempt == newest) if later.step > one.step
    ]
    return recommend(
        RollbackInputs(
            checkpoints=[one for one in facts.checkpoints if one.state not in GONE or is_damaged_in_the_run(one)],
            incidents=facts.incidents,
            findings=facts.findings,
            attempts=attempts,
            last_step=rows[-1].step if rows else None,
            gap_steps=statistics.median_low(gaps) if gaps else 1,
            step_s=step_s,
            tokens_per_step=tokens_per_step(rows, step_s, metrics.get("tokens_per_s")),
            gpus=run.gpus,
            resume_command=run.resume_command,
            data=facts.of_kind("data"),
            pinned={*stored.pinned, *filter(None, stored.pinned.values())},
        )
    )


def tokens_per_step(rows: Sequence[Row], step_s: float | None, speed: MetricNow | None) -> float | None:
    """From the trainer's own count of tokens, else from its speed; None when it tells neither."""
    counted = [
        (later.values["tokens"] - one.values["tokens"]) / (later.step - one.step)
        for one, later in pairwise(row for row in rows if "tokens" in row.values)
        if later.attempt == one.attempt and later.step > one.step and later.values["tokens"] > one.values["tokens"]
    ]
    if counted:
        return statistics.median(counted)
    told = None if speed is None else speed.usual if speed.usual is not None else speed.value
    return told * step_s if told and step_s else None


def pause_of(run: RunSettings, facts: Facts, found: Rollback) -> PauseSave:
    """What a pause that is asked for now does, as the watchdog decides it for the breaker."""
    return pause_save(
        run.save_on_pause,
        is_trouble_open=any(one.is_open and is_about_weights(one) for one in facts.incidents),
        safe=found.checkpoint,
        is_pinned=found.is_pinned,
        reports=facts.checkpoints,
    )


def card_of(
    run: RunSettings, checkpoints: Sequence[CheckpointReport], stored: CheckpointFacts, attempts: Sequence[AttemptView],
    step_s: float | None, last_step_time_ns: int | None,
) -> tuple[CardRow, ...]:  # fmt: skip
    """How well the run saves."""
    return card(
        CardInputs(
            checkpoints,
            stored.saves,
            failures_of(attempts, last_step_time_ns),
            step_s,
            run.gpus,
            run.checkpoint_every_steps,
            stored.rooms,
        )
    )


def failures_of(attempts: Sequence[AttemptView], last_step_time_ns: int | None) -> FailureRate:
    """Ends of the trainer that nobody planned, in the time that it trained. An end that gives no reason was not planned."""
    failures, observed_ns = 0, 0
    for attempt in attempts:
        end_ns = attempt.ended_ns if attempt.ended_ns is not None else last_step_time_ns
        if attempt.started_ns and end_ns is not None and end_ns > attempt.started_ns:
            observed_ns += end_ns - attempt.started_ns
        reason = attempt.end_reason.lower()
        failures += attempt.ended_ns is not None and reason not in GOOD_ENDS and not reason.startswith("stopped")
    return failure_rate(failures, observed_ns / 1e9)
