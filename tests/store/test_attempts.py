from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.attempts import ATTEMPTS_FILE, LOCK_FILE, AttemptBook, AttemptEntry, hold_watch_lock
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.supervisor import lock as supervisor_lock

T0 = 1_767_323_045_000_000_000


def test_a_known_key_keeps_its_number_and_a_new_one_gets_the_next(tmp_path: Path) -> None:
    book = AttemptBook(tmp_path)
    assert book.all() == []
    assert [book.number(key, T0, 0, "hook") for key in ("a", "b", "a", "c", "b")] == [1, 2, 1, 3, 2]
    again = AttemptBook(tmp_path)
    assert again.number("c", None, None, "log") == 3 and again.number("d", None, 500, "log") == 4
    assert again.all()[3] == AttemptEntry(4, "d", None, 500, "log")


def test_a_torn_last_line_is_skipped_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    book = AttemptBook(tmp_path)
    book.number("a", T0, 0, "hook")
    path = tmp_path / ATTEMPTS_FILE
    path.write_bytes(path.read_bytes() + b'{"attempt":2,"key":"tor')
    assert [entry.key for entry in book.all()] == ["a"] and book.unreadable_lines == 1
    assert book.number("b", T0, 0, "hook") == 2
    assert [(entry.attempt, entry.key) for entry in AttemptBook(tmp_path).all()] == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "line",
    [b"[]", b"5", b"\xff\xfe", b'{"attempt":true,"key":"x"}', b'{"attempt":0,"key":"x"}', b'{"attempt":9}', b'{"attempt":9,"key":1}',
     b'{"attempt":9,"key":"x","started_ns":"soon"}', b'{"attempt":9,"key":"x","source":[]}'],
)  # fmt: skip
def test_a_line_that_is_no_attempt_is_counted_and_skipped(tmp_path: Path, line: bytes) -> None:
    (tmp_path / ATTEMPTS_FILE).write_bytes(line + b"\n")
    book = AttemptBook(tmp_path)
    assert book.number("a", T0, 0, "hook") == 1
    book.all()
    assert book.unreadable_lines == 1


def test_a_number_or_key_that_comes_twice_is_taken_once(tmp_path: Path) -> None:
    lines = ['{"attempt":1,"key":"a"}', '{"attempt":1,"key":"b"}', '{"attempt":3,"key":"a"}', '{"attempt":7,"key":"c"}']
    (tmp_path / ATTEMPTS_FILE).write_text("\n".join(lines) + "\n")
    book = AttemptBook(tmp_path)
    assert [(entry.attempt, entry.key) for entry in book.all()] == [(1, "a"), (7, "c")]
    assert book.number("new", None, None, "log") == 8


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(), max_size=20), st.integers(0, 2000))
def test_any_keys_and_any_cut_give_numbers_that_never_change(tmp_path: Path, keys: list[str], cut: int) -> None:
    path = tmp_path / ATTEMPTS_FILE
    path.unlink(missing_ok=True)
    book = AttemptBook(tmp_path)
    for key in keys:
        book.number(key, None, None, "log")
    whole = path.read_bytes() if path.exists() else b""
    path.write_bytes(whole[: max(0, len(whole) - cut)])  # a crash lost the end
    before = {entry.key: entry.attempt for entry in book.all()}
    numbers = {key: book.number(key, None, None, "log") for key in keys}
    assert numbers | before == numbers
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))


def test_a_run_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    book = AttemptBook(tmp_path / "nowhere")
    assert book.all() == []
    with pytest.raises(InputError, match=r"Cannot write .*attempts\.jsonl: No such file"):
        book.number("a", T0, 0, "hook")
    with pytest.raises(InputError, match=r"watch\.lock"), hold_watch_lock(tmp_path / "nowhere"):
        pass


def test_the_watch_lock_is_held_by_one_and_names_the_holder(tmp_path: Path) -> None:
    with hold_watch_lock(tmp_path):
        with pytest.raises(TrainvitalsError, match=f"in use by process {os.getpid()} already"), hold_watch_lock(tmp_path):
            pass
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    assert (tmp_path / LOCK_FILE).read_text() == ""
    with hold_watch_lock(tmp_path):
        pass


def _hold_until_killed(directory: str, ready: multiprocessing.synchronize.Event) -> None:
    with hold_watch_lock(directory):
        ready.set()
        multiprocessing.Event().wait(120)


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold_until_killed, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(60)
    with pytest.raises(TrainvitalsError, match=f"process {holder.pid}"), hold_watch_lock(tmp_path):
        pass
    holder.kill()
    holder.join(60)
    holder.close()
    with hold_watch_lock(tmp_path):
        pass


def test_a_started_program_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with hold_watch_lock(tmp_path):
        program = "print('up', flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
    with hold_watch_lock(tmp_path):
        pass
    child.communicate(b"\n", timeout=60)
    assert child.returncode == 0


def test_a_file_that_did_not_change_is_not_read_again_for_each_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = AttemptBook(tmp_path)
    book.number("first", T0, 0, "hook")
    reads: list[int] = []
    read = AttemptBook._read
    monkeypatch.setattr(AttemptBook, "_read", lambda self: (reads.append(1), read(self))[1])
    assert [book.number(f"key{number}", T0, 0, "hook") for number in range(50)] == list(range(2, 52))
    assert reads == []
    AttemptBook(tmp_path).number("another", T0, 0, "hook")
    assert book.number("last", T0, 0, "hook") == 53


def test_the_lock_holds_on_a_disk_that_takes_nothing(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    told = r"in use by another process already \(a watch or an import\)"
    with hold_watch_lock(tmp_path), pytest.raises(TrainvitalsError, match=told), hold_watch_lock(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_not_told_as_another_watch(tmp_path, monkeypatch, code):
    def no_locks(*_args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(InputError, match=r"locks no files \(.*\), so two watches .*; mount it with locks"),
        hold_watch_lock(tmp_path),
    ):
        pass


def test_a_link_in_the_run_directory_chooses_no_file_of_ours_to_be_emptied_or_written(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("of somebody\n")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / LOCK_FILE).symlink_to(precious)
    with pytest.raises(InputError, match=r"watch\.lock: it is a symbolic link; remove it"), hold_watch_lock(run_dir):
        pass
    (run_dir / "attempts.jsonl").symlink_to(precious)
    with pytest.raises(InputError, match=r"attempts\.jsonl: it is a symbolic link; remove it"):
        AttemptBook(run_dir).number("key", None, 0, "hook")
    assert precious.read_text() == "of somebody\n"


def test_a_supervisor_without_locks_says_so_as_well(tmp_path, monkeypatch):
    def no_locks(*_args):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(InputError, match=r"locks no files \(.*\), so two supervisors"), supervisor_lock.hold(str(tmp_path)):
        pass
