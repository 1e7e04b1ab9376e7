"""A skip is a clear word on somebody's laptop; where the decision falls, everything must have run."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

PROGRAMS = {
    "a Chromium browser": ("chromium", "chromium-browser", "google-chrome"),
    "a C compiler": ("cc", "gcc"),
    "InfluxDB": ("influxd",),
    "nginx": ("nginx",),
}


@pytest.mark.skipif(not os.environ.get("CI"), reason="only where CI is set; elsewhere a missing service skips its tests")
@pytest.mark.parametrize("what", PROGRAMS)
def test_every_service_that_tests_need_is_here(what: str) -> None:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    assert any(shutil.which(name, path=path) for name in PROGRAMS[what]), f"{what} is missing: see .ci/system-packages"


@pytest.mark.skipif(not os.environ.get("CI"), reason="only where CI is set")
def test_the_browser_driver_and_the_reader_that_is_not_ours_are_here() -> None:
    assert importlib.util.find_spec("playwright") and importlib.util.find_spec("safetensors")
