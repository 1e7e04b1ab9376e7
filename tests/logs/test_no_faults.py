"""Lines that only speak of faults tell none."""

from __future__ import annotations

import pytest
from reading import faults_of

NOISE = """
node1:12:34 [0] NCCL INFO Connected all rings
node1:12:34 [0] NCCL INFO comm 0x1 rank 3 nranks 64 cudaDev 3 - Init COMPLETE
UserWarning: there is high memory pressure, consider PYTORCH_CUDA_ALLOC_CONF to avoid running out of memory
  exit_on_oom ..................................... False
python train.py --exit-on-oom --memory 40GiB --message 'killed by signal'
    except torch.cuda.OutOfMemoryError:
        if "CUDA out of memory. Tried to" in str(error):
    raise RuntimeError("CUDA error: out of memory")
# a CUDA out of memory. Tried to allocate line means a smaller batch
        print("No space left on device")
    assert not isnan, "found NaN in local forward loss"
message = "Watchdog caught collective operation timeout"
    logger.error("NCCL WARN Connect to peer failed")
{"loss": 2.5, "note": "all well"}
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
TORCH_NCCL_ASYNC_ERROR_HANDLING is set; TORCH_NCCL_BLOCKING_WAIT is not
Setting ds_accelerator to cuda (auto detect), errors are raised
 iteration 5/10 | lm loss: 2.0E+00 | number of nan iterations: 0 |
ImportError is what you get without apex
        f"Rank {global_rank}: found NaN in local forward loss calculation. "
        "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")
    RendezvousConnectionError:
        raise RendezvousTimeoutError
issues (GPU OOM or a test that causes many to fail with `CUDA error: device-side assert triggered`).
state, text, xid = "fail", "GPU has fallen off the bus", 79
Root Cause (first observed failure) is where torchrun says what happened
new uncorrectable ECC errors, an XID that means failing hardware
"""


@pytest.mark.parametrize("line", NOISE.strip("\n").splitlines())
def test_noise_is_no_fault(line):
    assert faults_of(line) == []
