"""One thread for NumPy's linear algebra: the matrices are small, and waiting threads only slow each other down."""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
