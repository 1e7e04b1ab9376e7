"""fairseq and metaseq, in the log formats json, simple and tqdm.

json   ``… | INFO | train_inner | {"epoch": 1, "update": 0.2, "loss": "7.5", "num_updates": "400", "gnorm": "1.2"}``
simple ``… | INFO | train_inner | epoch 001:    200 / 9000 loss=9.5, ppl=724.1, num_updates=200, lr=0.0001, gnorm=2.5``
       with Hydra ``[2026-01-02 03:04:05,123][train_inner][INFO] - {…}``
tqdm   ``epoch 001:   2%|2| 200/9000 [01:00<44:00, 3.3it/s, loss=9.5, num_updates=200, gnorm=2.5]``

The step is ``num_updates``. **The loss is in base 2** (bits), and stays as printed. A line of the ``train`` tag is the mean
over an epoch, and no step. Skipped updates print no line of their own but the overflow note.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event, Step

#: Up to version 0.9 the tag was ``train`` too; that of the mean over an epoch has ``train_num_updates``.
_JSON = re.compile(r"(?:\| train(?:_inner)? \| |\[train(?:_inner)?\]\[INFO\] - )(?=\{)|^(?=\{\"epoch\": \d)")
_SIMPLE = re.compile(r"\bepoch \d{1,9}:\s{1,20}\d{1,15} / \d{1,15} (?=\w{1,40}=)", re.ASCII)
_BAR = re.compile(r"\bepoch \d{1,9}:\s{0,20}\d{1,3}%\|[^|]{0,400}\|\s{0,20}\d{1,15}/\d{1,15} \[", re.ASCII)
_UPDATES = re.compile(r"\bnum_updates(?:=|\": \"?)(\d{1,15})\b", re.ASCII)
_VALID_JSON = re.compile(r"(?:\| valid\w{0,40} \| |\[valid\w{0,40}\]\[INFO\] - )(?=\{)")
_VALID_SIMPLE = re.compile(r"\bvalid on '([^'|]{1,100})' subset ?\|")
_VALID_CELL = re.compile(r"(?:^ ?|\| ?)(?:valid\d{0,3}_)?(loss|ppl|nll_loss|num_updates) ([^\s|]{1,40})")
_OVERFLOW = re.compile(
    r"\bNOTE: (?:gradient )?overflow detected,?(?: ignoring gradient,?)?(?: setting loss scale to: ([\d.e+-]{1,40}))?"
)
_LOADED = re.compile(r"\b[lL]oaded checkpoint (\S{1,1000}) \(epoch \d{1,9} @ (\d{1,15}) updates\)", re.ASCII)
_SAVING = re.compile(r"\b[pP]reparing to save checkpoint for epoch \d{1,9} @ (\d{1,15}) updates", re.ASCII)
_SAVED = re.compile(r"\b[sS]aved checkpoint (\S{1,1000}) \(epoch \d{1,9} @ (\d{1,15}) updates", re.ASCII)
#: The first line of a run, before its meter has seen two updates.
_NOT_KNOWN_YET = (("wps", "0"), ("ups", "0"))
_DECODER = json.JSONDecoder()
_MAX_JSON = 60_000
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "gnorm": ("grad_norm", 1.0),
    "lr": ("lr", 1.0),
    "wps": ("tokens_per_s", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "num_updates": LEFT_OUT,
}


class Fairseq(LineByLine):
    """No state: each line stands for itself."""

    name = "fairseq"
    title = "fairseq, metaseq"
    example = (
        '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "update": 0.2, "loss": "7.5", "ppl": "181.02", "wps": "2000.5", '
        '"ups": "0.5", "num_updates": "400", "lr": "0.0002", "gnorm": "1.2", "loss_scale": "64"}'
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("num_updates",)
    prelude: ClassVar[tuple[str, ...]] = (" overflow detected", "oaded checkpoint ")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "num_updates" in line and _UPDATES.search(line) is not None and _start(line) is not None and "loss" in line

    def feed(self, line: str) -> list[Record]:
        if "num_updates" in line:
            start = _start(line)
            updates = _UPDATES.search(line, start[0]) if start is not None else None
            if start is not None and updates is not None:
                at, is_json = start
                pairs = self._json(line[at:]) if is_json else pairs_of(line[at:])
                if pairs is None:
                    return []
                metrics = metrics_of((pair for pair in pairs if pair not in _NOT_KNOWN_YET), _NAMES)
                time_ns = self._times.find(line[:at][-200:])
                return [Step(int(updates[1]), 0, time_ns, metrics.values, metrics.nonfinite)]
            if "valid" in line:
                return self._validation(line)
        return self._side_line(line) if "checkpoint" in line or "overflow" in line else []

    def _json(self, text: str) -> list[tuple[str, str]] | None:
        try:
            values, _ = _DECODER.raw_decode(text[:_MAX_JSON])
        except (ValueError, RecursionError):
            self.bad_records += 1  # torn
            return None
        if not isinstance(values, dict):
            self.bad_records += 1
            return None
        return [(key[:80], str(value)[:60]) for key, value in values.items() if isinstance(value, (str, int, float))]

    def _validation(self, line: str) -> list[Record]:
        values: dict[str, float] = {}
        if found := _VALID_JSON.search(line):
            pairs = self._json(line[found.end() :]) or []
            cells = [(key.rpartition("valid_")[2], raw) for key, raw in pairs]
        elif found := _VALID_SIMPLE.search(line):
            cells = _VALID_CELL.findall(line[found.end() :])
        else:
            return []
        for key, raw in cells:
            value = parse_number(raw)
            if value is not None:
                values.setdefault(key, value)
        step = values.get("num_updates")
        data = {f"validation_{name}": values[name] for name in ("loss", "ppl", "nll_loss") if name in values}
        is_step = step is not None and 0 <= step < 1e15
        time_ns = self._times.find(line[: found.start()][-200:])
        return (
            [message(line.strip(), json_safe(data), int(step) if is_step and step is not None else None, time_ns)] if data else []
        )

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        text = line.strip()
        if found := _OVERFLOW.search(line):
            data: dict[str, Any] = {"overflow": True}
            if found[1] and (scale := parse_number(found[1])) is not None:
                data |= json_safe({"loss_scale_next": scale})
            return [message(text, data, None, time_ns)]
        if found := _LOADED.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=text[:500], data={"path": found[1]})]
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", text, int(found[2]), time_ns, path=found[1])]
        if found := _SAVING.search(line):
            return [phase("checkpoint", "begin", text, int(found[1]), time_ns)]
        return []


def _start(line: str) -> tuple[int, bool] | None:
    """Where the values begin, and whether they are JSON."""
    if "{" in line and (found := _JSON.search(line)):
        return found.end(), True
    found = _SIMPLE.search(line) or (_BAR.search(line) if "%|" in line else None)
    return (found.end(), False) if found else None
