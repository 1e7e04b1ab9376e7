"""How far the running start of the trainer is: from the hook's file, or from the start's own log where there is no hook."""

from __future__ import annotations

import glob
import math
import os
import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from trainvitals.clock import Clock
from trainvitals.logs.grammars.hook_jsonl import HookJsonl
from trainvitals.logs.tail import LogSource
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step
from trainvitals.supervisor.loss_memory import LossMemory

HOOK_FILE = "metrics.rank00000.jsonl"
MAX_BYTES_A_LOOK = 4 << 20
#: A line longer than this is none of the hook's.
MAX_LINE_BYTES = 1 << 20
WINDOW = 200
_RATES = ("tokens_per_s", "samples_per_s", "tflops_per_gpu")


class Progress:
    """``look`` reads what is new; never raises for what the files hold. ``bad_lines``: lines that were none of the hook's."""

    def __init__(
        self, run_dir: str, log: Path, clock: Clock, *, hook_offset: int = 0, log_format: str = "auto", timezone: str = "UTC"
    ) -> None:
        self._path = Path(run_dir) / HOOK_FILE
        self._offset = hook_offset
        self._held = b""
        self._grammar = HookJsonl(LineTimes())
        self._log = LogSource([glob.escape(str(log)), glob.escape(str(job_log_of(log)))], log_format, timezone, clock)
        self._clock = clock
        self.has_hook = False
        self.opened_ns: int | None = None
        self.loaded_ns: int | None = None
        self.resumed_from: int | None = None
        self.first_step: int | None = None
        self.first_step_ns: int | None = None
        self.last_step: int | None = None
        self.last_step_ns: int | None = None
        self.news_s = clock.monotonic_s()
        self.nonfinite_step: int | None = None
        self.end_reason = ""
        self.bad_lines = 0
        self.memory = LossMemory()
        self._rates: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._saves_s: deque[float] = deque(maxlen=WINDOW)
        self._save_began_ns: int | None = None

    @property
    def losses(self) -> Sequence[tuple[int, float]]:
        """The newest (step, loss), finite ones."""
        return self.memory.newest

    def look(self) -> bool:
        """Whether more may be waiting. Raises nothing: what cannot be read is silence, and silence ends at a deadline."""
        is_behind = self._look_at_hook()
        for _, record in self._log.poll(MAX_BYTES_A_LOOK):
            if not self.has_hook:
                self._take(record)
        return is_behind or self._log.is_behind

    def close(self) -> None:
        self._log.close()

    def rate_beyond(self, step: int | None) -> float | None:
        """Median throughput of the steps above ``step`` (None: of all), None when there are fewer than five."""
        rates = [rate for at, rate in self._rates if step is None or at > step]
        return median(rates) if len(rates) >= 5 else None

    def save_s(self) -> float | None:
        """Median of the seconds that a save kept the training waiting; None when none was seen."""
        return median(self._saves_s) if self._saves_s else None

    def _look_at_hook(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return False
            if status.st_size < self._offset:
                self._offset, self._held = 0, b""
            data = os.pread(descriptor, MAX_BYTES_A_LOOK, self._offset)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        self._offset += len(data)
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > MAX_LINE_BYTES:
            self._held = b""
            self.bad_lines += 1
        for line in lines:
            self._take_line(line)
        return len(data) == MAX_BYTES_A_LOOK

    def _take_line(self, line: bytes) -> None:
        if not line.strip():
            return
        records = self._grammar.feed(line.decode("utf-8", "replace"))
        self.bad_lines, self._grammar.bad_records = self.bad_lines + self._grammar.bad_records, 0
        if self._grammar.take_header() is not None:
            self.has_hook = True
            self._forget()
            self.opened_ns = self._clock.time_ns()
        for record in records:
            self.has_hook = True
            self._take(record)

    def _forget(self) -> None:
        """A header within one start: the trainer's own launcher started it again."""
        self.first_step = self.first_step_ns = self.resumed_from = self.loaded_ns = None
        self.nonfinite_step, self.end_reason = None, ""

    def _take(self, record: Step | Event) -> None:
        if isinstance(record, Step):
            self._step(record)
        elif record.kind == "resume" and record.step is not None:
            self.resumed_from, self.loaded_ns = record.step, self._clock.time_ns()
        elif record.kind == "phase" and record.data.get("phase") == "checkpoint" and record.time_ns is not None:
            if record.data.get("state") == "begin":
                self._save_began_ns = record.time_ns
            elif self._save_began_ns is not None and record.time_ns >= self._save_began_ns:
                self._saves_s.append((record.time_ns - self._save_began_ns) / 1e9)
                self._save_began_ns = None
        elif record.kind == "attempt_end":
            self.end_reason = str(record.data.get("reason", ""))[:100]

    def _step(self, record: Step) -> None:
        now_ns = self._clock.time_ns()
        self.end_reason = ""  # it was told too early: this step came after it
        previous, before_ns = self.last_step, self.last_step_ns
        if self.first_step is None:
            self.first_step, self.first_step_ns = record.step, now_ns
        self.last_step = record.step
        self.last_step_ns = record.time_ns if record.time_ns is not None else now_ns
        self.news_s = self._clock.monotonic_s()
        loss = record.values.get("loss")
        if "loss" in record.nonfinite or (loss is not None and not math.isfinite(loss)):
            self.nonfinite_step = record.step if self.nonfinite_step is None else self.nonfinite_step
        elif loss is not None:
            self.nonfinite_step = None  # it came back
            self.memory.add(record.step, loss)
        rate = next((record.values[name] for name in _RATES if name in record.values), None)
        if rate is None and record.values.get("step_time_s"):
            rate = 1 / record.values["step_time_s"]
        if rate is None and previous is not None and before_ns is not None and self.last_step_ns > before_ns:
            rate = (record.step - previous) / ((self.last_step_ns - before_ns) / 1e9)
        if rate is not None and math.isfinite(rate) and rate > 0:
            self._rates.append((record.step, rate))


def job_log_of(log: Path) -> Path:
    """Where a start that runs as a job elsewhere has what the job prints: beside what its follower says."""
    return log.with_suffix(".job.log")


def size_of_hook_file(run_dir: str) -> int:
    """Bytes that are there now, 0 when there is no such file."""
    try:
        return (Path(run_dir) / HOOK_FILE).stat().st_size
    except OSError:
        return 0
