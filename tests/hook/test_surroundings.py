"""What surrounds a start: packages, driver and the libraries that the trainer imported itself."""

from __future__ import annotations

import sys
import time
import types

from trainvitals.hook import packages, surroundings


def test_a_package_list_that_takes_too_long_is_not_told_in_part():
    assert packages.packages(time.monotonic() - 1) == {"unavailable": "the file system took too long"}


def test_a_damaged_package_is_named_and_the_others_are_still_told(monkeypatch):
    from importlib import metadata as installed

    def version(name):
        if name == "numpy":
            raise ValueError("damaged")
        if name == "torch":
            return "2.9.0"
        raise installed.PackageNotFoundError(name)

    monkeypatch.setattr(installed, "version", version)
    assert packages.packages(time.monotonic() + 10) == {"torch": "2.9.0", "numpy": "unreadable: ValueError"}


def test_the_driver_and_the_nccl_of_the_trainers_torch_are_told(tmp_path, monkeypatch):
    version = types.SimpleNamespace(cuda="12.8", hip=None, git_version="a" * 40)
    nccl = types.SimpleNamespace(version=lambda: (2, 27, 5))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(version=version, cuda=types.SimpleNamespace(nccl=nccl)))
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n")
    monkeypatch.setattr(surroundings, "DRIVER_VERSION", str(driver))
    told = surroundings.software()
    assert (told["nvidia_driver"], told["torch_cuda"], told["nccl"]) == ("570.124.06", "12.8", "2.27.5")
    assert told["torch_git_version"] == "a" * 40 and "torch_hip" not in told


def test_the_settings_file_of_the_dashboard_steers_no_training_and_is_not_told():
    variables = {"TRAINVITALS_CONFIG": "/a/trainvitals.toml", "TRAINVITALS_LOCAL_DIR": "/scratch", "NCCL_DEBUG": "INFO"}
    assert surroundings.environment(variables) == {"TRAINVITALS_LOCAL_DIR": "/scratch", "NCCL_DEBUG": "INFO"}
