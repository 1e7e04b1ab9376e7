"""What may be called on every rank: rank 0 records it, and a save is hashed by each rank that took part in it."""

from __future__ import annotations

import os
from typing import Any

from trainvitals.hook.guard import Guarded, never_raises
from trainvitals.hook.recorder import Recorder
from trainvitals.hook.save import Save
from trainvitals.hook.saves import Saves


class RankCalls(Guarded):
    """Base of a monitor that is made on all ranks. ``_recorder``: None on ranks that write no file of their own."""

    _recorder: Recorder | None
    _saves: Saves
    _last_number: int | None

    @never_raises
    def resumed(self, step: int, **data: object) -> None:
        """As ``Recorder.resumed``: training goes on from the checkpoint of this step; on any rank, before the first step."""
        if self._recorder is not None:
            self._recorder.resumed(step, **data)

    @never_raises
    def phase(self, name: str, state: str = "begin") -> None:
        """As ``Recorder.phase``; on any rank."""
        if self._recorder is not None:  # without waiting for the step before it: other ranks may be busy
            self._recorder.event("phase", self._last_number, phase=name, state=state)

    @never_raises
    def describe(self, config: object = None, **facts: Any) -> None:
        """As ``Recorder.describe``; on any rank. The ranks' places are added by themselves."""
        if self._recorder is not None:
            self._recorder.describe(config, **facts)

    def saving(
        self,
        path: str | os.PathLike[str],
        step: int | None = None,
        *,
        is_async: bool = False,
        ranks: int | None = None,
        **facts: Any,
    ) -> Save:
        """As ``Recorder.saving``; on every rank that writes. ranks: how many do, 1 = rank 0 alone (default: all).

        with monitor.saving(path, has_optimizer=True) as save:
            dcp.save(state, checkpoint_id=path)
            # or: save.follow(dcp.async_save(state, checkpoint_id=path))
        """
        when = self._last_number if step is None else step
        self.phase("checkpoint", "begin")
        return self._saves.begin(
            path, when, is_async=is_async, ranks=ranks, on_unblocked=lambda: self.phase("checkpoint", "end"), **facts
        )

    @never_raises
    def deleted(self, path: str | os.PathLike[str]) -> None:
        """As ``Recorder.deleted``; on every rank that wrote to it."""
        self._saves.deleted(path, self._last_number)

    @never_raises
    def copied(self, local: str | os.PathLike[str], shared: str | os.PathLike[str], seconds: float | None = None) -> None:
        """As ``Recorder.copied``; on the rank that copied."""
        self._saves.copied(local, shared, seconds)
