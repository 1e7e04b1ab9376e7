"""Level load where torch is there, but cannot be imported within the limits, or dies: our own reader does what it can."""

from __future__ import annotations

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.checkpoints import load
from trainvitals.checkpoints.files import listing
from trainvitals.checkpoints.findings import Findings


@pytest.fixture
def loaded_with(tmp_path, monkeypatch):
    """Load a good file where ``import torch`` runs the given lines."""
    (tmp_path / "libraries").mkdir()
    start = f"import sys; sys.path.insert(0, {str(tmp_path / 'libraries')!r}); {load._START}"
    monkeypatch.setattr(load, "_START", start)

    def run(lines: str, content: bytes = b"") -> tuple[bool, Findings]:
        (tmp_path / "libraries" / "torch.py").write_text(lines)
        (tmp_path / "c_5.pt").write_bytes(content or made.torch_zip_with({"a.weight": [0.5, -1.25] * 600}))
        findings = Findings()
        return load.check(listing(str(tmp_path / "c_5.pt")), findings, load.Limits(seconds=60)), findings

    return run


@pytest.mark.parametrize(
    "lines", ["raise OSError('libtorch_cuda.so: failed to map segment')", "import os; os._exit(134)", "x = bytearray(8 << 30)"]
)
def test_a_torch_that_cannot_be_imported_is_told_and_the_values_are_sampled_all_the_same(loaded_with, lines):
    is_loaded, findings = loaded_with(lines)
    assert is_loaded and findings.damaged == []
    assert any("torch" in note and "within the limits of this check" in note for note in findings.notes)
    assert any("1 tensor sampled" in note for note in findings.notes)


def test_a_torch_that_dies_of_a_file_leaves_it_unloaded(loaded_with):
    is_loaded, findings = loaded_with("__version__ = '2.13.0'\ndef load(*args, **kwargs):\n    import os; os._exit(134)\n")
    assert not is_loaded and findings.damaged == []
    assert findings.notes == ["could not be loaded: the process that loads it ended without an answer (exit code 134)"]


def test_a_torch_before_2_6_loads_nothing_and_a_later_one_may_start_nothing(loaded_with):
    lines = (
        "import resource\n__version__ = '%s'\ndef load(*args, **kwargs):\n"
        "    raise RuntimeError(f'processes {resource.getrlimit(resource.RLIMIT_NPROC)}')\n"
    )
    is_loaded, findings = loaded_with(lines.replace("%s", "2.5.1"))
    assert is_loaded and any("CVE-2025-32434" in note for note in findings.notes)
    is_loaded, findings = loaded_with(lines.replace("%s", "2.6.0"))
    assert not is_loaded and any("processes (0, 0)" in note for note in findings.notes)


def test_a_file_that_only_torch_could_load_is_loaded_by_nobody_without_it(loaded_with):
    is_loaded, findings = loaded_with("raise ImportError('no')", make.torch_zip_bytes(storages=()))
    assert not is_loaded and findings.damaged == []
