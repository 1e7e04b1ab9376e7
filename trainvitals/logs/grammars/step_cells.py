"""Lines of one step in cells: ``step  12/19560 | loss 4.12 (+0.1z)| norm 0.5 (…)| lr 6.0e-04 | 300.1 ms | 45.1% bf16 MFU | …``.

build-nanogpt, llm.c, nanochat, picotron and prime-rl write so, and whoever began from one of them. A line is theirs when it holds a training loss
and one more cell that only a training loop prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.logs.values import Metrics, parse_number, slug

_HEAD = re.compile(
    r"(?<![\w.:/-])[Ss]tep:?\s{1,12}(\d{1,15})(?:\s?/\s?\d{1,15})?(?: \(\[?\s{0,4}[\d., ]{1,40}\]?%\))?\s{0,12}\|\s{0,4}(?=\D)",
    re.ASCII,
)
_NUMBER = r"([-+]?(?:\d[\d,]{0,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf))"
#: ``loss: 9.7``, ``loss 4.12 (+0.1z)``, ``dt: 420.00ms``
_NAMED = re.compile(
    rf",?\s{{0,2}}\(?([A-Za-z][\w/. -]{{0,40}}?)(?:[:=]\s{{0,8}}|\s{{1,8}}){_NUMBER}\s?(ms|s|m|h|%|[KMBT]|tok(?:ens)?/s(?:ec)?|)\s?(?:\(.{{0,40}}\))?\Z",
    re.ASCII,
)
#: ``300.12 ms``, ``45.1% bf16 MFU``, ``1748000 tok/s``
_BARE = re.compile(rf"\(?{_NUMBER}([kKM]?)\s?(ms|% \w{{0,8}} ?MFU|tok/s(?:ec)?)\)?\Z", re.ASCII)

_NAMES = {
    "loss": "loss",
    "train loss": "loss",
    "train_loss": "loss",
    "training loss": "loss",
    "lr": "lr",
    "learning rate": "lr",
    "norm": "grad_norm",
    "grad": "grad_norm",
    "grad norm": "grad_norm",
    "grad_norm": "grad_norm",
    "gnorm": "grad_norm",
    "grad. norm": "grad_norm",
    "throughput": "tokens_per_s",
    "dt": "step_time_s",
    "time": "step_time_s",
    "tok/sec": "tokens_per_s",
    "tok/s": "tokens_per_s",
    "tokens/sec": "tokens_per_s",
    "tokens/s": "tokens_per_s",
    "mfu": "mfu",
    "bf16_mfu": "mfu",
    "num_tokens": "num_tokens",
}
#: Cells that no other kind of program prints beside a loss.
_TELLING = frozenset({"lr", "grad_norm", "step_time_s", "tokens_per_s", "mfu", "lrm", "num_tokens"})
#: A running clock is no metric of a step.
_CLOCKS = frozenset({"total time", "eta", "elapsed"})
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
#: picotron: ``Tokens/s: 100.1K``
_LARGE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_MAX_CELLS = 40


@dataclass(frozen=True, slots=True)
class CellLine:
    """``start``: where in the line it begins."""

    step: int
    metrics: Metrics
    start: int


def cell_line(line: str) -> CellLine | None:
    """The step in cells that the line holds; None when it holds none, or no loss."""
    head = _HEAD.search(line) if "|" in line else None
    if head is None:
        return None
    metrics = Metrics()
    names: set[str] = set()
    for cell in line[head.end() : head.end() + 4000].split("|")[:_MAX_CELLS]:
        text = cell.strip()
        name, value = _bare(text) if text[:1].isdigit() or text[:1] == "(" else _named(text)
        if name is None or value is None:
            continue
        names.add(name)
        # What is not known yet is printed as nan or as a negative rate.
        if name in ("mfu", "step_time_s", "tokens_per_s") and not 0 <= value < float("inf"):
            continue
        metrics.put(name, value)
    if "loss" not in metrics or not names & _TELLING:
        return None
    return CellLine(int(head[1]), metrics, head.start())


def _named(text: str) -> tuple[str | None, float | None]:
    found = _NAMED.match(text)
    if found is None:
        return None, None
    key = found[1].lower().strip()
    value = parse_number(found[2])
    if key in _CLOCKS or value is None:
        return None, None
    name = _NAMES.get(key)
    if name == "tokens_per_s" and key == "throughput" and not found[3].startswith("tok"):
        name = None  # of samples, or of nobody knows what
    if name is None:
        name = slug(f"{key}_s" if found[3] in _UNITS else key)
    return name, value * _UNITS.get(found[3], _LARGE.get(found[3], 1.0))


def _bare(text: str) -> tuple[str | None, float | None]:
    found = _BARE.match(text)
    value = parse_number(found[1]) if found is not None else None
    if found is None or value is None:
        return None, None
    value *= _LARGE.get(found[2].upper(), 1.0)
    if found[3] == "ms":
        return "step_time_s", value * 1e-3
    return ("mfu", value) if found[3].endswith("MFU") else ("tokens_per_s", value)
