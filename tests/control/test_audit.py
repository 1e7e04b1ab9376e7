"""The audit: any edit, loss or exchange of records is found and named; several writers and killed writers break nothing."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control import audit, audit_chain, audit_files
from trainvitals.control.audit import Head, append, head_of, newest
from trainvitals.control.audit_chain import Anchor, verify
from trainvitals.errors import ControlError, InputError

WRITER = Path(__file__).with_name("audit_writer.py")


def audit_file(run_dir: Path) -> Path:
    return run_dir / "control" / "audit.jsonl"


def fill(run_dir: Path, count: int, clock: ManualClock | None = None) -> list[Head]:
    clock = clock or ManualClock()
    heads = []
    for number in range(count):
        clock.advance(1)
        heads.append(append(run_dir, "request", by=f"p{number}", source="cli", data={"number": number}, clock=clock, run="r"))
    return heads


def writer_process(run_dir: Path, name: str, count: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(audit.__file__).parents[2])}
    command = [sys.executable, str(WRITER), str(run_dir), name, count]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, list[bytes], Head]:
    run_dir = tmp_path_factory.mktemp("run")
    heads = fill(run_dir, 8)
    return run_dir, audit_file(run_dir).read_bytes().splitlines(keepends=True), heads[-1]


def check(tmp: Path, lines: list[bytes], head: Head) -> audit_chain.Chain:
    (tmp / "control").mkdir(exist_ok=True)
    audit_file(tmp).write_bytes(b"".join(lines))
    return verify(tmp, [Anchor(head, "the store")])


def test_a_chain_is_intact_and_its_records_say_who_what_and_when(tmp_path):
    heads = fill(tmp_path, 3)
    chain = verify(tmp_path)
    assert chain.is_intact
    assert (chain.records, chain.head, chain.first_n) == (3, heads[-1], 1)
    assert head_of(tmp_path) == heads[-1]
    assert [(r.n, r.by, dict(r.data)) for r in newest(tmp_path, 2)] == [(2, "p1", {"number": 1}), (3, "p2", {"number": 2})]
    assert stat.S_IMODE(audit_file(tmp_path).stat().st_mode) == 0o660


def test_nothing_written_yet_is_no_fault(tmp_path):
    assert verify(tmp_path).is_intact
    assert head_of(tmp_path) == Head()
    assert newest(tmp_path, 5) == []


def test_without_a_run_directory_nothing_is_made(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        append(tmp_path / "none", "request", by="a", source="cli", data={})


FEW = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(place=st.integers(0, 7), at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_any_changed_byte_is_found_and_its_record_is_named(written, tmp_path, place, at, byte):
    _, lines, head = written
    line = bytearray(lines[place])
    where = int(at * len(line))
    if line[where] == byte:
        byte ^= 1
    line[where] = byte
    chain = check(tmp_path, [*lines[:place], bytes(line), *lines[place + 1 :]], head)
    assert chain.broken_n == place + 1
    assert f"record {place + 1}" in chain.problem


@FEW
@given(first=st.integers(0, 7), count=st.integers(1, 8))
def test_any_records_that_were_taken_out_are_named(written, tmp_path, first, count):
    _, lines, head = written
    left = lines[:first] + lines[first + count :]
    assert check(tmp_path, left, head).broken_n == first + 1


@FEW
@given(pair=st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True))
def test_two_records_that_changed_places_are_found(written, tmp_path, pair):
    _, lines, head = written
    swapped = list(lines)
    swapped[pair[0]], swapped[pair[1]] = lines[pair[1]], lines[pair[0]]
    assert check(tmp_path, swapped, head).broken_n == min(pair) + 1


@FEW
@given(place=st.integers(0, 8), source=st.integers(0, 7))
def test_a_record_that_was_put_in_is_found(written, tmp_path, place, source):
    _, lines, head = written
    chain = check(tmp_path, [*lines[:place], lines[source], *lines[place:]], head)
    assert not chain.is_intact
    assert chain.broken_n == place + 1 or (source == place and chain.broken_n == place + 2)


def test_a_record_rewritten_with_a_hash_that_fits_is_found_by_the_one_after_it(written, tmp_path):
    _, lines, head = written
    raw = json.loads(lines[3])
    forged = audit.AuditRecord(
        4, raw["kind"], audit.document.from_rfc3339(raw["time"]), raw["run"], "somebody else", raw["source"], raw["data"], raw["previous"]
    ).to_line()  # fmt: skip
    chain = check(tmp_path, [*lines[:3], forged, *lines[4:]], head)
    assert chain.broken_n == 4


def test_a_chain_written_anew_from_some_record_on_is_found_by_an_anchor_alone(tmp_path):
    old = fill(tmp_path, 6)
    lines = audit_file(tmp_path).read_bytes().splitlines(keepends=True)
    audit_file(tmp_path).write_bytes(b"".join(lines[:3]))
    fill(tmp_path, 5, ManualClock(1_800_000_000_000_000_000))
    assert verify(tmp_path).is_intact
    chain = verify(tmp_path, [Anchor(old[2], "h"), Anchor(old[4], "history/5.json"), Anchor(old[5], "the store")])
    assert chain.broken_n == 5
    assert "history/5.json" in chain.problem


def test_a_file_that_was_removed_is_found_by_an_anchor(tmp_path):
    head = fill(tmp_path, 2)[-1]
    audit_file(tmp_path).unlink()
    assert verify(tmp_path, [Anchor(head, "the store")]).broken_n == 1


@given(torn=st.binary(min_size=1, max_size=400).filter(lambda data: b"\n" not in data))
@settings(deadline=None, max_examples=40)
def test_what_a_killed_writer_left_is_closed_and_told_and_no_break(tmp_path_factory, torn):
    run_dir = tmp_path_factory.mktemp("torn")
    fill(run_dir, 2)
    with audit_file(run_dir).open("ab") as file:
        file.write(torn)
    before = verify(run_dir)
    assert before.is_intact
    assert before.open_bytes == len(torn)
    fill(run_dir, 2)
    chain = verify(run_dir)
    assert chain.is_intact
    assert (chain.records, chain.torn) == (5, 1)
    told = newest(run_dir, 3)[0]
    assert (told.kind, told.data["bytes"]) == ("torn", len(torn))


def test_a_whole_record_without_its_newline_is_torn_and_not_counted(tmp_path):
    fill(tmp_path, 2)
    audit_file(tmp_path).write_bytes(audit_file(tmp_path).read_bytes()[:-1])
    fill(tmp_path, 1)
    chain = verify(tmp_path)
    assert chain.is_intact
    assert [r.kind for r in newest(tmp_path, 9)] == ["request", "request", "torn", "request"]


def test_a_torn_part_that_was_changed_afterwards_is_found(tmp_path):
    fill(tmp_path, 1)
    with audit_file(tmp_path).open("ab") as file:
        file.write(b'{"half')
    fill(tmp_path, 1)
    audit_file(tmp_path).write_bytes(audit_file(tmp_path).read_bytes().replace(b'{"half', b'{"hALf'))
    assert verify(tmp_path).broken_n == 2


def test_a_broken_record_at_the_end_does_not_keep_people_from_asking_and_stays_named(tmp_path):
    fill(tmp_path, 3)
    lines = audit_file(tmp_path).read_bytes().splitlines(keepends=True)
    audit_file(tmp_path).write_bytes(b"".join([*lines[:2], b"garbage\n"]))
    fill(tmp_path, 2)
    assert verify(tmp_path).broken_n == 3


def test_a_full_file_is_put_aside_and_the_next_one_links_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", audit_files.MAX_LINE_BYTES + 2_000)
    monkeypatch.setattr(audit, "MAX_KEPT_FILES", 3)
    heads = fill(tmp_path, 60)
    older = sorted(path.name for path in (tmp_path / "control").glob("audit.*.jsonl"))
    assert len(older) == 3
    chain = verify(tmp_path, [Anchor(heads[0], "the store"), Anchor(heads[-2], "the store")])
    assert chain.is_intact
    assert chain.first_n > 1
    assert chain.head == heads[-1]
    assert sum(p.stat().st_size for p in (tmp_path / "control").glob("audit*")) < 20_000
    (tmp_path / "control" / older[0]).unlink()
    gone = verify(tmp_path)
    assert older[0] in gone.problem
    assert not gone.is_intact


def test_a_file_from_the_middle_that_was_removed_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", audit_files.MAX_LINE_BYTES + 2_000)
    fill(tmp_path, 40)
    older = sorted((tmp_path / "control").glob("audit.*.jsonl"))
    assert len(older) >= 3
    first = int(older[1].name.split(".")[1])
    older[1].unlink()
    assert verify(tmp_path).broken_n == first


def test_a_kill_between_putting_aside_and_beginning_anew_is_no_break(tmp_path):
    fill(tmp_path, 3)
    audit_file(tmp_path).rename(tmp_path / "control" / "audit.000000000001.jsonl")
    fill(tmp_path, 2)
    chain = verify(tmp_path)
    assert chain.is_intact
    assert chain.records == 6


def test_writers_in_several_processes_interleave_without_a_break(tmp_path):
    writers = [writer_process(tmp_path, f"w{n}", "25") for n in range(4)]
    told = [line.split() for writer in writers for line in writer.communicate(timeout=120)[0].splitlines()]
    assert all(writer.returncode == 0 for writer in writers)
    chain = verify(tmp_path, [Anchor(Head(int(n), digest), "its writer") for n, digest in told])
    assert chain.is_intact
    assert chain.records == len(told) == 100


def test_twenty_kills_of_a_writer_lose_nothing_that_it_was_told(tmp_path):
    dice = random.Random(7)
    anchors = []
    for number in range(20):
        writer = writer_process(tmp_path, f"k{number}", "10000")
        assert writer.stdout is not None
        for _ in range(dice.randint(1, 12)):
            n, digest = writer.stdout.readline().split()
            anchors.append(Anchor(Head(int(n), digest), "its writer"))
        writer.kill()
        writer.communicate(timeout=30)
    append(tmp_path, "note", by="me", source="cli", data={})
    chain = verify(tmp_path, anchors)
    assert chain.is_intact, chain.problem
    assert chain.records >= len(anchors)


def test_on_a_full_disk_nothing_half_written_stays(tmp_path, monkeypatch):
    heads = fill(tmp_path, 2)
    real = os.write

    def full(handle: int, data: memoryview) -> int:
        if len(data) > 100:
            return real(handle, data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_files.os, "write", full)
    with pytest.raises(ControlError, match="No space left"):
        append(tmp_path, "request", by="a", source="cli", data={"reason": "x" * 42})
    monkeypatch.undo()
    chain = verify(tmp_path)
    assert (chain.head, chain.open_bytes) == (heads[-1], 0)


def test_a_link_to_a_device_is_not_written_to(tmp_path):
    (tmp_path / "control").mkdir(mode=0o770)
    audit_file(tmp_path).symlink_to("/dev/full")
    with pytest.raises(ControlError, match="symbolic link"):
        append(tmp_path, "request", by="a", source="cli", data={})


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.lock"])
@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
def test_strange_things_in_the_place_of_its_files_are_refused_at_once(tmp_path, name, what):
    control = tmp_path / "control"
    control.mkdir(mode=0o770)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    {
        "link": lambda: (control / name).symlink_to(victim),
        "pipe": lambda: os.mkfifo(control / name),
        "directory": lambda: (control / name).mkdir(),
    }[what]()
    with pytest.raises(ControlError):
        append(tmp_path, "request", by="a", source="cli", data={})
    assert victim.read_text() == "mine"


def test_a_directory_that_everyone_may_write_to_is_refused(tmp_path):
    (tmp_path / "control").mkdir()
    (tmp_path / "control").chmod(0o777)
    with pytest.raises(ControlError, match="chmod o-w"):
        append(tmp_path, "request", by="a", source="cli", data={})


def test_a_writer_that_holds_the_lock_too_long_is_told_of(tmp_path, monkeypatch):
    fill(tmp_path, 1)
    monkeypatch.setattr(audit_files, "LOCK_WAIT_S", 0.05)
    with audit_files.locked(tmp_path), pytest.raises(ControlError, match="fuser"):
        append(tmp_path, "request", by="a", source="cli", data={})


def test_secrets_are_masked_and_what_is_too_long_is_left_out_with_its_hash(tmp_path):
    append(
        tmp_path,
        "request",
        by="a",
        source="cli",
        data={"reason": "token hf_abcdefghijklmnopqrstuvwxyz012345", "password": "hunter22"},
    )
    append(tmp_path, "request", by="a", source="cli", data={"reason": "x " * 40_000})
    text = audit_file(tmp_path).read_text()
    assert "abcdefghij" not in text
    assert "hunter22" not in text
    assert newest(tmp_path, 1)[0].data["left_out_bytes"] > 40_000
    assert verify(tmp_path).is_intact


def test_what_is_no_json_is_refused(tmp_path):
    with pytest.raises(ControlError, match="JSON"):
        append(tmp_path, "request", by="a", source="cli", data={"x": float("nan")})
    with pytest.raises(ControlError, match="JSON"):
        append(tmp_path, "request", by="a", source="cli", data={"x": object()})


@given(data=st.binary(max_size=2_000))
@settings(deadline=None, max_examples=100)
def test_no_file_content_makes_the_check_or_a_writer_fail(tmp_path_factory, data):
    run_dir = tmp_path_factory.mktemp("hostile")
    (run_dir / "control").mkdir(mode=0o770)
    audit_file(run_dir).write_bytes(data)
    verify(run_dir)
    newest(run_dir, 10)
    append(run_dir, "request", by="a", source="cli", data={})
    chain = verify(run_dir)
    assert chain.is_intact == (b"\n" not in data)


def test_deep_nesting_and_huge_numbers_are_named_not_raised(tmp_path):
    (tmp_path / "control").mkdir(mode=0o770)
    for line in (b"[" * 100_000, b'{"schema":1,"n":' + b"9" * 5_000 + b"}", b'{"schema":1,"n":1,"data":{"x":1e999}}'):
        audit_file(tmp_path).write_bytes(line + b"\n")
        assert verify(tmp_path).broken_n == 1
        append(tmp_path, "request", by="a", source="cli", data={})


def test_a_check_while_writers_put_files_aside_never_cries_wolf(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", audit_files.MAX_LINE_BYTES + 1_000)
    monkeypatch.setattr(audit, "MAX_KEPT_FILES", 4)
    ending = threading.Event()

    def write() -> None:
        while not ending.is_set():
            append(tmp_path, "request", by="a", source="cli", data={})

    fill(tmp_path, 1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        problems = {verify(tmp_path).problem for _ in range(60)}
    finally:
        ending.set()
        writer.join(30)
    assert problems == {""}


def test_a_writer_killed_while_it_put_a_file_aside_is_no_break_but_a_file_that_goes_then_is(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", audit_files.MAX_LINE_BYTES + 1_000)
    monkeypatch.setattr(audit, "MAX_KEPT_FILES", 4)
    fill(tmp_path, 30)
    with audit_files.locked(tmp_path) as directory:
        directory.put_aside(1, 4)
        oldest = directory.older[0]
    assert verify(tmp_path).problem == ""
    (tmp_path / "control" / oldest).unlink()
    assert "gone" in verify(tmp_path).problem
