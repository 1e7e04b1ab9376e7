"""What to check first, in which order, and what is known of it: first the data, then the code, then the cluster.

The order of the checks never changes; the first suspect (``symptoms``) says where the answer most often is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.incidents.busy import busy_words
from trainvitals.incidents.data_notes import noted_mix, steps_before
from trainvitals.incidents.deciding import HUNG_RULES
from trainvitals.incidents.outside import outside_alerts
from trainvitals.incidents.symptoms import SYMPTOMS, symptom
from trainvitals.records import CheckpointReport, Event, Finding, NodeSample, NonFinite, Severity

#: Layers in the order in which they are checked.
LAYERS = ("data", "code", "numerics", "cluster")
#: Data changes this many steps before the onset are suspects; cluster events this long around it.
DATA_WINDOW_STEPS = 200
CLUSTER_WINDOW_NS = 30 * 60 * 10**9
#: A node that was heard of so long after the onset was there: that it is silent now says nothing of what began before.
HEARD_AFTER_NS = 2 * 60 * 10**9
#: A learning rate, or a grad norm, this many times the usual one is evidence.
LR_TIMES = 3.0
GRAD_NORM_TIMES = 3.0
#: Classes of faults that are a matter of the program, not of the machines.
CODE_FAULTS = frozenset({"config_error", "exception", "cuda_error", "crashed"})
#: Exceptions by which a program gives up on its own numbers.
NUMERIC_ERRORS = frozenset({"FloatingPointError", "OverflowError"})
#: How the deepest look at a checkpoint names weights that are damaged as numbers (``checkpoints.load_values``).
_BAD_NUMBERS = re.compile(r" holds (?:NaN|infinity|denormal numbers)| are all zero")
BAD_NODE_STATES = frozenset({"warn", "fail", "lost", "silent"})


@dataclass(frozen=True)
class Check:
    """One line of "check in this order". layer: data, code, numerics, cluster. mark: "!" evidence found, "–" looked and
    nothing there, "?" not known here."""

    layer: str
    mark: str
    title: str
    evidence: str


@dataclass(frozen=True)
class Evidence:
    """What is known around the onset. Nothing here is looked up: whoever calls has it.

    nodes: None = no node health is collected; sees_nodes: False = whoever asks cannot know (``watch`` reads no store). nonfinite: metrics that are non-finite now or were in the incident.
    lr_now, lr_usual, grad_norm_now, grad_norm_usual: now and before the onset; when: in words, when "now" was. resumed_checkpoint: report of the checkpoint the running attempt started from, None = not known.
    tells_settings: the attempt told what it is made of, so a change would have been found.
    attempts: those that the incident was in, empty = not known. ended_ns: when the incident was over, None = it is open, or a death.
    """

    onset_step: int | None = None
    onset_ns: int | None = None
    attempt_first_step: int | None = None
    attempt_started_ns: int | None = None
    attempt: int | None = None
    events: Sequence[Event] = ()
    findings: Sequence[Finding] = ()
    nodes: Sequence[NodeSample] | None = None
    nonfinite: Sequence[tuple[str, NonFinite]] = ()
    loss_scale: float | None = None
    lr_now: float | None = None
    lr_usual: float | None = None
    has_grad_norm: bool = False
    grad_norm_now: float | None = None
    grad_norm_usual: float | None = None
    resumed_from_step: int | None = None
    resumed_checkpoint: CheckpointReport | None = None
    tells_settings: bool = False
    attempts: frozenset[int] = frozenset()
    ended_ns: int | None = None
    when: str = "now"
    sees_nodes: bool = True


def triage(rule: str, evidence: Evidence) -> tuple[Check, ...]:
    """The four checks in the order data, code, numerics, cluster, each with what is known of it here."""
    answers: dict[str, Callable[[str, Evidence], Check]] = {
        "data": _data, "code": _code, "numerics": _numerics, "cluster": _cluster
    }  # fmt: skip
    return tuple(answers[layer](rule, evidence) for layer in LAYERS)


def _is_about_training(rule: str) -> bool:
    """Whether the rule speaks of the curves, not of time, nodes or checkpoints."""
    return rule.startswith(("loss_", "grad_", "resume_", "rank_loss_", "lr_", "breaker_")) and rule != "resume_behind"


def _near_before(evidence: Evidence, event: Event) -> bool:
    if evidence.onset_step is None or event.step is None:
        return False
    return 0 <= evidence.onset_step - event.step <= DATA_WINDOW_STEPS


def _data(rule: str, evidence: Evidence) -> Check:
    if not _is_about_training(rule):
        return Check("data", "–", "Not a matter of the batches", "What is seen does not depend on the data.")
    positions = [event for event in evidence.events if event.kind == "data" and _was_there(evidence, event)]
    action = SYMPTOMS["loss jumps or diverges"].action
    noted = noted_mix(evidence.events, evidence.onset_step, DATA_WINDOW_STEPS)
    if not positions:
        unknown = Check(
            "data", "?", "Data position not reported by this trainer", f"{action} The hook's data() call would name the shards."
        )
        return Check("data", "!", noted[0], f"{noted[1]} {action}") if noted else unknown
    near = [event for event in data_changes(positions) if _near_before(evidence, event)]
    if near and evidence.onset_step is not None:
        event = max(near, key=lambda e: e.step or 0)
        before = evidence.onset_step - (event.step or 0)
        return Check(
            "data",
            "!",
            f"New data began at step {event.step:,}",
            " ".join(
                part for part in (f"{steps_before(before)}.", _position(event), *(f"{said}." for said in noted), action) if part
            ),
        )
    if noted:
        return Check("data", "!", noted[0], f"{noted[1]} {action}")
    known = [event for event in positions if evidence.onset_step is None or (event.step or 0) <= evidence.onset_step]
    last = max(known or positions, key=lambda e: (e.attempt or 0, e.step or 0))
    return Check("data", "–", f"No new source in the {DATA_WINDOW_STEPS} steps before", f"{_position(last)} {action}".strip())


def data_changes(positions: Sequence[Event]) -> list[Event]:
    """Data events that begin something new: another source than the event before it, or, where no source is named, other
    shards than most events go on with. Routine positions are none, and neither is the first one known."""
    ordered = sorted(positions, key=lambda event: (event.attempt or 0, event.step or 0))
    by_source = any(event.data.get("source") for event in ordered)
    keys = [str(event.data.get("source" if by_source else "shards", "")) for event in ordered]
    changes = [event for event, before, key in zip(ordered[1:], keys, keys[1:], strict=False) if key != before]
    is_routine = not by_source and len(changes) * 3 > len(ordered)
    return [] if is_routine else changes


def _position(event: Event) -> str:
    parts = []
    if event.data.get("source"):
        parts.append(f"Source {event.data['source']}.")
    shards = event.data.get("shards")
    if isinstance(shards, (list, tuple)) and shards:
        shown = ", ".join(str(shard) for shard in shards[:3])
        parts.append(f"Shards {shown}{f' and {len(shards) - 3} more' if len(shards) > 3 else ''}.")
    elif shards:
        parts.append(f"Shards {shards}.")
    sample = event.data.get("sample_first")
    if sample is not None:
        parts.append(f"From sample {sample:,}." if isinstance(sample, int) else f"From sample {sample}.")
    return " ".join(parts)


def _death(rule: str, evidence: Evidence, layer: str) -> Event | None:
    """The newest answer of what the run died of, when that is a matter of this layer. What was found on the disk before is no matter
    of a death."""
    told = [
        e
        for e in evidence.events
        if e.kind == "postmortem" and isinstance(e.data.get("cause"), Mapping) and _around(evidence, e) and _is_of_it(evidence, e)
        if not rule.startswith("checkpoint_") or _is_before(evidence, e)
    ]
    newest = max(told, key=lambda e: e.time_ns or 0, default=None)
    return newest if newest is not None and _layer_of(newest.data["cause"]) == layer else None


def _is_before(evidence: Evidence, event: Event) -> bool:
    return evidence.onset_ns is None or event.time_ns is None or event.time_ns <= evidence.onset_ns


def _is_of_it(evidence: Evidence, event: Event) -> bool:
    """Not of an attempt that a restart has healed, and not after all was over: neither explains what is seen."""
    is_its_start = not evidence.attempts or event.attempt is None or event.attempt in evidence.attempts
    return is_its_start and _was_there(evidence, event)


def _was_there(evidence: Evidence, event: Event) -> bool:
    """Not of a later start over the same steps, and not after all was over."""
    if evidence.attempts and event.attempt is not None and event.attempt > max(evidence.attempts):
        return False
    return evidence.ended_ns is None or event.time_ns is None or event.time_ns <= evidence.ended_ns


def _is_the_cause(fault: Event, death: Event) -> bool:
    """Whether the fault in the log is the one that the post-mortem names."""
    cause = death.data["cause"]
    if fault.data.get("class") != cause.get("class"):
        return False
    rank, of_cause = fault.data.get("rank"), cause.get("rank")
    return rank is None or of_cause is None or rank == of_cause


def _layer_of(cause: Mapping[str, object]) -> str:
    kind, name = str(cause.get("class")), str(cause.get("name"))  # whatever a trainer's file holds
    if kind == "numerics" or name in NUMERIC_ERRORS:
        return "numerics"
    return "code" if kind in CODE_FAULTS else "cluster"


def _code(rule: str, evidence: Evidence) -> Check:
    speaking = _faults_of_code(rule, evidence)
    if speaking:
        worst, others = speaking[0], speaking[1:]
        also = f" Also: {'; '.join(check.title for check in others)}." if others else ""
        return Check("code", "!", worst.title, f"{_sentence(worst.evidence)}{also}")
    of_saves = _about_saves(rule, evidence)
    if of_saves is not None:
        return of_saves
    optimizer = evidence.resumed_checkpoint.has_optimizer if evidence.resumed_checkpoint else None
    if rule.startswith("resume_") or optimizer is False:
        where = f"step {evidence.resumed_from_step:,}" if evidence.resumed_from_step is not None else "an unknown checkpoint"
        if optimizer is False:
            return Check(
                "code", "!", "Checkpoint without optimizer state",
                f"Attempt {evidence.attempt} went on from {where}, which holds weights only.",
            )  # fmt: skip
        if optimizer is True:
            return Check(
                "code", "–", f"The checkpoint of {where} holds the optimizer", "See in the trainer's log that it was loaded too."
            )
        return Check("code", "?", f"Resumed from {where}, optimizer not known", SYMPTOMS["loss rebounds after a restart"].action)
    first = evidence.attempt_first_step
    if (
        first is not None
        and evidence.onset_step is not None
        and 0 <= evidence.onset_step - first <= DATA_WINDOW_STEPS
        and (evidence.attempt or 1) > 1
    ):
        resumed = f", going on from step {evidence.resumed_from_step:,}" if evidence.resumed_from_step is not None else ""
        return Check(
            "code", "!", f"Attempt {evidence.attempt} began {evidence.onset_step - first:,} steps before",
            f"A restart{resumed}: compare script, settings and what was loaded with the attempt before.",
        )  # fmt: skip
    configs = [e for e in evidence.events if e.kind == "attempt_start" and ("config" in e.data or "config_sha256" in e.data)]
    if not (configs or evidence.tells_settings):
        return Check(
            "code", "?", "No restart near; settings not reported",
            "The trainer does not report its settings: compare script and learning rate by hand.",
        )  # fmt: skip
    return Check(
        "code", "–", "No restart and no change of settings",
        f"since attempt {evidence.attempt} began; see the learning rate on the curves.",
    )  # fmt: skip


def _faults_of_code(rule: str, evidence: Evidence) -> list[Check]:
    """What speaks against the program and its settings, what was measured in the run before what was only changed."""
    found = []
    death = _death(rule, evidence, "code")
    if death is not None:
        found.append(Check("code", "!", "The program itself failed", death.text[:300]))
    ran_away = _learning_rate_ran_away(evidence)
    if ran_away is not None:
        found.append(ran_away)
    mismatch = next((f for f in evidence.findings if f.rule in ("resume_lr_mismatch", "lr_schedule_mismatch")), None)
    if mismatch is not None:
        found.append(Check("code", "!", "Learning rate differs from the schedule", mismatch.message))
    changed = next((f for f in evidence.findings if f.rule == "resume_config_changed" and f.severity is not Severity.INFO), None)
    if changed is not None:
        found.append(Check("code", "!", "Configuration changed with the restart", changed.message))
    return found


def _about_saves(rule: str, evidence: Evidence) -> Check | None:
    """What the program itself did or would do: which checkpoint it loads, what it leaves out of one."""
    if rule not in ("resume_behind", "checkpoint_no_optimizer"):
        return None
    found = next((f for f in evidence.findings if f.rule == rule), None)
    action = symptom(rule).action
    if found is None:
        return Check("code", "?", "Not known which checkpoint was loaded or left out what", action)
    title = "The launch picks the checkpoint" if rule == "resume_behind" else "The save leaves the optimizer out"
    return Check("code", "!", title, f"{_sentence(found.message[:300])} {action}")


def _learning_rate_ran_away(evidence: Evidence) -> Check | None:
    """A warm-up doubles the rate within the points that say what is usual; more than that is no schedule."""
    now, usual = evidence.lr_now, evidence.lr_usual
    if now is None or not usual or usual <= 0 or now < LR_TIMES * usual:
        return None
    return Check(
        "code",
        "!",
        f"Learning rate {now / usual:,.0f}× what it was",
        f"{now:.3g} {evidence.when}, {usual:.3g} before the onset. Compare the schedule with the plan before anything is started again.",
    )


def _numerics(rule: str, evidence: Evidence) -> Check:
    death = _death(rule, evidence, "numerics")
    gave_up = f"The trainer gave up, {_sentence(death.text[:300])} " if death is not None else ""
    if evidence.nonfinite:
        shown = ", ".join(f"{name} {kind}" for name, kind in evidence.nonfinite[:4])
        return Check("numerics", "!", f"Not a finite number: {shown}", f"{gave_up}{SYMPTOMS['occasional NaN'].action}")
    if death is not None:
        return Check("numerics", "!", "The trainer gave up on its numbers", f"{gave_up}{SYMPTOMS['occasional NaN'].action}")
    on_disk = next((f for f in evidence.findings if f.rule.startswith("checkpoint_") and _BAD_NUMBERS.search(f.message)), None)
    if on_disk is not None:
        return Check("numerics", "!", "Damaged numbers in the weights on the disk", _sentence(on_disk.message[:300]))
    if not _is_about_training(rule):
        on_files = (
            " That is the training; what the file holds is for the checks of the checkpoint."
            if rule.startswith("checkpoint_")
            else ""
        )
        return Check(
            "numerics", "–", "Values of the training are finite", f"Loss, grad norm and the others, as last logged.{on_files}"
        )
    told = [e for e in evidence.events if e.kind == "message" and _was_there(evidence, e)]
    overflow = [e for e in told if ("overflow" in e.text.lower() or "skipp" in e.text.lower())]
    near = [e for e in overflow if _near_before(evidence, e) or evidence.onset_step is None]
    if near:
        return Check("numerics", "!", f"{len(near):,} skipped or overflowing steps", near[-1].text[:200])
    leading = [f for f in evidence.findings if f.rule.startswith("grad_norm")]
    if leading:
        first = min(leading, key=lambda f: f.first_step)
        losses = [f.first_step for f in evidence.findings if f.rule.startswith("loss_")]
        lead = min(losses, default=first.first_step) - first.first_step
        count = f"{abs(lead):,} step{'s' if abs(lead) != 1 else ''}"
        when = "together with the loss" if lead == 0 else f"{count} {'before' if lead > 0 else 'after'} the loss"
        return Check(
            "numerics", "!", f"Grad norm rose {when}",
            f"{_sentence(first.message)} See clipping (max_grad_norm) and the loss scale.",
        )  # fmt: skip
    now, usual = evidence.grad_norm_now, evidence.grad_norm_usual
    if now is not None and usual is not None and usual > 0 and now >= GRAD_NORM_TIMES * usual:
        # No rule may have told it: a note silences rules, and not what was measured.
        return Check(
            "numerics", "!", f"Grad norm {now / usual:,.0f}× what it was",
            f"{now:.3g} {evidence.when}, {usual:.3g} before the onset. See clipping (max_grad_norm) and the loss scale.",
        )  # fmt: skip
    if not evidence.has_grad_norm:
        return Check("numerics", "?", "Grad norm is not logged", SYMPTOMS["occasional NaN"].action)
    scale = f", loss scale {evidence.loss_scale:,.0f}" if evidence.loss_scale is not None else ""
    return Check("numerics", "–", "All values finite, grad norm as usual", f"no skipped or overflowing steps reported{scale}")


def _was_heard_after(node: NodeSample, onset_ns: int | None) -> bool:
    return node.state == "silent" and onset_ns is not None and node.time_ns > onset_ns + HEARD_AFTER_NS


def _cluster(rule: str, evidence: Evidence) -> Check:
    faults = [
        e
        for e in evidence.events
        if e.kind == "fault" and _layer_of(e.data) == "cluster" and _around(evidence, e) and _is_of_it(evidence, e)
    ]
    death = _death(rule, evidence, "cluster")
    bad = [
        node for node in evidence.nodes or () if node.state in BAD_NODE_STATES and not _was_heard_after(node, evidence.onset_ns)
    ]
    ranks = [f for f in evidence.findings if f.rule in ("rank_loss_mismatch", "straggler", "rank_silent", "nccl_timeout")]
    busy = busy_words(evidence.nodes or ()) if rule in HUNG_RULES else ""
    parts = [death.text[:300]] if death is not None else []
    if death is not None:
        faults = [fault for fault in faults if not _is_the_cause(fault, death)]
    if faults:
        newest = max(faults, key=lambda e: e.time_ns or 0)
        count = f"{len(faults)} {'others' if len(faults) > 1 else 'other'}" if death is not None else str(len(faults))
        parts.append(f"{count} in the log, last: {str(newest.data.get('class') or newest.text)[:120]}")
    if bad:
        shown = ", ".join(f"{node.node} {node.state}{' (simulated)' if node.is_simulated else ''}" for node in bad[:3])
        parts.append(f"nodes: {shown}{f' and {len(bad) - 3} more' if len(bad) > 3 else ''}")
    outside = outside_alerts(evidence.events, evidence.onset_ns, CLUSTER_WINDOW_NS)
    parts.extend([outside] if outside else [])
    parts.extend(finding.message for finding in ranks[:1])
    if parts:
        titles = (
            (death, "The logs name the cause"),
            (faults, "Faults in the log"),
            (bad, "Nodes not well"),
            (outside, "Alerts of the cluster"),
        )
        title = next((words for found, words in titles if found), "Ranks differ")
        return Check("cluster", "!", title, "; ".join([*parts, *([busy] if busy else [])]))
    if evidence.nodes is None or all(node.state == "no_gpu" for node in evidence.nodes):
        collected = "not collected" if evidence.sees_nodes else "is on the dashboard's Nodes page"
        return Check(
            "cluster",
            "?",
            f"No fault in the log; GPU health {collected}",
            "Look at Xid, ECC, links and throttling with your cluster's own tools.",
        )
    seen = f"{len(evidence.nodes):,} nodes seen, ± 30 min around the onset{f'; {busy}' if busy else ''}"
    return Check("cluster", "–", "No fault in the log, no bad node", seen)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _around(evidence: Evidence, event: Event) -> bool:
    if evidence.onset_ns is None or event.time_ns is None:
        return True
    return abs(event.time_ns - evidence.onset_ns) <= CLUSTER_WINDOW_NS
