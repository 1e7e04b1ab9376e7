"""Who this process is among the ranks of a PyTorch training, and where they meet. Needs torch."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch

from trainvitals.hook.rank_board import Store

STORE_TIMEOUT_S = 10.0
#: Of a number in a launcher's variable; Python refuses to convert very long ones.
MAX_DIGITS = 20


def not_negative(value: Any) -> int:
    """As a whole number, 0 for what is below. Raises what the conversion raises."""
    return max(0, int(value))


def whole(value: Any) -> int | None:
    """None stays None. Raises what the conversion raises."""
    return None if value is None else int(value)


def real(value: Any) -> float | None:
    """None stays None. Raises what the conversion raises."""
    return None if value is None else float(value)


def from_anywhere(given: int | None, function: str, variable: str, default: int) -> int:
    """As given, else what torch.distributed says, else the launcher's variable."""
    if given is not None:
        return given
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(getattr(torch.distributed, function)())
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) < MAX_DIGITS else default


def local_rank() -> int | None:
    """The rank on this host, where the launcher says it."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdecimal() and len(text) < MAX_DIGITS else None


def gpu_uuid() -> str | None:
    """Of the current device, if one is in use already: asking must not start CUDA."""
    if not torch.cuda.is_initialized():
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def meeting_place() -> Store | None:
    """The store of torch.distributed, over a connection of our own: the library's own calls may hold theirs for minutes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    store: Any = torch.distributed.distributed_c10d._get_default_store()
    if hasattr(store, "clone"):  # PyTorch 2.5 and later
        store = store.clone()
        store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
    found: Store = store
    return found


def why_alone(known: int) -> str:
    """Why the ranks cannot meet at the first step, and what to do; "" when there is one only. known: their number so far."""
    world_size = from_anywhere(None, "get_world_size", "WORLD_SIZE", 1)
    if known == 1 and world_size > 1:
        rank = from_anywhere(None, "get_rank", "RANK", 0)
        return (
            f"made before init_process_group, as the only rank; it is rank {rank} of {world_size}. No ranks are compared: make "
            "TrainingMonitor after init_process_group"
        )
    if known > 1:
        return (
            f"torch.distributed has not begun at the first step, so the {known} ranks are not compared; call init_process_group "
            "before it, or choose per_rank='files'"
        )
    return ""
