"""A writer in a process of its own: ``python audit_writer.py RUN_DIR NAME COUNT`` appends, and writes out each number it was told."""

import sys

from trainvitals.control.audit import append

run_dir, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    head = append(run_dir, "request", by=name, source="cli", data={"number": number, "reason": "x" * 300})
    sys.stdout.write(f"{head.n} {head.hash}\n")
    sys.stdout.flush()
