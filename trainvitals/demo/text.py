"""The text the demo learns: the Python standard library's own sources, found on every machine that can run the demo."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: Newline and the printable ASCII characters; every other byte is left out.
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
VOCABULARY_SIZE = len(CHARACTERS)
DEFAULT_BYTES = 4_000_000
SHARD_CHARACTERS = 262_144

_SKIPPED_DIRECTORIES = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__", "idlelib"})


@dataclass(frozen=True)
class Text:
    """``tokens``: (characters,) uint8 ids below ``VOCABULARY_SIZE``."""

    tokens: npt.NDArray[np.uint8]

    def shard(self, character: int) -> int:
        """Number of the shard (of ``SHARD_CHARACTERS``) that holds a character."""
        return character // SHARD_CHARACTERS


def standard_library(max_bytes: int = DEFAULT_BYTES, directory: Path | None = None) -> Text:
    """The sources in a fixed order (by path), cut after ``max_bytes``. Raises OSError when nothing can be read."""
    root = directory or Path(sysconfig.get_path("stdlib"))
    pieces: list[bytes] = []
    left = max_bytes
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_DIRECTORIES)
        for name in sorted(names):
            if name.endswith(".py") and left > 0:
                pieces.append((Path(folder) / name).read_bytes()[:left])
                left -= len(pieces[-1])
        if left <= 0:
            break
    if not pieces:
        raise FileNotFoundError(f"No Python sources under {root}: the demo needs some text to learn.")
    return Text(encode(b"".join(pieces)))


def encode(raw: bytes) -> npt.NDArray[np.uint8]:
    """Bytes to character ids; bytes outside the vocabulary are dropped."""
    table = np.full(256, 255, dtype=np.uint8)
    table[np.frombuffer(CHARACTERS.encode("ascii"), dtype=np.uint8)] = np.arange(VOCABULARY_SIZE, dtype=np.uint8)
    ids: npt.NDArray[np.uint8] = table[np.frombuffer(raw, dtype=np.uint8)]
    kept: npt.NDArray[np.uint8] = ids[ids != 255]
    return kept


class Sampler:
    """Training samples by number, so that a resume needs only the number of samples taken so far.

    Sample i of an epoch is the i-th window of ``window`` characters in that epoch's own shuffled order; which character of
    the window is predicted, the caller's random generator draws.
    """

    def __init__(self, text: Text, context: int, seed: int, window: int = 64) -> None:
        self._tokens = text.tokens
        self._context = context
        self._seed = seed
        self._window = window
        self.windows = (len(self._tokens) - context) // window
        if self.windows < 1:
            raise ValueError(f"The text has {len(self._tokens)} characters, fewer than one window of {window} + {context}.")
        self._epoch = -1
        self._order: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def batch(
        self, first: int, size: int, generator: np.random.Generator
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Samples ``first`` … ``first + size - 1``: contexts (size, context), targets (size,), positions in the text (size,)."""
        numbers = np.arange(first, first + size, dtype=np.int64)
        starts = np.empty(size, dtype=np.int64)
        epochs = numbers // self.windows
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            starts[chosen] = self._epoch_order(int(epoch))[numbers[chosen] % self.windows] * self._window
        positions = starts + generator.integers(0, self._window, size=size)
        contexts = self._tokens[positions[:, None] + np.arange(self._context)]
        return contexts, self._tokens[positions + self._context], positions

    def _epoch_order(self, epoch: int) -> npt.NDArray[np.int64]:
        if epoch != self._epoch:
            self._order = np.random.default_rng((self._seed, epoch)).permutation(self.windows)
            self._epoch = epoch
        return self._order
