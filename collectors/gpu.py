"""GPU health of this machine: readings of NVML graded into samples, one GPU at a time, and the node as the worst of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from collectors.gpu_process import Opening, Unresponsive
from collectors.nvml import Fault, GpuReading, Reading
from collectors.xids import APPLICATION_XIDS, FATAL_XIDS, FOLLOWING_XIDS, XID_COUNTS_S
from trainvitals.clock import Clock
from trainvitals.records import GpuSample, NodeSample, Point
from trainvitals.store.encode import gpu_point, node_point

#: Rising order; the node's state is the worst of its GPUs.
STATES = ("ok", "warm", "warn", "fail", "lost")
#: HW slowdown, HW thermal slowdown, HW power brake. Idle, application clocks and the power cap are everyday life.
HARDWARE_THROTTLE = 0x8 | 0x40 | 0x80
WARM_C, MEMORY_WARM_C = 85.0, 95.0
#: Software thermal slowdown: the driver lowers the clocks because it is hot.
SOFTWARE_THROTTLE = 0x20
#: What the driver itself asks for (``nvmlDeviceGpuRecoveryAction``), and how bad that is.
RECOVERY_ACTIONS = {
    1: ("fail", "reset this GPU"), 2: ("fail", "reboot the node"), 3: ("warn", "end the jobs that use its links to other GPUs"),
    4: ("fail", "drain the node and reset this GPU"), 5: ("warn", "recover the IMEX domain"), 6: ("fail", "reset its bus"),
    7: ("fail", "reboot the system"),
}  # fmt: skip
#: Questions that every working GPU answers (one or two of them not in a container or in MIG mode) -> the answer's name.
MAIN_QUESTIONS = {
    "utilization": "utilization_percent", "memory": "memory_used_bytes", "temperature": "temperature_c", "power": "power_w",
}  # fmt: skip
DRIVER_TEXT = {
    Fault.NO_LIBRARY: "no NVIDIA driver on this machine",
    Fault.NO_DRIVER: "the NVIDIA driver library is there, but the kernel module is not loaded: load it (modprobe nvidia) or reboot",
    Fault.NO_PERMISSION: "the NVIDIA driver may not be asked by this user: look at the rights of /dev/nvidia* and of the container",
    Fault.UNKNOWN: "the NVIDIA driver cannot be opened: see the kernel log (dmesg). In a container its devices may have been taken away "
    "(systemctl daemon-reload does that): start the container again",
    Fault.DRIVER_MISMATCH: "driver library and kernel module differ in version (an update under a running module): reload it or reboot",
}
_FATAL_FAULTS = frozenset((Fault.RESET_REQUIRED, Fault.CORRUPTED_INFOROM))
#: No answer to a question that is answered usually: not a matter of rights, models or driver versions.
_HARD_FAULTS = frozenset((Fault.UNKNOWN, Fault.TIMEOUT, Fault.IMPLAUSIBLE))
_SAMPLE_FIELDS = frozenset(declared.name for declared in fields(GpuSample)) - {"node", "gpu", "index", "time_ns", "state"}


class Source(Protocol):
    """Where readings come from: ``GpuProcess``, or a list in a test."""

    def poll(self) -> Reading:
        """One reading; raises ``Unresponsive``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of one GPU and why, in words."""

    state: str
    text: str = ""


def grade(gpu: GpuReading, before: GpuSample | None, grew_age_s: float | None = None) -> Verdict:
    """State of a GPU from its reading and the sample before (None at the first). Pure.

    Hardware throttling counts when it lasts two polls; ECC counters count when they grow, and one that fell began anew at zero.
    grew_age_s: seconds since the ECC counter last grew, None = it did not, or was reset since.
    """
    values = gpu.values
    if gpu.is_lost:
        return Verdict("lost", "is lost (fell off the bus): reboot the node, then check the hardware")
    fatal = sorted(name for name, fault in gpu.faults.items() if fault in _FATAL_FAULTS)
    if fatal:
        return Verdict("fail", f"needs a reset ({gpu.faults[fatal[0]]})")
    if values.get("remapped_rows_failure"):
        return Verdict("fail", "could not remap a bad memory row: replace it")
    asked_for = RECOVERY_ACTIONS.get(values.get("recovery_action") or 0)
    if asked_for is not None and asked_for[0] == "fail":
        return Verdict("fail", f"needs help, its driver says: {asked_for[1]}")
    xid = values.get("xid_last") if values.get("xid_age_s", 0.0) < XID_COUNTS_S else None
    if xid in FATAL_XIDS:
        return Verdict("fail", f"reported XID {xid}: drain the node")
    if has_new_errors(values.get("ecc_uncorrected"), before):
        return Verdict("fail", f"has new uncorrectable memory errors ({values['ecc_uncorrected']})")
    if grew_age_s is not None and grew_age_s < XID_COUNTS_S:
        return Verdict(
            "fail",
            f"had new uncorrectable memory errors {grew_age_s / 60:.0f} min ago ({values.get('ecc_uncorrected', 'not answered')})",
        )
    if gpu.faults.get("handle"):
        if gpu.faults["handle"] in _HARD_FAULTS:
            return Verdict(
                "fail", f"cannot be asked ({gpu.faults['handle']}): see the kernel log (dmesg), then reset it or reboot"
            )
        return Verdict("warn", f"cannot be asked ({gpu.faults['handle']})")
    silent = [name for name in MAIN_QUESTIONS if gpu.faults.get(name) in _HARD_FAULTS]
    if len(silent) > 1 and not any(name in values for name in MAIN_QUESTIONS.values()):
        return Verdict(
            "fail", f"answers no question ({', '.join(f'{name} {gpu.faults[name]}' for name in silent)}): reset it or reboot"
        )
    if asked_for is not None:
        return Verdict(asked_for[0], f"needs help, its driver says: {asked_for[1]}")
    if values.get("remapped_rows_pending"):
        return Verdict("warn", "waits for a reset to remap a memory row")
    if values.get("ecc_uncorrected"):
        return Verdict("warn", f"had {values['ecc_uncorrected']} uncorrectable memory errors since the driver was loaded")
    if xid is not None and xid not in APPLICATION_XIDS | FOLLOWING_XIDS:
        return Verdict("warn", f"reported XID {xid}: investigate")
    throttle = (values.get("throttle_reasons") or 0) & HARDWARE_THROTTLE
    if throttle and before is not None and (before.throttle_reasons or 0) & HARDWARE_THROTTLE:
        return Verdict("warn", f"is slowed down by its hardware (reasons {throttle:#x})")
    if throttle:
        return Verdict("warm", f"was slowed down by its hardware (reasons {throttle:#x})")
    if (values.get("temperature_c") or 0) >= WARM_C or (values.get("memory_temperature_c") or 0) >= MEMORY_WARM_C:
        return Verdict("warm", "is hot")
    if (values.get("throttle_reasons") or 0) & SOFTWARE_THROTTLE:
        return Verdict("warm", "is slowed down because it is hot")
    return Verdict("ok")


def has_new_errors(ecc_uncorrected: int | None, before: GpuSample | None) -> bool:
    """Whether the counter grew; without a sample before, one that is not zero is history, not news."""
    if before is None or not ecc_uncorrected:
        return False
    known = before.ecc_uncorrected or 0
    return ecc_uncorrected != known


def sample_of(node: str, gpu: GpuReading, state: str, time_ns: int) -> GpuSample:
    """The record of a reading; what the driver does not support is absent."""
    values: dict[str, Any] = {name: value for name, value in gpu.values.items() if name in _SAMPLE_FIELDS}
    return GpuSample(node=node, gpu=gpu.uuid or f"index-{gpu.index}", index=gpu.index, time_ns=time_ns, state=state, **values)


def node_of(node: str, samples: Sequence[GpuSample], texts: Sequence[str], time_ns: int) -> NodeSample:
    """The node as the worst of its GPUs; a lost GPU fails the node. Figures are over the GPUs that answered."""
    worst = max((STATES.index(sample.state) for sample in samples), default=0)
    utilization = [sample.utilization_percent for sample in samples if sample.utilization_percent is not None]
    power = [sample.power_w for sample in samples if sample.power_w is not None]
    ecc = [sample.ecc_uncorrected for sample in samples if sample.ecc_uncorrected is not None]
    return NodeSample(
        node=node,
        time_ns=time_ns,
        state="fail" if STATES[worst] == "lost" else STATES[worst],
        gpus=len(samples),
        utilization_mean_percent=sum(utilization) / len(utilization) if utilization else None,
        utilization_min_percent=min(utilization, default=None),
        temperature_max_c=max((s.temperature_c for s in samples if s.temperature_c is not None), default=None),
        power_sum_w=sum(power) if power else None,
        memory_used_max_bytes=max((s.memory_used_bytes for s in samples if s.memory_used_bytes is not None), default=None),
        ecc_uncorrected=sum(ecc) if ecc else None,
        xid_last=next((s.xid_last for s in reversed(samples) if s.xid_last is not None), None),
        text="; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else ""),
    )


class GpuCollector:
    """One sample per GPU and one of the node at each ``collect``; every outcome is a sample, silence is never one."""

    name = "gpu"

    def __init__(
        self, node: str, source: Source, clock: Clock, say: Callable[[str], None] | None = None, expected: int = 0
    ) -> None:
        """expected: GPUs of this machine; fewer are a fault also when none was ever seen, 0 = as many as were seen."""
        self._node = node
        self._expected = expected
        self._source = source
        self._clock = clock
        self._say = say or _stderr
        self._last: dict[str, GpuSample] = {}
        #: UUID -> newest ECC count that the GPU told, and when it last grew (monotonic): a poll without an answer forgets neither.
        self._ecc: dict[str, int] = {}
        self._answered_ns: dict[str, int] = {}
        self._grew_at_s: dict[str, float] = {}
        self._said: set[str] = set()
        self._failure = ""

    def collect(self) -> Iterable[Point]:
        """Points of measurement ``gpu`` and one of ``node``."""
        samples, node = self.samples()
        return [*(gpu_point(sample) for sample in samples), node_point(node)]

    def close(self) -> None:
        self._source.close()

    def samples(self) -> tuple[list[GpuSample], NodeSample]:
        """The records behind the points."""
        try:
            reading = self._source.poll()
        except Opening as error:
            return [], self._failed("warn", str(error), "opening")
        except Unresponsive as error:
            return [], self._failed("fail", str(error), "unresponsive")
        time_ns = self._clock.time_ns()
        if reading.fault is not None:
            text = DRIVER_TEXT.get(Fault(reading.fault), f"the NVIDIA driver does not answer ({reading.fault}: {reading.text})")
            has_gpus = bool(self._last) or self._expected > 0
            state = "no_gpu" if reading.fault == Fault.NO_LIBRARY and not has_gpus else "fail"
            return [], self._failed(state, text + self._missing_words() * has_gpus, reading.fault)
        if not reading.gpus and not self._last:
            state = "fail" if self._expected else "no_gpu"
            return [], self._failed(state, f"the NVIDIA driver reports no GPU{self._missing_words()}", "no_gpu")
        if self._failure:
            self._failure = ""
            self._say(f"{self._node}: the NVIDIA driver answers again")
        samples, texts = self._graded(reading, time_ns)
        self._say_absent_fields(reading)
        node = node_of(self._node, samples, texts, time_ns)
        seen = sum(sample.state != "lost" for sample in samples)
        if seen < self._expected:
            text = f"{seen} of {self._expected} GPUs are there: reboot the node, then check the hardware"
            node = replace(node, state="fail", text=f"{text}; {node.text}" if node.text else text)
        return samples, node

    def _missing_words(self) -> str:
        count = max(self._expected, len(self._last))
        return f"; this machine has {count} GPU{'s' if count != 1 else ''}" if count else ""

    def _failed(self, state: str, text: str, failure: str) -> NodeSample:
        """The whole node has one trouble, said when it begins. Known GPUs keep their number, so a wall of tiles does not shrink."""
        if failure != self._failure:
            self._failure = failure
            self._say(f"{self._node}: {text}")
        return NodeSample(node=self._node, time_ns=self._clock.time_ns(), state=state, gpus=len(self._last), text=text)

    def _graded(self, reading: Reading, time_ns: int) -> tuple[list[GpuSample], list[str]]:
        samples: list[GpuSample] = []
        texts: list[str] = []
        nameless: list[GpuReading] = []
        for gpu in reading.gpus:
            if not gpu.uuid:
                nameless.append(gpu)
                continue
            verdict = self._verdict(gpu)
            samples.append(sample_of(self._node, gpu, verdict.state, time_ns))
            if verdict.text:
                texts.append(f"GPU {gpu.index} ({gpu.uuid}) {self._since(gpu.uuid, verdict)}")
            if verdict.state != "lost":
                self._answered_ns[gpu.uuid] = time_ns
        seen = {sample.gpu for sample in samples}
        # A lost GPU shifts the index of the others or answers without its name: it is known by who is missing.
        missing = [sample for uuid, sample in self._last.items() if uuid not in seen and not uuid.startswith("index-")]
        for known in missing:
            gpu = GpuReading(known.index, known.gpu, {"name": known.name} if known.name else {}, is_lost=True)
            samples.append(sample_of(self._node, gpu, "lost", time_ns))
            texts.append(f"GPU {known.index} ({known.gpu}) {self._since(known.gpu, grade(gpu, None))}")
        for gpu in nameless[len(missing) :]:
            verdict = grade(gpu, None)
            samples.append(sample_of(self._node, gpu, verdict.state, time_ns))
            texts.append(f"GPU {gpu.index} {verdict.text}")
        samples.sort(key=lambda sample: (sample.index, sample.gpu))
        self._last |= {sample.gpu: sample for sample in samples}
        return samples, texts

    def _verdict(self, gpu: GpuReading) -> Verdict:
        """Graded against what is known of the GPU from all its samples before."""
        before, now_s, ecc = self._last.get(gpu.uuid), self._clock.monotonic_s(), gpu.values.get("ecc_uncorrected")
        if before is not None:
            before = replace(before, ecc_uncorrected=self._ecc.get(gpu.uuid))
        if has_new_errors(ecc, before):
            self._grew_at_s[gpu.uuid] = now_s
        if ecc == 0:
            self._grew_at_s.pop(gpu.uuid, None)
        grew_at_s = self._grew_at_s.get(gpu.uuid)
        verdict = grade(gpu, before, None if grew_at_s is None else now_s - grew_at_s)
        if ecc is not None:
            self._ecc[gpu.uuid] = ecc
        return verdict

    def _since(self, uuid: str, verdict: Verdict) -> str:
        """The verdict's words; of a lost GPU with the time at which it last answered, as far as this process knows it."""
        answered_ns = self._answered_ns.get(uuid)
        if verdict.state != "lost" or answered_ns is None:
            return verdict.text
        at = f"{datetime.fromtimestamp(answered_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return verdict.text.replace("(fell off the bus)", f"(fell off the bus, last answered {at})")

    def _say_absent_fields(self, reading: Reading) -> None:
        for gpu in reading.gpus:
            for name, fault in sorted(gpu.faults.items()):
                self._say_once(f"{self._node}: GPU {gpu.index}: {name}: {fault}; left out")

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            self._say(text)


def _stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
