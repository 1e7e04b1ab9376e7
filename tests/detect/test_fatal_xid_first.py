"""A GPU that failed, and the CUDA errors and timeouts that follow from it: the death is told with what came first."""

from __future__ import annotations

import json

import pytest

from trainvitals.__main__ import main

LINE = " iteration {:8d}/    9000 | consumed samples: 64 | elapsed time per iteration (ms): 9.0 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
XID = "node17 kernel: [12345.678] NVRM: Xid (PCI:0000:1b:00): {}, pid='<unknown>', name=<unknown>, and so on\n"
ERROR = "[rank5]: RuntimeError: CUDA error: unspecified launch failure\n"


def death(tmp_path, capsys, tail):
    path = tmp_path / "train.log"
    path.write_text("".join(LINE.format(step) for step in range(1, 200)) + tail)
    assert main(["detect", str(path)]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (told,) = [one["message"] for one in found if one["rule"] == "run_dead"]
    return told


def test_the_xid_stands_before_what_it_caused(tmp_path, capsys):
    told = death(tmp_path, capsys, XID.format(79) + ERROR)
    assert told.index("Xid (PCI:0000:1b:00): 79") < told.index("unspecified launch failure")


@pytest.mark.parametrize("tail", [XID.format(43) + ERROR, ERROR])
def test_an_xid_that_means_no_hardware_is_not_in_the_way(tmp_path, capsys, tail):
    assert death(tmp_path, capsys, tail).startswith("the run died after step 199: RuntimeError: CUDA error: unspecified")
