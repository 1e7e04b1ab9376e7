"""What the recorder was told last, for the manifest of a checkpoint: loss, lr, grad norm, data position, configuration, code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

#: Of the newest loss in the exponential mean.
EMA_WEIGHT = 0.02
_LOSS = re.compile(r'"loss":(-?\d[\d.eE+-]{0,40})[,}]', re.ASCII)


class Known:
    """``position``: the data position that was told last."""

    def __init__(self) -> None:
        self.position: Mapping[str, object] = {}
        self._kept: Mapping[str, object] | str = {}
        self._loss_ema: float | None = None
        self._made_of: dict[str, str] = {}

    def step(self, metrics: Mapping[str, object], kept: Mapping[str, object] | str) -> None:
        """kept: the step's metrics as plain numbers, or its line of the file. Takes a fraction of a microsecond."""
        self._kept = kept
        loss = metrics.get("loss")
        if type(loss) is not float:
            if loss is None:
                return
            found = _LOSS.search(kept) if type(kept) is str else None
            loss = float(found[1]) if found else float(loss) if type(loss) is int else float("nan")
        if loss - loss == 0.0:
            self._loss_ema = loss if self._loss_ema is None else self._loss_ema + EMA_WEIGHT * (loss - self._loss_ema)

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

    def facts(self) -> dict[str, Any]:
        """Members of ``trainvitals.manifest.Manifest``."""
        kept = self._kept
        values: Mapping[str, object] = json.loads(kept)["values"] if isinstance(kept, str) else kept
        numbers = {name: values[name] for name in ("loss", "lr", "grad_norm", "tokens") if type(values.get(name)) in (float, int)}
        found: dict[str, Any] = {**numbers, "loss_ema": self._loss_ema, **self._made_of}
        if self.position:
            found["data_position"] = self.position
        return found
