"""How the demo's trainer saves: a copy of everything, then a thread that writes it while training goes on, as large trainers do."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import numpy as np

from trainvitals.demo import checkpoint
from trainvitals.demo.model import ModelConfig, Parameters
from trainvitals.demo.optimizer import AdamW
from trainvitals.hook import Recorder
from trainvitals.hook.save import Save


class Saver:
    """One checkpoint is written at a time. ``recorder``: is told of each save, and hashes it."""

    def __init__(self, checkpoints: Path, config: ModelConfig) -> None:
        self.recorder: Recorder | None = None
        self._checkpoints, self._config = checkpoints, config
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._save: Save | None = None

    def write(
        self, parameters: Parameters, optimizer: AdamW, generator: np.random.Generator, state: checkpoint.TrainerState
    ) -> None:
        """Returns when it is on the disk. Raises OSError when the disk does not take this one or the one before."""
        self.wait()
        self._save = self._begin(state, is_async=False)
        self._write(parameters, optimizer, generator, state)
        self._raise()

    def write_behind(
        self, parameters: Parameters, optimizer: AdamW, generator: np.random.Generator, state: checkpoint.TrainerState
    ) -> None:
        """Returns when all is copied. What the disk does not take is raised by the next call."""
        self.wait()
        self._save = self._begin(state, is_async=True)
        copied = copy.deepcopy((parameters, optimizer, generator))
        self._thread = threading.Thread(target=self._write, args=(*copied, state), name="demo-saver")
        if self._save is not None:
            self._save.staged()  # all is copied; once the thread runs, its end may come first
        self._thread.start()

    def wait(self, hashed_s: float = 0.0) -> None:
        """Until the last one is on the disk, and at most so long until it is hashed. Raises OSError when it could not be written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()
        if self._save is not None and hashed_s:
            self._save.wait(hashed_s)

    def _begin(self, state: checkpoint.TrainerState, is_async: bool) -> Save | None:
        if self.recorder is None:
            return None
        return self.recorder.saving(
            checkpoint.directory_of(self._checkpoints, state.step), state.step, is_async=is_async, trainer="demo",
            format="huggingface", has_optimizer=True, has_rng=True, has_scheduler=True, has_data_position=True,
        )  # fmt: skip

    def _write(
        self, parameters: Parameters, optimizer: AdamW, generator: np.random.Generator, state: checkpoint.TrainerState
    ) -> None:
        save = self._save
        try:
            checkpoint.save(self._checkpoints, self._config, parameters, optimizer, generator, state)
        except OSError as error:
            self._error = error
            if save is not None:
                save.failed(error)
            return
        if save is not None:
            save.persisted()
        for path in checkpoint.too_old(self._checkpoints):
            if self.recorder is not None:
                self.recorder.deleted(path)
            checkpoint.delete(path)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
