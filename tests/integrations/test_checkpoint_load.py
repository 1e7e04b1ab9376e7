"""Levels content and load on what torch itself saves, with torch in the child."""

import os

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.integration

from trainvitals.checkpoints import inspect, load  # noqa: E402
from trainvitals.checkpoints.files import listing  # noqa: E402
from trainvitals.checkpoints.findings import Findings  # noqa: E402


def state(value=None, dtype=torch.float32):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64, bias=False)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 64, dtype=dtype)).sum().backward()
    optimizer.step()
    if value is not None:
        with torch.no_grad():
            model[2].weight[3, 4] = value
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 500}


def loaded(path):
    findings = Findings()
    return load.check(listing(str(path)), findings, load.Limits(seconds=120)), findings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_torch_saved_is_proven_and_loaded_by_torch_itself(tmp_path, dtype):
    path = tmp_path / "step_500.pt"
    torch.save(state(dtype=dtype), path)
    report = inspect(str(path), "load")
    assert (report.state, report.level, report.proof, report.has_optimizer) == ("verified", "load", "checksum", True), report
    assert f"1 file loaded by torch {torch.__version__}" in report.reasons


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named_as_torch_names_it(tmp_path, value):
    path = tmp_path / "step_500.pt"
    torch.save(state(value), path)
    report = inspect(str(path), "load")
    assert report.state == "corrupt"
    assert "tensor model.2.weight in step_500.pt holds" in report.reasons[0]


def test_a_flipped_bit_loads_in_torch_without_a_word_and_is_found_at_level_content(tmp_path):
    path = tmp_path / "step_500.pt"
    saved = state()
    torch.save(saved, path)
    raw = bytearray(path.read_bytes())
    place = raw.index(saved["model"]["0.weight"].numpy().tobytes())
    raw[place + 1_000] ^= 1
    path.write_bytes(raw)
    torch.load(path, weights_only=True)
    is_loaded, _ = loaded(path)
    assert is_loaded
    report = inspect(str(path), "content")
    assert report.state == "corrupt"
    assert "does not match its checksum" in report.reasons[0]


def test_a_file_without_checksums_and_one_in_the_legacy_format_are_no_damage(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state(), tmp_path / "step_500.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    torch.save(state(), tmp_path / "step_600.pt", _use_new_zipfile_serialization=False)
    report = inspect(str(tmp_path / "step_500.pt"), "load")
    assert (report.state, report.level) == ("verified", "structure"), report
    assert "without any checksum" in " ".join(report.reasons)
    assert inspect(str(tmp_path / "step_600.pt"), "load").state == "complete"


def test_memory_that_was_never_written_and_weights_of_zero_are_found(tmp_path):
    saved = state()
    saved["model"]["0.weight"] = torch.full((64, 64), 1e-42)
    torch.save(saved, tmp_path / "step_500.pt")
    _, findings = loaded(tmp_path / "step_500.pt")
    assert "model.0.weight in step_500.pt holds denormal numbers" in findings.damaged[0]
    for name in ("0.weight", "2.weight"):
        saved["model"][name] = torch.zeros(64, 64)
    torch.save(saved, tmp_path / "step_600.pt")
    _, findings = loaded(tmp_path / "step_600.pt")
    assert "2 of 2 sampled weight tensors are all zero" in findings.damaged[0]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_sharded_save_is_loaded_entry_by_entry_with_its_names(tmp_path):
    import torch.distributed.checkpoint as dcp

    saved = state()
    dcp.save({"model": saved["model"], "optimizer": saved["optimizer"]}, checkpoint_id=str(tmp_path / "step-500"), no_dist=True)
    is_loaded, findings = loaded(tmp_path / "step-500")
    assert is_loaded, findings
    saved["model"]["2.weight"][1, 1] = float("nan")
    dcp.save({"model": saved["model"]}, checkpoint_id=str(tmp_path / "step-600"), no_dist=True)
    _, findings = loaded(tmp_path / "step-600")
    assert "tensor model.2.weight in __0_0.distcp holds NaN" in findings.damaged[0], findings


def test_a_file_that_is_cut_is_damage_in_torchs_own_words_too(tmp_path):
    path = tmp_path / "step_500.pt"
    torch.save(state(), path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-1_000])
    _, findings = loaded(path)
    assert f"step_500.pt cannot be loaded by torch {torch.__version__}" in findings.damaged[0]


class Writes:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def test_a_pickle_that_would_write_a_file_does_not_write_it_in_the_child_with_torch(tmp_path):
    torch.save({"w": Writes(tmp_path / "owned")}, tmp_path / "step_500.pt")
    loaded(tmp_path / "step_500.pt")
    assert inspect(str(tmp_path / "step_500.pt"), "load").state == "corrupt"
    assert not (tmp_path / "owned").exists()
