"""The hook's file under a umask of 077: whoever was given the directory reads it, nobody else does."""

import contextlib
import os
import stat

import pytest

from tests.control.two_users import DASHBOARD, GROUP, STRANGER, TRAINER, as_user, needs_root
from trainvitals.control import init, sharing
from trainvitals.hook import Recorder


@pytest.fixture(autouse=True)
def narrow():
    before = os.umask(0o077)
    yield
    os.umask(before)


def records(run_dir, **options):
    with contextlib.closing(Recorder(run_dir, **options)) as recorder:
        recorder.log(1, loss=2.0)
    return stat.S_IMODE((run_dir / "metrics.rank00000.jsonl").stat().st_mode)


@pytest.mark.parametrize("writer", ["direct", "queued"])
@pytest.mark.parametrize(("mode", "is_read"), [(0o2770, True), (0o2750, True), (0o770, False), (0o755, False), (0o2700, False)])
def test_the_group_reads_it_only_where_the_directory_was_given_to_a_group(tmp_path, mode, is_read, writer):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run_dir.chmod(mode)
    assert records(run_dir, writer=writer) == (0o640 if is_read else 0o600)


def test_a_file_that_an_earlier_start_left_closed_is_opened_to_the_group(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    assert records(run_dir) == 0o600
    run_dir.chmod(0o2770)
    assert records(run_dir) == 0o640


def test_a_mode_that_cannot_be_changed_costs_no_record_and_is_counted(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refused)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run_dir.chmod(0o2770)
    assert records(run_dir) == 0o600
    assert '"loss":2.0' in (run_dir / "metrics.rank00000.jsonl").read_text()


@needs_root
def test_the_dashboards_user_reads_what_a_trainer_of_another_user_writes(tmp_path):
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    os.chown(run_dir, TRAINER, TRAINER)

    def train():
        init(run_dir, "r1")
        sharing.share(run_dir, str(GROUP))
        return records(run_dir)

    assert as_user(TRAINER, train, GROUP)() == {"is": 0o640}
    file = run_dir / "metrics.rank00000.jsonl"
    assert '"loss":2.0' in as_user(DASHBOARD, file.read_text, GROUP)()["is"]
    assert "PermissionError" in as_user(STRANGER, file.read_text)()["raised"]
