"""What to check first, in which order, and what is known of it: first the data, then the code, then the cluster.

The order of the checks never changes; the first suspect (``symptoms``) says where the answer most often is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from trainvitals.incidents.busy import busy_words
from trainvitals.incidents.data_check import data_changes as data_changes
from trainvitals.incidents.data_check import data_check
from trainvitals.incidents.deciding import HUNG_RULES
from trainvitals.incidents.evidence import DATA_WINDOW_STEPS as DATA_WINDOW_STEPS
from trainvitals.incidents.evidence import Check as Check
from trainvitals.incidents.evidence import Evidence as Evidence
from trainvitals.incidents.evidence import is_about_training, near_before, was_there
from trainvitals.incidents.outside import outside_alerts
from trainvitals.incidents.symptoms import SYMPTOMS, symptom
from trainvitals.records import Event, NodeSample, Severity

#: Layers in the order in which they are checked.
LAYERS = ("data", "code", "numerics", "cluster")
#: Cluster events this long around the onset are suspects.
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


def triage(rule: str, evidence: Evidence) -> tuple[Check, ...]:
    """The four checks in the order data, code, numerics, cluster, each with what is known of it here."""
    answers: dict[str, Callable[[str, Evidence], Check]] = {
        "data": data_check, "code": _code, "numerics": _numerics, "cluster": _cluster
    }  # fmt: skip
    return tuple(answers[layer](rule, evidence) for layer in LAYERS)


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
    return is_its_start and was_there(evidence, event)


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
    if not is_about_training(rule):
        on_files = (
            " That is the training; what the file holds is for the checks of the checkpoint."
            if rule.startswith("checkpoint_")
            else ""
        )
        return Check(
            "numerics", "–", "Values of the training are finite", f"Loss, grad norm and the others, as last logged.{on_files}"
        )
    told = [e for e in evidence.events if e.kind == "message" and was_there(evidence, e)]
    overflow = [e for e in told if ("overflow" in e.text.lower() or "skipp" in e.text.lower())]
    near = [e for e in overflow if near_before(evidence, e) or evidence.onset_step is None]
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
