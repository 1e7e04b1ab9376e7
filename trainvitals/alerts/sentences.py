"""What each rule says in English when a lock screen leaves no room for the finding's own message.

Fields: {since} = "since step 48,210" or nothing, {at} and {after} the same with "at" and "after"; {expected}, {value}, {percent} numbers; {count},
{usual_count} whole numbers; {time}, {usual_time} durations. The first form needs value and expected value, the second the value only,
the last nothing: the first that can be filled in is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SENTENCES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "loss_nonfinite": ("", "", "loss is not a number {since}"),
        "loss_outlier": ("loss {expected} → {value} {at}, a single point", "", "a single high loss {at}"),
        "loss_spike": ("loss {expected} → {value} {since}", "", "loss spike {since}"),
        "loss_divergence": ("loss {expected} → {value} {since}, not coming back", "", "loss does not come back {since}"),
        "loss_level_shift": ("loss level {expected} → {value} {since}", "", "loss level shifted {since}"),
        "loss_drift": ("loss drifts up, {expected} → {value} {since}", "", "loss drifts up {since}"),
        "loss_plateau": ("loss no better than {expected} {since}", "", "loss no better {since}"),
        "loss_not_learning": ("loss {value}, began at {expected}: it does not learn", "", "the run does not learn"),
        "loss_implausible_drop": ("loss fell {expected} → {value} {at}: too fast", "", "loss fell too fast {at}"),
        "loss_frozen": ("", "loss is {value} again and again {since}", "loss does not change {since}"),
        "validation_nonfinite": ("", "", "validation loss is not a number {at}"),
        "validation_rise": ("validation loss {expected} → {value} {since}", "", "validation loss rises {since}"),
        "validation_missing": ("", "", "no validation loss {since}"),
        "resume_rebound": ("loss {expected} → {value} after the resume {at}", "", "loss rebounds after the resume {at}"),
        "resume_drop": ("loss {expected} → {value} after the resume {at}", "", "loss fell after the resume {at}"),
        "resume_config_changed": ("", "{count} settings differ from the attempt before {at}", "settings differ {at}"),
        "resume_lr_mismatch": ("lr {value}, was {expected} {at} before", "", "lr after the resume is another {at}"),
        "lr_schedule_mismatch": ("lr {value}, declared {expected} {at}", "", "lr is not as declared {at}"),
        "grad_norm_spike": ("grad norm {expected} → {value} {since}", "", "grad norm spike {since}"),
        "grad_norm_nonfinite": ("", "", "grad norm is not a number {since}"),
        "throughput_drop": ("throughput {percent} below usual {since}", "", "throughput dropped {since}"),
        "rank_loss_mismatch": ("", "", "ranks disagree on the loss {since}"),
        "straggler": ("", "", "one rank keeps all others waiting {since}"),
        "rank_silent": ("", "{count} ranks say nothing {since}", "ranks say nothing {since}"),
        "stall": ("no step for {time} {since}, usual {usual_time}", "no step for {time} {since}", "no step {since}"),
        "run_dead": ("", "", "the trainer died {after}"),
        "run_dead_holding_nodes": ("", "", "the trainer died {after} and holds its nodes"),
        "restart_failed": ("", "", "nothing starts it again {after}"),
        "restart_loop": ("", "", "it dies again and again {at}"),
        "time_limit_near": ("", "", "the job's time limit is near {at}"),
        "nccl_timeout": ("", "", "NCCL timeout {after}"),
        "out_of_memory": ("", "", "out of memory {after}"),
        "storage_filling": ("", "", "the file system fills up {at}"),
        "pause_not_honoured": ("", "", "the pause asked for {at} did not come"),
        "checkpoint_corrupt": ("", "", "a checkpoint is incomplete or corrupt {at}"),
        "checkpoint_no_optimizer": ("", "", "newest checkpoint has no optimizer state {at}"),
        "checkpoint_stuck": ("a save takes {time}, usual {usual_time} {at}", "", "a save does not end {at}"),
        "checkpoint_overdue": ("no save for {count} steps, usual {usual_count} {at}", "", "no save for long {at}"),
        "checkpoint_blocking": ("", "", "saves hold up the training {since}"),
        "checkpoint_too_few_verified": ("", "only {count} verified checkpoints left {at}", "too few verified checkpoints {at}"),
        "checkpoint_safe_expiring": ("", "", "the safe checkpoint {at} will be deleted"),
        "resume_behind": ("", "", "went on from an older checkpoint than it could {at}"),
        "breaker_alert": ("", "", "anomalous points in a row {at}"),
        "breaker_trip": ("", "", "the breaker trips {at}"),
        "telemetry_lost": ("", "", "what is measured does not arrive {since}"),
        "alert_not_delivered": ("", "", "alerts do not arrive"),
        "watch_silent": ("", "", "its watchdog is silent {since}"),
    }
)  # fmt: skip
