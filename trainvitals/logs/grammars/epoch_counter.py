"""Numbers positions within an epoch on over the whole training, for lines such as ``Epoch 2 [120/500]``.

With the length of the epoch the number is epoch x length + position, so that a run that starts again keeps its numbers. Whether a counter
begins again in each epoch is seen when the epoch changes; a log that begins in a later epoch is judged by how far the counter should be by then.
"""

from __future__ import annotations

from typing import Any

from trainvitals.logs.grammars.step_rows import EpochSteps


class EpochCounter:
    """State: the first epoch's number, whether positions begin again in each epoch, the last position, epochs that were never named."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._is_local: bool | None = None
        self._last: list[int] | None = None  # epoch, position, total
        self._spacing = 1
        self._unnamed = 0
        self._steps = EpochSteps()

    def number(self, position: int, total: int | None, epoch: int | None, epochs: int | None, is_of_epoch: bool) -> int:
        """The step. ``total``: the length of the epoch, or of the training. ``is_of_epoch``: the line calls it a batch, or stands in ``[a/b]``."""
        if epoch is None:
            return self._without_epoch(position, total)
        if not total and self._last is not None and epoch == self._last[0] + 1 and position == self._last[1]:
            total, self._is_local = position, True  # one line an epoch, at its end
        if not total and self._is_local is not True:
            self._last = [epoch, position, 0]
            return self._steps.number(position, epoch)
        total = total or (self._last[2] if self._last is not None else 0) or position
        if self._base is None:
            self._base = epoch if epoch <= 1 else int(epochs is not None or not is_of_epoch)
        self._base = min(self._base, epoch)
        index = epoch - self._base
        if self._last is not None and epoch > self._last[0]:
            if position <= self._last[1]:
                self._is_local = True
            elif self._is_local is None:
                self._is_local = False
        elif self._last is None and index > 0:
            fits = epochs is not None and abs(position / total * epochs - index) <= 1.0
            self._is_local = is_of_epoch or not fits
        self._last = [epoch, position, total]
        return position + index * total if self._is_local else position

    def _without_epoch(self, position: int, total: int | None) -> int:
        """A counter that reached its end and begins again is in the next epoch, though nobody says so."""
        if self._last is not None and total and total == self._last[2]:
            if position > self._last[1]:
                self._spacing = position - self._last[1]
            elif position < self._last[1] and self._last[1] + self._spacing > total:
                self._unnamed += 1
        if total:
            self._last = [0, position, total]
        return position + self._unnamed * (total or 0)

    def to_state(self) -> list[Any]:
        """JSON values only."""
        return [self._base, self._is_local, self._last, self._spacing, self._unnamed, self._steps.to_state()]

    def restore(self, state: list[Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._base, self._is_local, self._last, self._spacing, self._unnamed = state[:5]
        self._steps.restore(state[5])
