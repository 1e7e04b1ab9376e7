"""A checkpoint that makes a check fail in a way that nobody thought of: the others are judged all the same."""

import checkpoint_makers as make
import pytest

from trainvitals import __main__ as cli
from trainvitals.checkpoints import (
    CheckpointWatcher,
    discovery,
    files,
    inspect,
    inspection,
    layouts,
    safetensors_header,
    verification,
)
from trainvitals.clock import ManualClock


@pytest.fixture
def broken_check(monkeypatch):
    """The check of safetensors fails for one file, as an integer of a million digits made another one fail."""
    check = safetensors_header.check

    def fails(reader):
        if reader.size == 77:
            raise ValueError("Exceeds the limit for integer string conversion")
        return check(reader)

    monkeypatch.setattr(safetensors_header, "check", fails)


def two(tmp_path):
    good = make.huggingface(tmp_path, 100)
    bad = make.huggingface(tmp_path, 200)
    (bad / "model.safetensors").write_bytes(bytes(77))
    return good, bad


def scanned(watcher, clock, times=4):
    for _ in range(times):
        clock.advance(10.0)
        watcher.scan()
    return {report.step: str(report.state) for report in watcher.reports}


def test_the_watcher_judges_the_others_and_tells_of_the_one(tmp_path, broken_check):
    two(tmp_path)
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)
    assert scanned(watcher, clock) == {100: "verified", 200: "complete"}
    assert "fault in the check itself" in watcher.text
    assert watcher.errors


def test_the_command_judges_the_others_and_does_not_call_all_fine(tmp_path, broken_check, capsys):
    two(tmp_path)
    code = cli.main(["checkpoint", "verify", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "100   verified" in shown
    assert "please report it" in shown
    assert code == 2


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (layouts, "layout_of"),
        (inspection.writer_hashes, "read"),
        (inspection, "stored_path"),
        (files, "listing"),
        (verification, "listing"),
    ],
)
def test_wherever_a_look_fails_the_scan_and_the_command_go_on(tmp_path, monkeypatch, capsys, module, name):
    make.huggingface(tmp_path, 100)
    make.huggingface(tmp_path, 200)
    works = getattr(module, name)

    def fails(*arguments):
        if any("checkpoint-200" in str(getattr(one, "root", one)) for one in arguments):
            raise ValueError("nobody thought of it")
        return works(*arguments)

    monkeypatch.setattr(module, name, fails)
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)
    states = scanned(watcher, clock)
    assert states[100] == "verified"
    if module is not verification:
        assert watcher.errors
        assert states.get(200) != "verified"
    if module is not files:
        assert cli.main(["checkpoint", "verify", str(tmp_path)]) == 2
        assert "100   verified" in capsys.readouterr().out


def test_a_directory_that_cannot_be_searched_does_not_hide_another(tmp_path, monkeypatch):
    good = make.huggingface(tmp_path / "one", 100).parent
    works = discovery.find_now
    monkeypatch.setattr(discovery, "find_now", lambda directory: works(directory) if directory == str(good) else 1 // 0)
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path / "other"), str(good)], clock)
    assert scanned(watcher, clock) == {100: "verified"}
    assert "ZeroDivisionError" in watcher.text


def test_one_that_cannot_be_judged_and_takes_long_leaves_time_for_the_others(tmp_path, monkeypatch):
    two(tmp_path)
    clock = ManualClock()
    check = safetensors_header.check

    def slow(reader):
        clock.advance(5.0)
        return 1 // 0 if reader.size == 77 else check(reader)

    monkeypatch.setattr(safetensors_header, "check", slow)
    watcher = CheckpointWatcher([str(tmp_path)], clock)
    assert scanned(watcher, clock) == {100: "verified", 200: "complete"}


def test_inspect_of_it_does_not_raise(tmp_path, broken_check):
    _, bad = two(tmp_path)
    assert inspect(str(bad), "load").state == "complete"
