"""When Lightning saves a checkpoint, and when it is written: its callbacks hear of neither the path nor the end.

``trainer.save_checkpoint`` is what ``ModelCheckpoint`` and people call (lightning 2.0 to 2.6); it is given a companion on the one
trainer object. Needs no Lightning itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from trainvitals.hook.save import Save


class Watches(Protocol):
    """The callback. Neither method raises. begin: before the first byte, None = no save is watched."""

    def save_begins(self, trainer: Any, path: Any, weights_only: bool) -> Save | None: ...

    def save_ended(self, trainer: Any, path: Any, save: Save | None, error: BaseException | None) -> None: ...


class WatchedSave:
    """In the place of ``trainer.save_checkpoint``: does the same, and tells."""

    def __init__(self, callback: Watches, trainer: Any) -> None:
        self._callback, self._trainer = callback, trainer

    def __call__(self, filepath: Any, *arguments: Any, **named: Any) -> None:
        weights_only = named.get("weights_only", arguments[0] if arguments else None)
        save = self._callback.save_begins(self._trainer, filepath, bool(weights_only))
        try:
            # The class's own method: an instance that is copied or pickled must not call itself.
            type(self._trainer).save_checkpoint(self._trainer, filepath, *arguments, **named)
        except BaseException as error:
            self._callback.save_ended(self._trainer, filepath, save, error)
            raise
        self._callback.save_ended(self._trainer, filepath, save, None)


def watch(callback: Watches, trainer: Any) -> bool:
    """Whether the trainer's saves are watched from now on; False where it is no trainer as we know it."""
    if not callable(getattr(type(trainer), "save_checkpoint", None)):
        return False
    trainer.save_checkpoint = WatchedSave(callback, trainer)
    return True


def when_written(trainer: Any, then: Callable[[BaseException | None], None]) -> bool:
    """With an ``AsyncCheckpointIO``: call ``then`` in its thread when all that it was given is written. False: it is written now.

    Raises what a changed Lightning raises.
    """
    plugin = getattr(trainer.strategy, "checkpoint_io", None)
    while plugin is not None and not any(kind.__name__ == "AsyncCheckpointIO" for kind in type(plugin).__mro__):
        plugin = getattr(plugin, "checkpoint_io", None)
    executor = getattr(plugin, "_executor", None)
    if executor is None:
        return False
    # One thread, first come first served: ours runs after the save.
    executor.submit(lambda: then(getattr(plugin, "_error", None)))
    return True


def save_now(trainer: Any) -> None:
    """On every rank: save as Lightning's own callback does, beside its checkpoints, and wait until it is written. Raises what the save
    raises."""
    found = (getattr(one, "dirpath", None) for one in trainer.checkpoint_callbacks)
    directory = next((one for one in found if one), None) or os.path.join(trainer.default_root_dir, "checkpoints")  # noqa: PTH118
    trainer.save_checkpoint(Path(directory) / f"epoch={trainer.current_epoch}-step={trainer.global_step}.ckpt")
    is_written = threading.Event()
    errors: list[BaseException] = []

    def written(error: BaseException | None) -> None:
        errors.extend([error] if error is not None else [])
        is_written.set()

    if when_written(trainer, written):
        is_written.wait()
    if errors:
        raise errors[0]
