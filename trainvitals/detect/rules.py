"""One row per rule: family, severity, whether it ends by itself, what it means. A rule without a row fails the tests.

``python -m trainvitals.detect.rules`` rewrites the two generated tables of docs/detection.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainvitals.detect.tunables import TUNABLES


@dataclass(frozen=True)
class Rule:
    """``severity``: in words, because some rules escalate. ``heals``: how a finding ends without anybody doing anything."""

    family: str
    severity: str
    heals: str
    meaning: str


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "loss_nonfinite": Rule("loss", "warning; critical at 2 in a row or 10 in 1,000, at 20 where there never was a loss", "after 50 finite points", "loss is NaN or infinite, printed as 0.0, or left out"),
        "loss_outlier": Rule("loss", "info", "at once", "a single high point; collapsed into one finding when frequent"),
        "loss_spike": Rule("loss", "warning; critical when 15 % of all progress is given back; info after five like it that healed", "when the median of five is back", "3 of 5 points far above the usual level"),
        "loss_divergence": Rule("loss", "critical", "when the loss is back; the level is accepted after 2,000 points", "a spike of at least 3 % that neither came back nor falls"),
        "loss_level_shift": Rule("loss", "info; warning from 2 %", "when the level is back or has been accepted", "a small lasting rise, as when the data mix changes"),
        "loss_drift": Rule("loss", "warning; critical from 2 % at twice the certainty", "when block medians are back", "a slow rise that only block medians show"),
        "loss_plateau": Rule("loss", "info; warning after 4,000 points and 45 % of the run", "when the loss improves", "no better smoothed loss for long"),
        "loss_not_learning": Rule("loss", "warning", "told once", "still near the first loss after 3,000 steps"),
        "loss_implausible_drop": Rule("loss", "warning", "when the loss is back or after 400 points", "a fall to a quarter within five points"),
        "loss_frozen": Rule("loss", "warning", "when it changes again", "the loss is the same number again and again, longer than this run ever repeated one"),
        "validation_nonfinite": Rule("validation", "warning", "with the next number", "validation loss is NaN or infinite"),
        "validation_rise": Rule("validation", "warning", "when half of the rise is back", "validation loss rises clearly and on and on while the training loss does not"),
        "validation_missing": Rule("validation", "info", "with the next evaluation", "a validation loss that came at regular steps comes no more"),
        "resume_rebound": Rule("loss", "warning; critical from 3 %", "after 200 points", "loss after a resume is higher than before it"),
        "resume_drop": Rule("loss", "warning", "after 200 points after the resume", "loss after a resume is lower than before it, beyond its usual fall: has it seen this data before?"),
        "resume_config_changed": Rule("config", "info; warning for learning rate, batch, optimizer, data, seed, precision, layout, model, code and versions", "told once", "the trainer was not started as the attempt before was"),
        "resume_lr_mismatch": Rule("lr", "warning", "when it is as before, or beyond the steps that were run before", "learning rate after a resume is not what it was at the same step"),
        "lr_schedule_mismatch": Rule("lr", "warning; info for a run that never followed it", "when it is as declared", "learning rate is not what the run's settings declare for this step"),
        "grad_norm_spike": Rule("grad_norm", "info for a lone point; warning; critical when the loss rises with it", "when the median of five is back", "gradient norm far above its median"),
        "grad_norm_nonfinite": Rule("grad_norm", "warning", "after 50 finite points", "gradient norm is NaN or infinite beside a finite loss"),
        "throughput_drop": Rule("throughput", "warning; critical at 30 % for 60 buckets", "when half of the drop is back", "median throughput below the usual"),
        "rank_loss_mismatch": Rule("rank", "warning; critical for replicas that hold different parameters", "when the ranks agree again, or with the next start", "one rank's loss stands apart from the others again and again, is not a number, or a reduced loss differs"),
        "straggler": Rule("rank", "warning", "when it is no longer the last, or with the next start", "the same rank is late before the all-reduce again and again: all others wait for it"),
        "rank_silent": Rule("rank", "warning; info for ranks that never told anything", "when all tell theirs, or with the next start", "ranks tell nothing while steps go on"),
        "stall": Rule("liveness", "warning at the deadline; critical at twice that (an info only for a silence that began before the run was first seen alive); none once `total_steps` is reached", "with the next step", "no step for longer than the run has ever needed"),
        "run_dead": Rule("liveness", "critical; warning for a time limit, a cancellation, an end without a reason, or a crash behind the trainer's last word", "with the next start or step", "the trainer ended, vanished, or printed a deadly line"),
        "nccl_timeout": Rule("liveness", "critical; info when steps go on; warning behind the trainer's last word", "with the next start or step", "a collective did not end: which ranks waited, which said nothing"),
        "out_of_memory": Rule("liveness", "critical; info when steps go on", "with the next start or step", "GPU or host memory was used up: rank and host where the log tells them"),
        "restart_failed": Rule("liveness", "critical", "when a person lets it go on, or with the next start", "the supervisor starts the trainer no more: a restart failed, or nothing could be restarted from"),
        "restart_loop": Rule("liveness", "critical", "when a person lets it go on, or with the next start", "the supervisor starts the trainer no more: restarts lead nowhere, or there were too many"),
        "time_limit_near": Rule("liveness", "info an hour before; warning from 15 minutes before on", "when the trainer ends or is started again", "the job's time limit will end the trainer"),
        "run_dead_holding_nodes": Rule("liveness", "warning; critical after an hour", "when a person lets it go on, or the job ends", "the supervisor gave up inside a job that keeps its nodes: they are idle"),
        "pause_not_honoured": Rule("control", "critical", "when it pauses, ends, or is no longer asked to", "a pause was asked for, and steps go on or the trainer could not"),
        "checkpoint_corrupt": Rule("checkpoint", "warning; critical when it is the last one, when a restart would load it for 30 minutes, or when the newest good one is 3 intervals old; info for litter of an old start", "when it is good or gone", "a checkpoint is incomplete or corrupt although nothing writes it any more"),
        "checkpoint_no_optimizer": Rule("checkpoint", "warning; info for a last save or weights saved in between", "with the next one that holds it", "the newest checkpoint holds no optimizer state: a restart from it begins with an empty one"),
        "checkpoint_stuck": Rule("checkpoint", "warning", "when it is done, deleted, or followed by another", "a save began and is not durable after three times the usual, or it failed"),
        "checkpoint_overdue": Rule("checkpoint", "warning; info until the interval came back eight times", "with the next save", "no save for twice the usual interval, in steps and in time, while steps go on"),
        "checkpoint_blocking": Rule("checkpoint", "warning; info when only the steps around the saves tell it", "when it is well below", "saves hold up the training for more than 5 % of the time, or twice as long as before"),
        "checkpoint_too_few_verified": Rule("checkpoint", "warning; info when enough are complete and none can be proven", "when there are two", "fewer than two verified checkpoints on disk: one bad file and the run is lost"),
        "checkpoint_safe_expiring": Rule("checkpoint", "warning; critical when the next save does it", "when it is kept, or the incident is over", "an incident is open, and the trainer will delete the one checkpoint that is safe"),
        "resume_behind": Rule("checkpoint", "warning; critical when it costs 4 hours; info when it goes back before an incident of the weights", "when the steps are passed again, the pointer is right, or with the next start", "a start went on from an older checkpoint than it could, or from scratch; or a restart would"),
        "breaker_alert": Rule("breaker", "warning", "at once", "anomalous points in a row: [breaker] anomalous_action = \"pause\" would pause here"),
        "breaker_trip": Rule("breaker", "critical", "at once", "here the circuit breaker, armed, would pause"),
    }
)  # fmt: skip


#: Rules that no detector finds: the watchdog does, which is where files can be kept.
FOUND_BY_WATCH = frozenset({"checkpoint_safe_expiring"})


#: Of a death a live supervisor has a while to start the trainer again before anybody is told (``trainvitals.incidents``).
MENDED_BY_SUPERVISOR = frozenset({"run_dead", "nccl_timeout", "out_of_memory"})
_TOLD = {
    "critical": "as critical: somebody now",
    "warning": "as warning: within hours",
    "info": "as info: nobody, a mark on the chart",
}


def who_is_told(name: str) -> str:
    """Who hears of a finding of the rule, by what it can become."""
    found = [words for severity, words in _TOLD.items() if re.search(rf"\b{severity}\b", RULES[name].severity)]
    told = "; ".join(found) if len(found) > 1 else found[0].partition(": ")[2]
    return told + ("; after a while when a supervisor is there" if name in MENDED_BY_SUPERVISOR else "")


def severity_table() -> str:
    """Markdown."""
    rows = [
        f"| `{name}` | {rule.severity} | {rule.heals} | {who_is_told(name)} | {rule.family} | {rule.meaning} |"
        for name, rule in RULES.items()
    ]
    return "\n".join(
        ["| rule | severity | ends by itself | who is told | family | meaning |", "|---|---|---|---|---|---|", *rows]
    )


def tunables_table() -> str:
    """Markdown."""
    lines = ["| `[detect.RULE]` | key | default | unit | meaning |", "|---|---|---|---|---|"]
    for rule, numbers in TUNABLES.items():
        lines += [f"| `{rule}` | `{name}` | {n.default:g} | {n.unit} | {n.help} |" for name, n in numbers.items()]
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """The document with what stands between its ``<!-- generated: NAME -->`` marks made anew."""
    for name, table in (("severities", severity_table()), ("tunables", tunables_table())):
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
        head, found, rest = text.partition(begin)
        _, found_end, tail = rest.partition(end)
        if not (found and found_end):
            raise ValueError(f"The document lacks the marks of the generated table {name!r}.")
        text = head + begin + table + "\n" + end + tail
    return text


def main() -> int:
    """Rewrite docs/detection.md of this checkout."""
    path = Path(__file__).parents[2] / "docs" / "detection.md"
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
