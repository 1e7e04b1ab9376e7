"""The one door to NVML. Everything that leaves here is plain data or a ``Fault`` of our own.

``pynvml.NVMLError`` cannot be hashed, and comparing it with ``==`` can raise (seen with nvidia-ml-py 13.615), so it is turned
into a ``Fault`` where it is caught. ``NVMLLibraryMismatchError`` is no ``NVMLError`` at all. NVML can hang for ever instead of
failing: call this only in a process of its own (``collectors.gpu_child``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pynvml

from collectors.xids import MAX_XIDS, speaking
from trainvitals.clock import Clock


class Fault(StrEnum):
    """What can be wrong with the driver or one GPU."""

    NO_LIBRARY = "no_library"
    NO_DRIVER = "no_driver"
    DRIVER_MISMATCH = "driver_mismatch"
    GPU_LOST = "gpu_lost"
    RESET_REQUIRED = "reset_required"
    CORRUPTED_INFOROM = "corrupted_inforom"
    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    FUNCTION_NOT_FOUND = "function_not_found"
    UNINITIALIZED = "uninitialized"
    TIMEOUT = "timeout"
    IMPLAUSIBLE = "implausible"
    UNKNOWN = "unknown"


_FAULTS = {
    1: Fault.UNINITIALIZED, 3: Fault.NOT_SUPPORTED, 4: Fault.NO_PERMISSION, 9: Fault.NO_DRIVER, 10: Fault.TIMEOUT,
    12: Fault.NO_LIBRARY, 13: Fault.FUNCTION_NOT_FOUND, 14: Fault.CORRUPTED_INFOROM, 15: Fault.GPU_LOST,
    16: Fault.RESET_REQUIRED, 18: Fault.DRIVER_MISMATCH, 25: Fault.NOT_SUPPORTED,
}  # fmt: skip
#: Asking again soon is useless. Not for ever: a GPU that leaves MIG mode, or a right that is given, changes the answer.
LASTING = frozenset({Fault.NOT_SUPPORTED, Fault.NO_PERMISSION, Fault.FUNCTION_NOT_FOUND})
#: Nothing more can be learnt from this GPU in this poll.
ENDS_GPU = frozenset({Fault.GPU_LOST, Fault.UNINITIALIZED})
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 60.0, 600.0
ASK_AGAIN_S = 3600.0
MAX_UNCOUNTED = 16
_MAX_EVENTS_PER_POLL = 64
#: Beyond these a number is none: more than any GPU has, draws or counts, and within what a store takes.
_MAX_C, _MAX_W, _MAX_MHZ, _MAX_MEMORY_BYTES, _MAX_COUNT = 150.0, 10_000.0, 10_000.0, 1 << 50, float(1 << 53)
#: Union member of a field value by its declared type.
_FIELD_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}


class NvmlFault(Exception):
    """A call failed; ``fault`` says how."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass
class GpuReading:
    """One GPU: ``values`` by field name of ``GpuSample`` (what is not supported is absent), and ``xid_age_s`` since the
    XID that speaks for it; ``faults`` by field."""

    index: int
    uuid: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    is_lost: bool = False


@dataclass
class Reading:
    """One poll. ``fault``: the driver as a whole did not answer, then there are no GPUs in it."""

    fault: str | None = None
    text: str = ""
    gpus: list[GpuReading] = field(default_factory=list)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of pynvml; raises ``NvmlFault`` for all of its ways to fail."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        raise NvmlFault(_FAULTS.get(code, Fault.UNKNOWN), f"NVML error {code}") from None
    except pynvml.NVMLLibraryMismatchError:
        raise NvmlFault(Fault.NOT_SUPPORTED, "pynvml and the driver disagree on a structure") from None
    except (AttributeError, UnicodeDecodeError, OSError, ctypes.ArgumentError) as error:
        # AttributeError: another package shadows the module; UnicodeDecodeError: a name that is no text.
        raise NvmlFault(Fault.UNKNOWN, f"{type(error).__name__} in NVML") from None


class Nvml:
    """Lazily initialised; remembers what each GPU does not support; initialises again, with back-off, when handles go stale."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_open = False
        self._unsupported: dict[tuple[str, str], float] = {}
        self._events: Any = None
        self._uuid_of_handle: dict[int, str] = {}
        #: UUID -> XID -> when it last came (monotonic).
        self._xids: dict[str, dict[int, float]] = {}
        self._event_faults: dict[int, str] = {}
        self._text = ""
        self._reopen_at_s = 0.0
        self._back_off_s = _FIRST_BACK_OFF_S

    def read(self) -> Reading:
        """One poll of everything; never raises, may hang."""
        try:
            self._open()
            count = call(pynvml.nvmlDeviceGetCount)
        except NvmlFault as fault:
            self._is_open = self._is_open and fault.fault is not Fault.UNINITIALIZED
            return Reading(fault.fault.value, str(fault))
        reading = Reading(text=self._text, gpus=self._gpus(count))
        self._drain_events(reading)
        if any(gpu.is_lost for gpu in reading.gpus):
            self._reopen_later()
        return reading

    def _gpus(self, count: int) -> list[GpuReading]:
        """All of them: a lost GPU may keep its index without being counted, and the last ones then stand beyond the count
        (koordinator-sh/koordinator pull request 2706)."""
        found: list[GpuReading] = []
        end = count
        while len(found) < end:
            gpu = self._gpu(len(found))
            has_failed = "handle" in gpu.faults
            if has_failed and len(found) >= count:
                break
            found.append(gpu)
            end = min(end + has_failed, count + MAX_UNCOUNTED)
        return found

    def _open(self) -> None:
        if not self._is_open:
            call(pynvml.nvmlInit)
            self._is_open = True
            self._register_events()

    def _reopen_later(self) -> None:
        """A lost GPU makes handles stale; initialising anew finds what is left, but not at every poll."""
        now_s = self._clock.monotonic_s()
        if now_s < self._reopen_at_s:
            return
        if self._reopen_at_s:
            self._shutdown()
            self._back_off_s = min(_MAX_BACK_OFF_S, self._back_off_s * 2)
        self._reopen_at_s = now_s + self._back_off_s

    def _shutdown(self) -> None:
        try:
            if self._events is not None:
                call(pynvml.nvmlEventSetFree, self._events)
            call(pynvml.nvmlShutdown)
        except NvmlFault as fault:
            # The library is in no state to be closed properly; the next init tells whether it is usable.
            self._text = f"NVML could not be closed before it was opened again ({fault.fault})"
        self._is_open, self._events = False, None
        self._uuid_of_handle.clear()

    def _gpu(self, index: int) -> GpuReading:
        gpu = GpuReading(index)
        if index in self._event_faults:
            gpu.faults["events"] = self._event_faults[index]
        try:
            handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
            gpu.uuid = str(call(pynvml.nvmlDeviceGetUUID, handle))
        except NvmlFault as fault:
            gpu.faults["handle"] = fault.fault.value
            gpu.is_lost = fault.fault in ENDS_GPU
            return gpu
        address = ctypes.cast(handle, ctypes.c_void_p).value
        if address is not None:
            self._uuid_of_handle[address] = gpu.uuid
        for name, read in _FIELDS.items():
            if self._clock.monotonic_s() < self._unsupported.get((gpu.uuid, name), 0.0):
                continue
            try:
                gpu.values |= read(handle)
            except NvmlFault as fault:
                if fault.fault in LASTING:
                    self._unsupported[gpu.uuid, name] = self._clock.monotonic_s() + ASK_AGAIN_S
                gpu.faults[name] = fault.fault.value
                if fault.fault in ENDS_GPU:
                    gpu.is_lost = True
                    break
        return gpu

    def _register_events(self) -> None:
        """XID errors come as events; a card or driver without them is served by the kernel log."""
        self._event_faults.clear()
        try:
            self._events = call(pynvml.nvmlEventSetCreate)
            count = call(pynvml.nvmlDeviceGetCount)
        except NvmlFault as fault:
            self._text = f"no XID events from the driver ({fault.fault})"
            return
        for index in range(count):
            # One lost GPU must not silence the events of the others.
            try:
                handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
                call(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
            except NvmlFault as fault:
                self._event_faults[index] = fault.fault.value

    def _drain_events(self, reading: Reading) -> None:
        if self._events is not None:
            try:
                for _ in range(_MAX_EVENTS_PER_POLL):
                    event = call(pynvml.nvmlEventSetWait, self._events, 0)
                    address = ctypes.cast(event.device, ctypes.c_void_p).value
                    uuid = self._uuid_of_handle.get(address or 0, "")
                    came = self._xids.setdefault(uuid, {})
                    came[int(event.eventData)] = self._clock.monotonic_s()
                    while len(came) > MAX_XIDS:
                        del came[min(came, key=lambda xid: came[xid])]
            except NvmlFault as fault:
                if fault.fault is not Fault.TIMEOUT:
                    self._events, self._text = None, f"no more XID events from the driver ({fault.fault})"
        for gpu in reading.gpus:
            if gpu.uuid and gpu.uuid in self._xids:
                now_s = self._clock.monotonic_s()
                number, age_s = speaking({xid: now_s - at_s for xid, at_s in self._xids[gpu.uuid].items()})
                gpu.values |= {"xid_last": number, "xid_age_s": age_s}


def _plausible(value: float, low: float, high: float) -> float:
    """The value, unless no GPU can have it: drivers hand out all ones and counters of their own with a code that says success
    (flightlessmango/MangoHud issue 2144, NVIDIA/gpu-monitoring-tools issue 97)."""
    if not low <= value <= high:
        raise NvmlFault(Fault.IMPLAUSIBLE, f"{value:g} is no such value")
    return value


def _utilization(handle: Any) -> dict[str, Any]:
    return {"utilization_percent": _plausible(float(call(pynvml.nvmlDeviceGetUtilizationRates, handle).gpu), 0, 100)}


def _memory(handle: Any) -> dict[str, Any]:
    info = call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    total = int(_plausible(int(info.total), 1, _MAX_MEMORY_BYTES))
    return {"memory_used_bytes": int(_plausible(int(info.used), 0, total)), "memory_total_bytes": total}


def _field_value(handle: Any, field_id: int) -> float:
    """Each field value has a return code and a type of its own."""
    value = call(pynvml.nvmlDeviceGetFieldValues, handle, [field_id])[0]
    member = _FIELD_MEMBERS.get(int(value.valueType))
    if int(value.nvmlReturn) != 0 or member is None:
        raise NvmlFault(_FAULTS.get(int(value.nvmlReturn), Fault.NOT_SUPPORTED), f"no value of field {field_id}")
    return float(getattr(value.value, member))


def _memory_temperature(handle: Any) -> dict[str, Any]:
    degrees = _plausible(_field_value(handle, pynvml.NVML_FI_DEV_MEMORY_TEMP), 0, _MAX_C)
    return {"memory_temperature_c": degrees} if degrees > 0 else {}


def _recovery_action(handle: Any) -> dict[str, Any]:
    """What the driver itself asks for, 0 = nothing; drivers before 555 do not know the question."""
    return {"recovery_action": int(_field_value(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION))}


def _throttle_reasons(handle: Any) -> dict[str, Any]:
    try:
        reasons = call(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    except NvmlFault as fault:
        if fault.fault is not Fault.FUNCTION_NOT_FOUND:
            raise
        # The name that drivers before 535 know.
        reasons = call(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return {"throttle_reasons": int(_plausible(int(reasons), 0, _MAX_COUNT))}


def _remapped_rows(handle: Any) -> dict[str, Any]:
    _, _, pending, failure = call(pynvml.nvmlDeviceGetRemappedRows, handle)
    return {"remapped_rows_pending": bool(pending), "remapped_rows_failure": bool(failure)}


def _number(
    name: str, function_name: str, *arguments: Any, divisor: float = 0.0, highest: float = _MAX_COUNT
) -> Callable[[Any], dict[str, Any]]:
    def read(handle: Any) -> dict[str, Any]:
        value = call(getattr(pynvml, function_name), handle, *arguments)
        return {name: _plausible(value / divisor, 0, highest) if divisor else int(_plausible(int(value), 0, highest))}

    return read


#: One question each; a question that a GPU does not support is asked once an hour. ECC counts since the last driver load.
_FIELDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "name": lambda handle: {"name": str(call(pynvml.nvmlDeviceGetName, handle))},
    "utilization": _utilization,
    "memory": _memory,
    "temperature": _number("temperature_c", "nvmlDeviceGetTemperature", 0, divisor=1.0, highest=_MAX_C),
    "memory_temperature": _memory_temperature,
    "power": _number("power_w", "nvmlDeviceGetPowerUsage", divisor=1000.0, highest=_MAX_W),
    "power_limit": _number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", divisor=1000.0, highest=_MAX_W),
    "sm_clock": _number("sm_clock_mhz", "nvmlDeviceGetClockInfo", 1, divisor=1.0, highest=_MAX_MHZ),
    "throttle_reasons": _throttle_reasons,
    "ecc_uncorrected": _number("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", 1, 0),
    "ecc_corrected": _number("ecc_corrected", "nvmlDeviceGetTotalEccErrors", 0, 0),
    "remapped_rows": _remapped_rows,
    "pcie_replays": _number("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    "recovery_action": _recovery_action,
}
