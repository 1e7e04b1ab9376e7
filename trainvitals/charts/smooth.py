"""A line through the noise: the running median, which neither rounds a jump off nor moves it, as an exponential mean does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Share of the points drawn that one median looks at, and the fewest of them.
SHARE = 0.03
FEWEST = 5


def running_median(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The median of the values around each one (about 3 % of all, at least five), as float32.

    Gaps (NaN) stay gaps and are not counted; at both ends the window is shorter.
    """
    size = max(FEWEST, round(len(values) * SHARE) | 1)
    half = size // 2
    known = np.asarray(values, dtype=np.float64)
    padded = np.concatenate((np.full(half, np.nan), known, np.full(half, np.nan)))
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)  # NaN goes to the end
    counts = np.isfinite(windows).sum(axis=1)
    rows = np.arange(len(known))
    low, high = windows[rows, np.maximum(counts - 1, 0) // 2], windows[rows, np.minimum(counts // 2, np.maximum(counts - 1, 0))]
    return np.where(np.isfinite(known), (low + high) / 2, np.nan).astype(np.float32)
