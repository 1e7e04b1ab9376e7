"""What the recorder was told last, for the manifest of a checkpoint: loss, lr, grad norm, data position, configuration, code."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

#: Of the newest loss in the exponential mean.
EMA_WEIGHT = 0.02
#: A save may be written steps after its own.
KEPT_STEPS = 64
#: Of a step with more, only those that a manifest holds are kept.
MANY_METRICS = 200
_NUMBERS = ("loss", "lr", "grad_norm", "tokens")
_LOSS = re.compile(r'"loss":(-?\d[\d.eE+-]{0,40})[,}]', re.ASCII)


class Known:
    """``position``: the data position that was told last. Of the newest ``KEPT_STEPS`` steps all that they logged is kept."""

    def __init__(self) -> None:
        self.position: Mapping[str, object] = {}
        self._steps: deque[tuple[int, Mapping[str, object] | str, float | None]] = deque(maxlen=KEPT_STEPS)
        self._loss_ema: float | None = None
        self._made_of: dict[str, str] = {}

    def step(self, number: int, metrics: Mapping[str, object], kept: Mapping[str, object] | str) -> None:
        """kept: the step's metrics as plain numbers, or its line of the file. Takes a fraction of a microsecond."""
        loss = metrics.get("loss")
        if type(loss) is not float:
            found = _LOSS.search(kept) if loss is not None and type(kept) is str else None
            is_small = type(loss) is int and loss.bit_length() < 1_024  # a larger one is no number for the record either
            loss = float(found[1]) if found else float(loss) if is_small else None  # type: ignore[arg-type]
        if loss is not None and loss - loss == 0.0:
            self._loss_ema = loss if self._loss_ema is None else self._loss_ema + EMA_WEIGHT * (loss - self._loss_ema)
        if len(metrics) > MANY_METRICS:
            kept = {name: metrics[name] for name in _NUMBERS if name in metrics}
        self._steps.append((number, kept, self._loss_ema))

    def metadata(self, data: Mapping[str, object]) -> None:
        """A part of what this start is made of."""
        values = data.get("values")
        if not isinstance(values, Mapping):
            return
        section = data.get("section")
        if section == "config" and isinstance(found := values.get("config_sha256"), str):
            self._made_of["config_sha256"] = found
        elif section == "script" and isinstance(found := values.get("sha256"), str):
            self._made_of["script_sha256"] = found
        elif section == "git" and isinstance(found := values.get("commit"), str):
            self._made_of["git"] = found + ("-dirty" if values.get("dirty") else "")

    def facts(self, step: int | None = None) -> dict[str, Any]:
        """Members of ``trainvitals.manifest.Manifest``; numbers are of the newest step that is not after ``step``."""
        found: dict[str, Any] = dict(self._made_of)
        for number, kept, loss_ema in reversed(list(self._steps)):
            if step is None or number <= step:
                values: Mapping[str, object] = json.loads(kept)["values"] if isinstance(kept, str) else kept
                found |= {name: values[name] for name in _NUMBERS if type(values.get(name)) in (float, int)}
                found["loss_ema"] = loss_ema
                break
        if self.position:
            found["data_position"] = self.position
        return found
