"""A trainer of its own kind, in a process of its own; standard library only.

argv: kind (kill_switch or signal), run directory, log, path of the kill switch or pid file, interpreter's path to the package.
"""

import os
import signal
import sys
import time
from pathlib import Path

kind, run_dir, log_path, place, package = sys.argv[1:6]
log = Path(log_path).open("a", buffering=1)  # noqa: SIM115 - until the end
told = []


def now():
    return time.strftime("%Y-%m-%d %H:%M:%S")


def line(step):
    log.write(
        f" [{now()}] iteration {step:8d}/   100000 | consumed samples: {step * 8:12d} | elapsed time per iteration (ms): 20.0 | "
        f"learning rate: 1.000E-04 | global batch size:     8 | lm loss: 2.{step % 7}00000E+00 | loss scale: 1.0 | grad norm: 1.000 | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


if kind == "kill_switch":
    if os.path.exists(place):  # sticky, as in Megatron-DeepSpeed
        log.write(f"[Detected kill switch at {place}. Exiting] datetime: {now()} \n")
        sys.exit(0)
else:
    signal.signal(signal.SIGTERM, lambda *_: told.append("TERM"))
    Path(place).write_text(f"{os.getpid()}\n")

recorder = None
if kind == "signal_hook":
    sys.path.insert(0, package)
    from trainvitals.hook import Recorder

    recorder = Recorder(run_dir, run="r")
for step in range(1, 20_000):
    time.sleep(0.02)
    line(step)
    if recorder is not None:
        recorder.log(step, loss=2.0)
    is_over = os.path.exists(place) if kind == "kill_switch" else bool(told)
    if is_over:
        Path(run_dir, f"saved.{step}").touch()
        log.write(f"  successfully saved checkpoint at iteration {step:7d} to {run_dir}\n")
        if kind == "kill_switch":
            log.write(f"[Detected kill switch at {place}. Exiting] datetime: {now()} \n")
        break
os._exit(0)  # no good-bye: nobody but the watchdog knows that this end was wished
