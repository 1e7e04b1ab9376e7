"""Lightning's progress bar: ``Epoch 3:  40%|####      | 38/95 [00:10<00:15,  3.70it/s, v_num=0, train_loss=1.23]``.

The bar is drawn again and again, first with the new position and the old metrics, then with the new ones. So the last
drawing of a position counts, and is given out when the bar moves on. The position counts batches: with gradient accumulation
several batches are one optimizer step. ``loss=`` of Lightning 1 is a running mean: read only where nothing else is there. ``Epoch 2/9:`` of home-made trainers counts from 1; diffusers' ``Steps:`` and kohya's ``steps:`` go over all steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Event, Step

_BAR = re.compile(
    r"\b(?:[Ee]poch (\d{1,9})(?:/(\d{1,9}))?|[Ss]teps):(?: :)?\s{0,8}(?:\d{1,3}%\|[^|]{0,400}\|\s{0,10}(\d{1,15})/(\d{1,15})|(\d{1,15})it) "
    r"\[([^\]]{1,8000})(\])?",
    re.ASCII,
)
#: Lightning's RichProgressBar: ``Epoch 0/2 ━━━━━ 38/95 0:00:10 • 0:00:15 3.70it/s v_num: 0.000 train_loss: 1.230``
_RICH = re.compile(
    r"\bEpoch (\d{1,9})/\d{1,9}\s{1,8}[━╸╺ -]{1,400}\s(\d{1,15})/(\d{1,15}) \d{1,4}:\d\d:\d\d • [\d:-]{1,12}\s{1,8}[\d.]{1,20}it/s(.{0,8000})",
    re.ASCII,
)
_RICH_PAIR = re.compile(r"(?<!\S)([A-Za-z_][\w/.-]{0,99}): (\S{1,60})(?=\s|\Z)")
_RESUMED = re.compile(
    r"\bRestor(?:ed all states from the checkpoint(?: file)? at|ing states from the checkpoint path at) (.{1,1000})"
)
_STEP_IN_PATH = re.compile(r"\bstep[=_-](\d{1,15})", re.ASCII)
#: The training loss, best first.
_LOSSES = (
    "train_loss_step",
    "train/loss_step",
    "train_loss",
    "train/loss",
    "training_loss",
    "loss_step",
    "step_loss",
    "loss/train",
    "loss",
)
_OTHER_STAGE = re.compile(r"(?:\A|[_/])(?:val|valid|validation|test|eval)(?:[_/]|\Z)")
_NAMES = {"lr": "lr", "learning_rate": "lr", "grad_norm": "grad_norm", "gradient_norm": "grad_norm"}
_SKIPPED = frozenset({"v_num"})
_MAX_PAIRS = 200
_FIT_STOPPED = re.compile(r"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d{1,12}` reached", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bar:
    """One drawing. ``total`` is 0 when the bar does not know it; ``pairs`` are texts, without one that is torn."""

    epoch: int
    position: int
    total: int
    pairs: Mapping[str, str]
    start: int


def bars(line: str) -> list[Bar]:
    """The training bars in a line; those of validation and sanity checking have other names."""
    found: list[Bar] = []
    for match in _BAR.finditer(line) if "poch " in line or "teps:" in line else ():
        if match[2] is None and match[0][0] == "e":
            continue  # fairseq's
        cells = match[6].split(", ")
        if match[7] is None:
            cells.pop()  # torn: the last number may miss digits
        pairs: dict[str, str] = {}
        for cell in cells[:_MAX_PAIRS]:
            key, separator, value = cell.partition("=")
            if separator:
                pairs.setdefault(key.strip()[:100], value.strip()[:100])
        epoch, epochs = int(match[1] or 0), int(match[2] or 0)
        position, total = int(match[3] or match[5]), int(match[4] or 0)
        if epochs:
            # Counted from 1; where the bar goes over the epochs themselves, they are the steps.
            epoch = 0 if total == epochs and position in (epoch, epoch - 1) else max(0, epoch - 1)
        found.append(Bar(epoch, position, total, pairs, match.start()))
    if "it/s" in line and "━" in line and (rich := _RICH.search(line)):
        pairs = dict(reversed(_RICH_PAIR.findall(rich[4])[:_MAX_PAIRS]))
        found.append(Bar(int(rich[1]), int(rich[2]), int(rich[3]), pairs, rich.start()))
    return found


def resume_event(line: str, time_ns: int | None) -> Event | None:
    """Lightning's line that says from which checkpoint training continues."""
    found = _RESUMED.search(line) if "Restor" in line else None
    if found is None:
        return None
    path = found[1].strip()
    step = _STEP_IN_PATH.search(path)
    return Event("resume", time_ns, step=int(step[1]) if step else None, text=line.strip()[:500], data={"path": path[:1000]})


def fit_stopped(line: str, step: int | None, time_ns: int | None) -> list[Record]:
    """Lightning's word that the planned steps or epochs are done; it mostly stands behind the last bar, on the same line."""
    found = _FIT_STOPPED.search(line) if "Trainer.fit" in line else None
    return [] if found is None else [phase("finished", "begin", found[0], step, time_ns)]


def loss_key(pairs: Mapping[str, str]) -> str | None:
    """The key that holds the training loss, if any does."""
    for key in _LOSSES:
        if key in pairs and parse_number(pairs[key]) is not None:
            return key
    for key, value in pairs.items():
        name = key.lower()
        if "loss" in name and not name.endswith("_epoch") and not _OTHER_STAGE.search(name) and parse_number(value) is not None:
            return key
    return None


def validation_values(pairs: Mapping[str, str]) -> dict[str, str]:
    """The loss of the last validation, as text: the bar shows it from then on, so only a change tells of a new one."""
    for key, value in pairs.items():
        name = key.lower()
        if "loss" in name and _OTHER_STAGE.search(name) and not name.endswith("_step") and parse_number(value) is not None:
            return {"validation_loss": value}
    return {}


class LightningBar:
    """State: the drawing that waits, the last position given out, steps before this epoch, the last validation shown."""

    name = "lightning_bar"
    title = "Lightning's progress bar, and the bars of diffusers and home-made trainers that look like it"
    example = "Epoch 3:  40%|####      | 38/95 [00:10<00:15,  3.70it/s, v_num=0, train_loss=1.23]"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("Epoch ", "epoch ", "Steps:", "steps:")
    is_document = False
    is_weak = True
    prelude: ClassVar[tuple[str, ...]] = ("the checkpoint path at", "all states from the checkpoint")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._waiting: list[Any] | None = None  # [epoch, position, values, nonfinite]
        self._given: list[int] = [-1, -1]  # epoch, position
        self._epoch: int | None = None
        self._before = 0
        self._longest = 0
        self._validation = ""
        self._resumed = ""
        self._is_validating = False
        self._shown_loss = ""
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return any(bar.position > 0 and loss_key(bar.pairs) is not None for bar in bars(line))

    def feed(self, line: str) -> list[Record]:
        found = bars(line)
        if not found:
            self._is_validating = self._is_validating or "Validat" in line
            resumed = resume_event(line, self._times.find(line[:200]))
            if resumed is None or resumed.data["path"] == self._resumed:
                return self._stopped(line)
            records = self._release()
            self._resumed, self._given, self._epoch = resumed.data["path"], [-1, -1], None
            return [*records, resumed]
        records = []
        for bar in found:
            records += self._draw(bar)
        return records + self._stopped(line)

    def _stopped(self, line: str) -> list[Record]:
        if "Trainer.fit" not in line or not fit_stopped(line, None, None):
            return []
        records = self._release()
        step = self._before + self._given[1] if self._given[1] > 0 else None
        return records + fit_stopped(line, step, self._times.find(line[:200]))

    def idle(self) -> list[Record]:
        return self._release()

    def finish(self) -> list[Record]:
        return self._release()

    def _draw(self, bar: Bar) -> list[Record]:
        records: list[Record] = []
        if self._waiting is not None and self._waiting[:2] != [bar.epoch, bar.position]:
            records = self._release()
        if bar.epoch != self._epoch:
            is_next = self._epoch is not None and bar.epoch == self._epoch + 1
            self._before = self._before + self._longest if is_next and not bar.total else bar.epoch * bar.total
            self._epoch, self._longest, self._is_validating = bar.epoch, 0, False
        self._longest = max(self._longest, bar.position)
        shown = validation_values(bar.pairs).get("validation_loss", "")
        if shown and shown != self._validation:
            self._validation = shown
            value = parse_number(shown)
            if value is not None:
                text = f"validation_loss={shown}"
                records.append(message(text, json_safe({"validation_loss": value}), self._before + bar.position or None))
        key = loss_key(bar.pairs)
        # At position 0 an epoch's bar still shows the metrics of the epoch before.
        if key is None or bar.position == 0 or self._given == [bar.epoch, bar.position]:
            return records
        # Lightning 1 draws the training bar on while it validates, with the loss that it had.
        if self._is_validating and bar.pairs[key] == self._shown_loss:
            return records
        self._is_validating, self._shown_loss, self._resumed = False, bar.pairs[key], ""
        metrics = plain_metrics(bar.pairs, key, _NAMES)
        self._waiting = [bar.epoch, bar.position, metrics.values, metrics.nonfinite]
        return records

    def _release(self) -> list[Record]:
        if self._waiting is None:
            return []
        epoch, position, values, nonfinite = self._waiting
        self._waiting, self._given = None, [epoch, position]
        return [Step(self._before + position, 0, None, values, nonfinite)]

    def to_state(self) -> dict[str, Any]:
        return {
            "waiting": self._waiting,
            "given": self._given,
            "place": [self._epoch, self._before, self._longest],
            "shown": [self._validation, self._resumed, self._is_validating, self._shown_loss],
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._waiting = list(state["waiting"]) if state["waiting"] is not None else None
        self._given = [int(number) for number in state["given"]]
        self._epoch, self._before, self._longest = state["place"]
        self._validation, self._resumed, self._is_validating, self._shown_loss = state["shown"]
        self.bad_records = int(state["bad_records"])


def plain_metrics(pairs: Mapping[str, str], loss: str | None, names: Mapping[str, str]) -> Metrics:
    """The numbers of ``pairs``: ``loss`` is the key of the training loss; values of a validation and of epochs are left out."""
    metrics = Metrics()
    if loss is not None and (value := parse_number(pairs[loss])) is not None:
        metrics.put("loss", value)
    for key, raw in pairs.items():
        lower = key.lower()
        if key in _SKIPPED or key == loss or lower == "loss" or _OTHER_STAGE.search(lower) or lower.endswith("_epoch"):
            continue
        value = parse_number(raw)
        name = names.get(lower) or slug(key)
        if value is not None and name is not None:
            metrics.put(name, value)
    return metrics
