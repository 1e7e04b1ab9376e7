"""Numbers that may live on a device, read without making the trainer wait for it. Needs torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch


class DeviceValues:
    """Takes the values as they are now (a later in-place change alters nothing) and starts their copy to the host.

    CUDA and ROCm tensors come in one asynchronous copy. Those of other devices and of the host are read at once. What is no
    single number becomes None, and so does a sharded tensor: reading it would be a collective (hand over ``full_tensor()``).
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values: dict[str, object] = {}
        self._names: list[str] = []
        self._buffer: Any = None
        self._copied: Any = None
        on_device: list[Any] = []
        for name, value in values.items():
            if not isinstance(value, torch.Tensor):
                self._values[name] = value
            elif value.numel() != 1 or hasattr(value, "full_tensor"):
                self._values[name] = None
            elif value.is_cuda:
                self._values[name] = None  # keeps the place
                self._names.append(name)
                on_device.append(value.detach().reshape(()))
            else:
                self._values[name] = _host_number(value)
        if on_device:
            self._buffer, self._copied = start_copy(on_device)

    def is_ready(self) -> bool:
        """Whether the numbers have come."""
        return self._copied is None or bool(self._copied.query())

    def result(self, timeout_s: float = 0.0) -> dict[str, object]:
        """The numbers; waits for the device at most so long. A device that does not answer then (a hung collective) leaves
        its values None: never wait for it without an end, the trainer may be about to fail because of it.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self.is_ready() and time.monotonic() < deadline_s:
            time.sleep(0.001)
        if self._copied is not None and self.is_ready():
            self._values.update(zip(self._names, self._buffer.tolist(), strict=True))
            self._copied = None
        return self._values


def _host_number(value: Any) -> float | None:
    try:
        return float(value.detach())
    except (TypeError, ValueError, RuntimeError):  # complex numbers, tensors without data; None is counted as skipped
        return None


def start_copy(scalars: list[Any]) -> tuple[Any, Any]:
    """(host buffer, event that is done when the buffer is filled) for scalars on one device or several."""
    is_exact = any(scalar.dtype in (torch.float64, torch.int64) for scalar in scalars)
    kind = torch.float64 if is_exact else torch.float32
    first = scalars[0].device
    stacked = torch.stack([scalar.to(device=first, dtype=kind, non_blocking=True) for scalar in scalars])
    buffer = torch.empty(len(scalars), dtype=kind, pin_memory=True)
    buffer.copy_(stacked, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(first))
    return buffer, copied
