"""How the step of a Hugging Face Trainer's log entry is found: the plan that the log tells, and the progress bars around it."""

from __future__ import annotations

import math
import re
from typing import Any

#: A bar whose line a narrow terminal broke in two begins with its right edge; a very narrow one is drawn without its middle.
_BAR = re.compile(r"(?:\d{1,3}%(?:\|[^|]{0,400}\|)?|\A\s{0,300}\|)\s*(\d{1,15})/(\d{1,15}) \[", re.ASCII)
_BAR_TEXT = re.compile(r"[ \t]{0,300}\d{1,3}%\|[^|{}]{0,400}\|\s{0,20}\d{1,15}/\d{1,15} \[[^\]{}]{0,80}\]", re.ASCII)
_NUM_EPOCHS = re.compile(r"\bNum Epochs = ([\d,]{1,15})", re.ASCII)
_TOTAL = re.compile(r"\bTotal optimization steps = ([\d,]{1,15})", re.ASCII)
_PER_EPOCH = re.compile(r"\bNum update steps per epoch = ([\d,]{1,15})", re.ASCII)
_EXAMPLES = re.compile(r"\bNum examples = ([\d,]{1,15})", re.ASCII)
_BATCH = re.compile(r"\bTotal train batch size \([^()]{1,60}\) = ([\d,]{1,15})", re.ASCII)


#: ``Map (num_proc=4):``, but neither systemd's ``python[1234]:`` nor a logger's ``INFO:root:``.
_NAMED = re.compile(r"(?<!\])(?<!INFO:root):\s{0,400}\Z")


def last_bar(text: str, wanted_total: int) -> tuple[int, int] | None:
    """(steps done, total) of the last training bar in ``text``; ``wanted_total``: 0 = any.

    A bar with a name in front ("Map: 38%|") is no training bar, and an evaluation has another total.
    """
    if "/" not in text or " [" not in text:
        return None
    last = None
    for found in _BAR.finditer(text):
        done, total = int(found[1]), int(found[2])
        if not _NAMED.search(text[: found.start()][-500:]) and (not wanted_total or total == wanted_total):
            last = (done, total)
    return last


def without_bars(text: str) -> str:
    """The text between the bars: an entry torn by Python's buffer may hold all bars of the steps until its rest came."""
    return _BAR_TEXT.sub("", text)


def step_of_bars(before: int | None, behind: int | None, last_step: int, every: int | None) -> int | None:
    """The step of an entry by the bar on its own line, drawn before it, and the one drawn right behind it; None: neither tells.

    Where tqdm's own line ends were kept, the bar behind is the step and none stands on the line. Where they were lost, the bar
    on the line mostly is the step; it may lag, and the one behind may be further already. Then the distance of the entries
    decides, and without one the rounder number: entries come every 5, 10, 500 steps.
    """
    if before is None or before <= last_step:
        return behind if behind is not None and behind > last_step else None
    if behind is None or behind <= before:
        return before
    if every is not None and last_step + every in (before, behind):
        return last_step + every
    is_first = last_step == 0 and (before, behind) == (1, 2)  # every step is logged, or the first one is
    return behind if not is_first and _roundness(behind) > _roundness(before) else before


def distance_of_burst(entries: int, bar: int) -> int:
    """Steps between ``entries`` entries that came at once, while the bar stood at ``bar``.

    Python holds back what it prints into a file, not the bar: 8 KiB of entries come together, the last one torn, just when it
    was made. So the bar then shows the step of the torn entry, or that of the last one where the program ended.
    """
    least, most = bar // (entries + 2) + 1, bar // entries
    if least >= most:
        return max(1, most)

    def fit(distance: int) -> tuple[bool, bool, tuple[int, bool, int]]:
        errors = (bar - entries * distance, bar - (entries + 1) * distance)
        return 0 in errors, any(0 <= error <= 2 for error in errors), _roundness(distance)

    return max(range(least, min(most, least + 10_000) + 1), key=fit)


def _roundness(step: int) -> tuple[int, bool, int]:
    text = str(step)
    return len(text) - len(text.rstrip("0")), step % 5 == 0, (step & -step).bit_length()


def _usual_step(step: float, error: float) -> int | None:
    """The first logged step of which only the epoch in two digits is known: logs begin at 10, 25 or 500, and not at 11."""
    usual = [digit * 10**zeros for zeros in range(7) for digit in (1, 2, 5)] + [25, 250]
    fitting = [number for number in usual if abs(number - step) <= error]
    return min(fitting, key=lambda number: abs(number - step)) if fitting else None


class TrainingPlan:
    """State: what the log said of epochs, steps and sizes."""

    def __init__(self) -> None:
        self.epochs = 0
        self.total = 0
        self._sizes = [0, 0, 0]  # examples, samples of a step, steps of an epoch as transformers 5 says them
        self._examples = 0
        self._decimals = 0

    def read(self, line: str) -> None:
        """Take what ``line`` says."""
        if found := _NUM_EPOCHS.search(line):
            self.epochs = _count(found)
        elif found := _TOTAL.search(line):
            self.total = _count(found)
        elif found := _PER_EPOCH.search(line):
            self._sizes[2] = _count(found)
        elif found := _EXAMPLES.search(line):
            self._examples = _count(found)  # an evaluation says its own
        elif found := _BATCH.search(line):
            self._sizes = [self._examples, _count(found), self._sizes[2]]

    def step_of_epoch(
        self, epoch: float, is_text: bool, last_step: int, every: int | None, is_every_said: bool
    ) -> tuple[int, bool] | None:
        """The step, and whether the epoch is printed finely enough for it to be exact; None without a plan in the log.

        transformers 5 prints four digits as text, older versions two decimals, those between all of them.
        """
        if not (self.epochs and self.total and 0 < epoch <= self.epochs):
            return None
        self._decimals = max(2, self._decimals, len(repr(epoch).partition("e")[0].partition(".")[2]))
        digits = 3 - math.floor(math.log10(epoch)) if is_text else self._decimals
        per_epoch = self._steps_per_epoch()
        error = 0.5 * 10.0**-digits * per_epoch
        step = epoch * per_epoch
        if error < 0.5:
            return round(step), True
        if every is not None:
            multiple = round(step / every) * every
            if is_every_said and error < every / 2:
                return multiple, True
            if abs(last_step + every - step) <= error + 0.5:
                return last_step + every, False
            if abs(multiple - step) <= error + 0.5 and multiple > last_step:
                return multiple, False
        elif last_step == 0 and (usual := _usual_step(step, error)) is not None:
            return usual, False
        return max(1, round(step)), False

    def _steps_per_epoch(self) -> float:
        """With ``max_steps`` the last epoch is cut short: then the sizes tell, where they fit the plan."""
        examples, samples, per_epoch = self._sizes
        if per_epoch == 0 and samples > 0:
            per_epoch = math.ceil(examples / samples)
        if per_epoch > 0 and math.ceil(self.total / per_epoch) == self.epochs:
            return per_epoch
        return self.total / self.epochs

    def to_state(self) -> list[Any]:
        """JSON values only."""
        return [self.epochs, self.total, self._sizes, self._examples, self._decimals]

    def restore(self, state: list[Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self.epochs, self.total, sizes, self._examples, self._decimals = state
        self._sizes = [int(size) for size in sizes]


def _count(found: re.Match[str]) -> int:
    return int(found[1].replace(",", "") or 0)
