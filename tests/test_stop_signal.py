"""A stop that a signal handler sets."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from trainvitals.clock import StopSignal

ROOT = Path(__file__).resolve().parent.parent
STORM = """
import random, signal
from trainvitals.clock import StopSignal
chance = random.Random(3)
for _ in range(5000):
    stop = StopSignal()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * 2e-4)
    while not stop.is_set():
        stop.wait(0.0)
    assert stop.wait(5)
print("through")
"""


def test_a_signal_at_any_instant_of_the_wait_ends_it_and_hangs_nothing():
    done = subprocess.run([sys.executable, "-c", STORM], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "through\n", done.stderr


def test_a_wait_that_is_not_ended_says_so_and_one_that_was_is_over_at_once():
    stop = StopSignal()
    assert stop.wait(0.001) is False and not stop.is_set()
    stop.set()
    stop.set()
    assert stop.wait(60) is True and stop.is_set()


def test_another_thread_ends_the_wait():
    stop = StopSignal()
    thread = threading.Thread(target=stop.set)
    thread.start()
    assert stop.wait(60) is True
    thread.join()
