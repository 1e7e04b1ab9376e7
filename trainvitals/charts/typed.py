"""Numbers on the wire: NumPy arrays as Plotly's base64 typed arrays, and JSON in which NaN cannot occur."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

_CODES = {"float32": "f4", "float64": "f8", "int32": "i4", "uint8": "u1"}


def typed(array: npt.NDArray[Any]) -> dict[str, str]:
    """``{"dtype", "bdata"[, "shape"]}``; int64 becomes int32 where it fits, else float64. NaN stays NaN, as binary."""
    if array.dtype.name not in _CODES:
        limits = np.iinfo(np.int32)
        fits = array.dtype.kind in "iu" and (not array.size or (limits.min <= array.min() and array.max() <= limits.max))
        array = array.astype(np.int32 if fits else np.float64)
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    encoded = {"dtype": _CODES[array.dtype.name], "bdata": base64.b64encode(little.tobytes()).decode("ascii")}
    if array.ndim > 1:
        encoded["shape"] = ",".join(map(str, array.shape))
    return encoded


def single(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """As float32, for drawing: what is finite stays finite, at the end of the range (the loss of a run that diverges, a perplexity)."""
    given, most = np.asarray(values, dtype=np.float64), np.finfo(np.float32).max
    return np.where(np.isfinite(given), np.clip(given, -most, most), given).astype(np.float32)


def without_nan(value: Any) -> Any:
    """The same JSON value with every non-finite number as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return value


def to_json(value: Any) -> str:
    """Compact JSON, always valid: browsers refuse NaN and Infinity."""
    return json.dumps(without_nan(value), allow_nan=False, separators=(",", ":"), ensure_ascii=False)
