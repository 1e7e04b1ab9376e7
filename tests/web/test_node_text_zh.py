"""The line of a node on the Chinese wall: what our own collector says is Chinese, names and numbers stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gpu import DRIVER_TEXT, RECOVERY_ACTIONS, grade
from collectors.nvml import GpuReading
from trainvitals.records import GpuSample, NodeSample
from trainvitals.web.node_text_zh import node_text_zh
from trainvitals.web.view import Snapshot
from trainvitals.web.wall_view import nodes_view

NOW = 1_795_000_000 * 10**9
TERMS = {"gpu", "xid", "nvidia", "unknown", "reset", "required", "reboot", "the", "node", "utc"}


def english(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower())) - TERMS


@pytest.mark.parametrize(
    ("values", "faults"),
    [
        ({"temperature_c": 90.0}, {}), ({"throttle_reasons": 0x20}, {}), ({"throttle_reasons": 0x40}, {}), ({"ecc_uncorrected": 2}, {}),
        ({"xid_last": 79, "xid_age_s": 1.0}, {}), ({"xid_last": 9999, "xid_age_s": 1.0}, {}), ({"remapped_rows_pending": True}, {}),
        ({"remapped_rows_failure": True}, {}), ({}, {"power": "reset_required"}), ({}, {"handle": "unknown"}),
        ({}, {"power": "unknown", "memory": "unknown"}), ({"recovery_action": 2}, {}),
    ],
)  # fmt: skip
def test_every_verdict_on_a_gpu_is_told_in_chinese(values, faults):
    text = grade(GpuReading(3, "GPU-ab-12", values, faults), None).text
    assert text
    told = node_text_zh(f"GPU 3 (GPU-ab-12) {text}")
    assert told.startswith("GPU 3 ")
    assert not english(told), told
    assert RECOVERY_ACTIONS


def test_every_trouble_of_a_driver_and_of_the_list_is_told_in_chinese():
    for text in (
        *DRIVER_TEXT.values(), "driver unresponsive: no answer for 18 s", "7 of 8 GPUs are there: reboot the node, then check the hardware",
        "GPU 3 (GPU-ab) is lost (fell off the bus, last answered 2026-01-02 03:04:05 UTC): reboot the node, then check the hardware",
        "a runs on it, and it has not reported for a day, or never", "its clock is 5 min behind this machine's, or its samples come late",
        "it last said fail: GPU 3 is lost (fell off the bus): reboot the node, then check the hardware", "it last said ok",
    ):  # fmt: skip
        assert english(node_text_zh(text)) <= {"min"}, node_text_zh(text)


def test_the_walls_lines_are_chinese_and_foreign_text_stays():
    node = NodeSample("n1", NOW, "fail", gpus=8, text="GPU 3 (GPU-ab) is hot; what nobody knows")
    gpus = tuple(GpuSample("n1", f"GPU-{i}", i, NOW, "fail") for i in range(6))
    told = nodes_view(Snapshot(NOW, (), (node,), gpus), "zh")[1]["texts"]["0"]
    assert told == "GPU 3 温度偏高；what nobody knows · GPU 0 故障，GPU 1 故障，GPU 2 故障，GPU 3 故障，另有 2 张"
    assert nodes_view(Snapshot(NOW, (), (node,), gpus), "en")[1]["texts"]["0"].startswith("GPU 3 (GPU-ab) is hot")


@given(st.text(max_size=300))
def test_any_text_is_told(text):
    assert isinstance(node_text_zh(text), str)
