import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory) -> Path:
    """A directory with a made-up libnvidia-ml.so.1 in it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the made-up NVML library")
    directory = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return directory


@pytest.fixture
def driver_environment(fake_driver):
    """fault -> environment of a process that loads the made-up driver with that fault."""

    def environment(fault: str) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(fake_driver), "FAKE_NVML": fault, "PYTHONPATH": str(ROOT)}

    return environment
