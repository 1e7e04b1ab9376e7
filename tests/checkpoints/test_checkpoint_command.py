import json
import shutil

import checkpoint_makers as make

from trainvitals.__main__ import main
from trainvitals.checkpoints import pinning

KEYS = {"path", "step", "format", "state", "level", "has_optimizer", "files", "bytes", "reasons"}
MORE_KEYS = {"proof", "has_rng", "has_scheduler", "has_data_position", "world_size", "parallel", "loss"}


def test_each_checkpoint_is_one_json_object_and_a_bad_one_makes_the_exit_code_1(tmp_path, capsys):
    make.huggingface(tmp_path, 500)
    assert main(["checkpoint", "verify", str(tmp_path), "--json"]) == 0
    bad = make.huggingface(tmp_path, 1000)
    (bad / "optimizer.pt").write_bytes(b"PK\x03\x04 cut")
    assert main(["checkpoint", "verify", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    first, again, second = map(json.loads, captured.out.splitlines())
    assert set(first) == KEYS | MORE_KEYS
    assert first == again
    assert (first["step"], first["state"], first["level"], first["has_optimizer"]) == (500, "verified", "structure", True)
    assert (second["step"], second["state"], second["level"]) == (1000, "corrupt", "presence")
    assert "a save may still be running" in captured.err


def test_the_table_is_aligned_and_says_why(tmp_path, capsys):
    make.huggingface(tmp_path, 500)
    (make.huggingface(tmp_path, 12000) / "trainer_state.json").unlink()
    assert main(["checkpoint", "list", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.index(state) for line, state in zip(lines[:2], ("STATE", "complete"), strict=True)] == [7, 7]
    assert lines[2].index("incomplete") == 7
    assert "trainer_state.json is missing" in lines[3]


def test_show_tells_all_reasons_of_one_checkpoint(tmp_path, capsys):
    directory = make.huggingface(tmp_path, 500)
    (directory / "optimizer.pt").write_bytes(b"")
    (directory / "model.safetensors").write_bytes(b"")
    assert main(["checkpoint", "show", str(directory)]) == 1
    out = capsys.readouterr().out
    assert "model.safetensors is empty" in out
    assert "optimizer.pt is empty" in out


def test_unreadable_places_and_unknown_levels_are_exit_code_2(tmp_path, capsys):
    assert main(["checkpoint", "list", str(tmp_path / "nothing")]) == 2
    assert "no directory or file" in capsys.readouterr().err


def test_an_empty_directory_is_fine_and_says_so(tmp_path, capsys):
    assert main(["checkpoint", "list", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No checkpoints" in captured.err


def test_a_pinned_copy_is_named_also_when_the_trainer_deleted_its_own(tmp_path, capsys):
    directory = make.huggingface(tmp_path, 500)
    make.huggingface(tmp_path, 1000)
    pinned = pinning.pin(str(directory)).path
    shutil.rmtree(directory)
    for action in ("list", "verify"):
        assert main(["checkpoint", action, str(tmp_path)]) == 0
        assert f"Kept from deletion: {pinned} (look at it by this path)" in capsys.readouterr().err
    assert main(["checkpoint", "verify", pinned]) == 0
    captured = capsys.readouterr()
    assert "Kept from deletion" not in captured.err and "verified" in captured.out
    shutil.rmtree(tmp_path / "checkpoint-1000")
    assert main(["checkpoint", "list", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "" and pinned in captured.err
