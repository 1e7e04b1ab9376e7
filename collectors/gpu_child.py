"""The process that talks to NVML: one JSON line in, one JSON line out. It may hang; its parent watches the clock.

Run as ``python -m collectors.gpu_child``. It ends when its standard input ends, so it does not outlive its parent.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys

from collectors.nvml import Nvml
from trainvitals.clock import SystemClock


def main() -> int:
    """Answer each line ``{"poll": N}`` with ``{"poll": N, "reading": …}``."""
    # Driver libraries sometimes print: what they print must not land in the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    nvml = Nvml(SystemClock())
    with answers:
        for line in sys.stdin:
            number = json.loads(line)["poll"]
            reading = dataclasses.asdict(nvml.read())
            answers.write(json.dumps({"poll": number, "reading": reading}) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
