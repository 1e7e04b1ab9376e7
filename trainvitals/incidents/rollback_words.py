"""The way back in words, for the verdict, the pages and the alerts. Pure."""

from __future__ import annotations

from trainvitals.incidents.amounts import gpu_hours
from trainvitals.incidents.rollback import Rollback


def safe_sentence(rollback: Rollback) -> str:
    """``safe checkpoint: step 48,000, content verified, before the onset, pinned; going back redoes 310 steps = 2,650 GPU-h``."""
    safe = rollback.checkpoint
    if safe is None or safe.step is None:
        return f"no safe checkpoint: {rollback.why[0].lower()}{rollback.why[1:].rstrip('.')}"
    parts = [f"step {safe.step:,}", f"{safe.level.value} verified" if safe.level is not None else "not verified"]
    if rollback.onset_step is not None:
        parts.append("before the onset" if safe.step < rollback.onset_step else "after the recovery")
    if safe.has_optimizer is False:
        parts.append("WITHOUT optimizer state")
    if rollback.is_pinned:
        parts.append("pinned")
    return f"safe checkpoint: {', '.join(parts)}" + (f"; going back {cost}" if (cost := cost_words(rollback)) else "")


def cost_words(rollback: Rollback) -> str:
    """``redoes 310 steps = 1.3 billion tokens = 2,650 GPU-h``; "" when the steps are not known."""
    if rollback.redo_steps is None:
        return ""
    text = f"redoes {rollback.redo_steps:,} step{'' if rollback.redo_steps == 1 else 's'}"
    if rollback.redo_tokens:
        text += f" = {_tokens(rollback.redo_tokens)}"
    hours = gpu_hours(rollback.redo_gpu_hours) if rollback.redo_gpu_hours is not None else ""
    return text + (f" = {hours}" if hours else "")


def _tokens(count: int) -> str:
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name} tokens"
    return f"{count:,} tokens"
