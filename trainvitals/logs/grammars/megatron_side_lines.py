"""What Megatron prints between its iteration lines: validation, checkpoints saved and loaded, begin and end of the program."""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.megatron_cells import MAX_CELLS, number
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, slug
from trainvitals.records import Event

#: Every line that ``SideLines.feed`` makes an event of holds one of these.
SIDE_LITERALS = ("checkpoint", "valid", "successfully loaded", "] datetime:", "could not find the metadata file")

_VALIDATION = re.compile(r"\bvalid(?:ation)?(?: \w{1,40})? (?:loss|results) (?:at|for) ([^|]{1,200})\|", re.ASCII)
_AT_ITERATION = re.compile(r"\biteration\s{1,40}(\d{1,15})\b", re.ASCII)
_SAVE_BEGIN = re.compile(r"\bsaving checkpoint at iteration\s{1,40}(\d{1,15}) to (\S{1,1000})", re.ASCII)
_SAVE_END = re.compile(r"\bsuccessfully saved checkpoint (?:at|from) iteration\s{1,40}(\d{1,15}) to (\S{1,1000})", re.ASCII)
#: ``time (ms) | save-checkpoint: 41000.25``, newer ``save-checkpoint ........: (41000.25, 41001.12)``
_SAVE_TIME = re.compile(r"\bsave-checkpoint(?: \.{1,80})?: ?\(?([\d.]{1,20})(?:, ([\d.]{1,20})\))?", re.ASCII)
_LOADED = re.compile(
    r"\bsuccessfully loaded checkpoint(?: \([^)]{1,60}\))? from (\S{1,1000}) .{0,80}?at iteration\s{1,40}(\d{1,15})", re.ASCII
)
#: The first generations and GPT-NeoX name the file: ``successfully loaded /ckpt/iter_0004000/mp_rank_00/model_optim_rng.pt``
_LOADED_FILE = re.compile(r"\bsuccessfully loaded (\S{0,1000}?/(?:iter_|global_step)(\d{1,15})/\S{0,500})", re.ASCII)
_NO_CHECKPOINT = re.compile(r"could not find the metadata file (\S{1,1000})", re.ASCII)
_DATETIME = re.compile(r"\[([^\]]{1,200})\] datetime: ?(.{0,60})", re.ASCII)


class SideLines:
    """State: the checkpoint that was loaded last and when (all ranks may say it), and the step of the last save."""

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._loaded: list[int | None] = []
        self._saved_step: int | None = None

    def feed(self, line: str, step: int | None) -> list[Record]:
        """``step``: of the last iteration line."""
        time_ns = self._times.find(line[:80])
        text = line.strip()
        if found := _VALIDATION.search(line):
            return self._validation(text, found, line[found.end() :], time_ns)
        if found := _SAVE_END.search(line):
            self._saved_step = int(found[1])
            return [phase("checkpoint", "end", text, self._saved_step, time_ns, path=found[2])]
        if found := _SAVE_BEGIN.search(line):
            return [phase("checkpoint", "begin", text, int(found[1]), time_ns, path=found[2])]
        if found := _LOADED.search(line) or _LOADED_FILE.search(line):
            said = [int(found[2]), step]
            if said == self._loaded:
                return []
            self._loaded = said
            return [Event("resume", time_ns, step=int(found[2]), text=text[:500], data={"path": found[1]})]
        if found := _SAVE_TIME.search(line):
            milliseconds = number(found[2] or found[1])
            if milliseconds is None or self._saved_step is None:
                return []
            saved, self._saved_step = self._saved_step, None
            return [message(text, json_safe({"checkpoint_seconds": milliseconds / 1000}), saved, time_ns)]
        if found := _NO_CHECKPOINT.search(line):
            return [message(text, {"fresh_start": True, "path": found[1]}, None, time_ns)]
        if found := _DATETIME.search(line):
            return self._datetime(text, found, step)
        return []

    def _validation(self, text: str, found: re.Match[str], rest: str, time_ns: int | None) -> list[Record]:
        iteration = _AT_ITERATION.search(found[1])
        prefix = "test" if " test " in f" {found[1]} " else "validation"
        values: dict[str, float] = {}
        for cell in rest.split("|")[:MAX_CELLS][:-1]:  # what no "|" closes may miss digits
            key, _, raw = cell.partition(":")
            value = number(raw)
            if value is None:
                continue
            key = key.lower().removesuffix(" value")
            is_perplexity = "ppl" in key
            name = f"{prefix}_ppl" if is_perplexity else f"{prefix}_loss"
            if name in values and not is_perplexity:
                name = f"{prefix}_{slug(key)}"
            values.setdefault(name, value)
        if not values:
            return []
        return [message(text, json_safe(values), int(iteration[1]) if iteration else None, time_ns)]

    def _datetime(self, text: str, found: re.Match[str], step: int | None) -> list[Record]:
        time_ns = self._times.find(found[2])
        if found[1].startswith("before the start of training"):
            return [phase("train", "begin", text, step, time_ns)]
        if found[1].startswith(("exiting program", "after training is done", "Detected kill switch")):
            return [phase("finished", "begin", text, step, time_ns)]
        return []

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"loaded": self._loaded, "saved_step": self._saved_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._loaded, self._saved_step = state["loaded"], state["saved_step"]
