"""What busy GPUs say while no step is made: nothing for the training. A kernel that waits for another rank keeps a GPU at 100 % (facebookresearch/fairseq
issue 3083), and draws little power for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from trainvitals.records import NodeSample

#: Utilization from which GPUs are called busy.
BUSY_PERCENT = 90.0


def busy_words(nodes: Sequence[NodeSample]) -> str:
    """``GPUs 100 % busy at 92 W each, which is no proof of work``; "" when they are not busy, or nothing is known of them."""
    told = [one for one in nodes if one.utilization_mean_percent is not None and one.gpus and one.state != "silent"]
    told = [one for one in told if not one.is_simulated] or told
    if not told:
        return ""
    busy = median(one.utilization_mean_percent for one in told if one.utilization_mean_percent is not None)
    if busy < BUSY_PERCENT:
        return ""
    watts = [one.power_sum_w / one.gpus for one in told if one.power_sum_w is not None]
    power = f" at {median(watts):.0f} W each" if watts else ""
    return f"GPUs {busy:.0f} % busy{power}, which is no proof of work"
