"""A trainer that ends without closing its monitor, or by an exception, leaves its last steps, though the device had not told them yet."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration
pytest.importorskip("torch", reason="needs torch (make test-integrations)")

TRAINER = """
import sys
from trainvitals.hook import torch_loop

class Late:
    "Numbers of a device that is busy until somebody waits for it."
    def __init__(self, values): self._values, self._waited = dict(values), False
    def is_ready(self): return self._waited
    def result(self, timeout_s=0.0):
        self._waited = True
        return self._values

torch_loop.DeviceValues = Late
monitor = torch_loop.TrainingMonitor(sys.argv[1], run="r")
for number in range(3):
    with monitor.step(number) as step:
        step.loss(2.5)
if sys.argv[2] == "raises":
    raise FloatingPointError("loss is NaN")
"""


@pytest.mark.parametrize("end", ["ends", "raises"])
def test_the_last_steps_are_recorded_when_nobody_closes_the_monitor(tmp_path, end):
    subprocess.run([sys.executable, "-c", TRAINER, str(tmp_path), end], check=False, timeout=120, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (tmp_path / "metrics.rank00000.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["type"] == "step"] == [0, 1, 2]
