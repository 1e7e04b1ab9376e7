"""One log entry of the Hugging Face Trainer: the dict in a line, its metrics, and a NaN loss that is masked as 0.0."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from trainvitals.logs.values import Metrics, parse_number, slug

_DICT = re.compile(r"\{'[^{}]{1,20000}\}")
_PAIR = re.compile(r"'([^']{1,100})':\s*('[^']{0,60}'|[^,'{}\[\]]{1,60})")
#: ``tensor(0.3, device='cuda:0')``, ``np.float64(0.3)``
_WRAPPED = re.compile(r"\b(?:tensor|array|np\.float\d\d)\(([^,()]{1,40})(?:,[^()]{0,80})?\)", re.ASCII)

_NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "num_tokens": "tokens",
    "num_input_tokens_seen": "tokens",
    "train_tokens_per_second": "tokens_per_s",
    "mfu": "mfu",
}
#: Without a grad norm (older versions): a loss above this that falls to exactly 0.0 and stays for 3 logs is a masked NaN.
_MASKED_FROM = 0.05
_MASKED_LOGS = 3


def metrics_of(pairs: Sequence[tuple[str, float]]) -> Metrics:
    """The metrics of one log entry; also used for ``trainer_state.json``. Zero losses are not judged here."""
    metrics = Metrics()
    for key, value in pairs:
        name = _NAMES.get(key) or slug(key)
        if name is not None:
            metrics.put(name, value)
    return metrics


class ZeroLoss:
    """Tells a masked NaN from a loss that is zero."""

    def __init__(self) -> None:
        self.last_nonzero = 0.0
        self.zeros = 0

    def unmask(self, metrics: Metrics) -> None:
        """Replace a masked 0.0 by the non-finite mark."""
        loss = metrics.values.get("loss")
        if loss is None:
            return
        if loss != 0.0:
            self.last_nonzero, self.zeros = loss, 0
            return
        self.zeros += 1
        silent = "grad_norm" not in metrics and self.last_nonzero > _MASKED_FROM and self.zeros >= _MASKED_LOGS
        if silent or "grad_norm" in metrics.nonfinite:
            del metrics.values["loss"]
            metrics.nonfinite["loss"] = "nan"


def entry_pairs(line: str) -> tuple[str, list[tuple[str, float]], int]:
    """The dict in the line as text, its pairs if it is a training log entry (a numeric loss and an epoch, rate or norm), its place.

    Of several dicts the first that is such an entry, else the first.
    """
    first: tuple[str, list[tuple[str, float]], int] = ("", [], 0)
    for found in _DICT.finditer(line):
        text = found[0]
        if "'loss':" in text and ("'epoch':" in text or "'learning_rate':" in text or "'grad_norm':" in text):
            plain = _WRAPPED.sub(r"\1", text) if "(" in text else text
            pairs = [(key, value) for key, raw in _PAIR.findall(plain) if (value := parse_number(raw)) is not None]
            if any(key == "loss" for key, _ in pairs):
                return text, pairs, found.start()
        if not first[0]:
            first = (text, [], found.start())
    return first


def is_same(shortened: Mapping[str, float], full: Mapping[str, float]) -> bool:
    """Whether LLaMA-Factory's shortened line (four digits of the loss, two of the epoch) is that of the full one."""
    return all(
        abs(shortened.get(key, math.inf) - full.get(key, -math.inf)) <= error or str(shortened.get(key)) == str(full.get(key))
        for key, error in (("loss", 0.51e-4), ("epoch", 0.51e-2))
    )


def number_pairs(text: str) -> list[tuple[str, float]]:
    """Every number of the dict, whatever it is."""
    return [(key, value) for key, raw in _PAIR.findall(_WRAPPED.sub(r"\1", text)) if (value := parse_number(raw)) is not None]
