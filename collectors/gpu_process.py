"""The outside of the NVML process: asks, waits until the deadline, and never lets a second poll start while one hangs."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.nvml import Fault, GpuReading, Reading
from trainvitals.clock import Clock

#: A poll that hangs this long is cut off. A process in uninterruptible sleep survives that; then none is started beside it.
KILL_AFTER_S = 120.0
#: A process that says that the driver does not answer holds the library of before an update, and is not believed for longer.
RENEW_AFTER_S = 60.0
#: Opening the driver takes this long at most where no other program holds it (persistence mode off): seconds for each GPU.
OPENING_S = 90.0
MAX_ANSWER_BYTES = 4 << 20
CHILD_COMMAND = (sys.executable, "-m", "collectors.gpu_child")


class Unresponsive(Exception):
    """The driver did not answer in time, or the process died. The text is for people."""


class Opening(Unresponsive):
    """The very first answer is still awaited: the driver may be starting its GPUs, which is no hang yet."""


class GpuProcess:
    """``poll`` returns a reading or raises ``Unresponsive``; both within about ``deadline_s`` seconds."""

    def __init__(
        self,
        clock: Clock,
        deadline_s: float,
        command: Sequence[str] = CHILD_COMMAND,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._command = tuple(command)
        self._environment = _with_checkout(os.environ if environment is None else environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._number = 0
        self._asked_at_s: float | None = None
        self._started_at_s = 0.0
        self._has_answered = False
        self.started = 0

    @property
    def pid(self) -> int | None:
        """Process id of the child, None when there is none."""
        return self._child.pid if self._child is not None else None

    def poll(self) -> Reading:
        """Ask once. While an earlier question is unanswered nothing new is asked."""
        if self._asked_at_s is None:
            self._ask()
        answer = self._answer()
        if answer is None:
            asked_at_s = self._asked_at_s if self._asked_at_s is not None else self._clock.monotonic_s()
            waited_s = self._clock.monotonic_s() - asked_at_s
            if waited_s > KILL_AFTER_S and self._child is not None:
                self._child.kill()
            if waited_s <= OPENING_S and not self._has_answered and self.started == 1:
                raise Opening(
                    f"the driver is being opened for {max(waited_s, self._deadline_s):.0f} s: without persistence mode "
                    "(nvidia-smi -pm 1) it starts each GPU anew"
                )
            raise Unresponsive(f"driver unresponsive: no answer for {max(waited_s, self._deadline_s):.0f} s")
        self._asked_at_s = None
        self._has_answered = True
        reading = _reading(answer)
        is_old = self._clock.monotonic_s() - self._started_at_s >= RENEW_AFTER_S
        if is_old and reading.fault not in (None, Fault.NO_LIBRARY):
            # The library is loaded once in a process: after an update of the driver only a new process finds the new one.
            self.close()
        return reading

    def close(self) -> None:
        """End the child; one that is stuck in the driver is left to the system."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            # It cannot be ended while it hangs in the kernel; with its input closed it ends by itself when it returns.
            self._asked_at_s = None

    def _ask(self) -> None:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._start()
        child = self._child
        if child is None or child.stdin is None:
            raise Unresponsive("the NVML process could not be started")
        self._number += 1
        self._asked_at_s = self._clock.monotonic_s()
        try:
            child.stdin.write(json.dumps({"poll": self._number}).encode() + b"\n")
            child.stdin.flush()
        except OSError as error:
            self._end_of_child()
            raise Unresponsive("the NVML process ended by itself") from error

    def _start(self) -> None:
        self._received = b""
        try:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment, start_new_session=True
            )
        except OSError as error:
            raise Unresponsive(f"the NVML process could not be started: {error.strerror}") from error
        self.started += 1
        self._started_at_s = self._clock.monotonic_s()

    def _answer(self) -> Any:
        """The answer to the newest question, None when the deadline passed."""
        child = self._child
        if child is None or child.stdout is None:
            raise Unresponsive("the NVML process is not running")
        descriptor = child.stdout.fileno()
        deadline_s = self._clock.monotonic_s() + self._deadline_s
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                while b"\n" in self._received:
                    line, _, self._received = self._received.partition(b"\n")
                    answer = json.loads(line)
                    if answer.get("poll") == self._number:
                        return answer["reading"]
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0 or not selector.select(left_s):
                    return None
                part = os.read(descriptor, 1 << 16)
                if not part or len(self._received) > MAX_ANSWER_BYTES:
                    self._end_of_child()
                    raise Unresponsive("the NVML process ended by itself")
                self._received += part

    def _end_of_child(self) -> None:
        self.close()
        self._asked_at_s = None


def _with_checkout(environment: Mapping[str, str]) -> dict[str, str]:
    """The child must find this package from any working directory."""
    checkout = str(Path(__file__).resolve().parent.parent)
    path = environment.get("PYTHONPATH", "")
    return {**environment, "PYTHONPATH": f"{checkout}{os.pathsep}{path}" if path else checkout}


def _reading(values: Mapping[str, Any]) -> Reading:
    return Reading(values["fault"], values["text"], [GpuReading(**gpu) for gpu in values["gpus"]])
