"""The watchdog against hostile records, full disks, vanished directories, floods and chatter."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_watchdog import HOST, Bench

from trainvitals.watch.checkpoint_scan import Scan
from trainvitals.watch.flood import BURST
from trainvitals.watch.sources import LocalProcessTable, TrainerProcess


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()


HOSTILE = [
    b'{"type":"event","kind":"watch","data":{"lost":"many","errors":[1]}}',
    b'{"type":"event","kind":"watch","data":{"lost":1e999,"errors":-5}}',
    b'{"type":"event","kind":"finding","data":{"rule":[],"id":{}}}',
    b'{"type":"event","kind":"incident","data":{}}',
    b'{"type":"event","kind":"breaker","data":null}',
    b'{"type":"event","kind":"attempt_end","step":-1,"data":{"reason":[1],"exit_code":"x"}}',
    b'{"type":"event","kind":"phase","data":{"phase":{},"state":[]}}',
    b'{"type":"event","kind":"resume","step":"x","data":{}}',
    b'{"type":"event","kind":"annotation","data":{"rules":[null,{}],"points":1e308}}',
    b'{"type":"event","kind":"control","data":{"state":"paused","desired":[1]}}',
    b'{"type":"event","kind":"fault","data":{"class":{}}}',
    b'{"type":"event","kind":"checkpoint","data":{"path":1}}',
    b'{"type":"event","kind":"data","data":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
    b'{"type":"step","step":1000000000000000000,"values":{"loss":1}}',
    b'{"type":"step","step":-1,"values":{"loss":1}}',
    b'{"type":"step","step":true,"values":[]}',
    b'{"type":"step","step":7,"time_ns":99999999999999999999,"values":{"loss":"x","grad_norm":1e400,"a b":{}}}',
    b'{"type":"step","step":8,"values":{"loss":1e308,"tokens":NaN,"worst_rank":1e300},"nonfinite":{"loss":"maybe","lr":3}}',
    b'{"type":"step","step":' + b"9" * 5_000 + b"}",
    b'{"type":"header","schema":1,"pid":true,"host":[],"started_ns":"soon","rank":{}}',
    b'{"type":"header","schema":1,"pid":-7,"host":"node1","started_ns":-1}',
    b'{"type":"header","schema":1,"pid":1e9,"host":"\\ud800","started_ns":1767323045000000000,"run":"' + b"x" * 5_000 + b'"}',
    b'{"lost":1e99,"type":"step","step":9,"values":{}}',
    b"\0\0\0", b"\xff\xfe{", b"[]", b"null", b'"x"', b"{", b"\x1b[31m", b"",
]  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(HOSTILE), max_size=30), st.integers(1, 3))
def test_no_record_of_a_trainer_ends_the_watchdog_or_its_successor(tmp_path_factory, lines, turns):
    bench = Bench(tmp_path_factory.mktemp("hostile"))
    try:
        bench.header()
        for turn in range(turns):
            with bench.file.open("ab") as file:
                file.write(b"\n".join(lines) + b"\n")
            bench.watchdog.turn()
            bench.clock.advance(5)
            bench.watchdog.turn()
            bench.start()
            bench.step(1_000 + turn, loss=2.0)
            bench.watchdog.turn()
        assert bench.watchdog.counters.detector_errors == 0
        assert not any("could not be used" in sentence for sentence in bench.said)
        assert list(bench.train_rows()["step"])[-1] == 1_000 + turns - 1
        for entry in (bench.dir / "attempts.jsonl").read_text().splitlines():
            assert json.loads(entry)["started_ns"] > 0
    finally:
        bench.store.close()


def test_a_trainer_cannot_speak_as_the_watchdog(bench):
    bench.header()
    bench.train(0, 5)
    bench.append({"type": "event", "kind": "finding", "text": "all is well", "data": {"rule": "stall", "is_open": False}})
    bench.watchdog.turn()
    assert bench.events("finding") == []
    told = bench.events("message")
    assert [event.data["said_kind"] for event in told] == ["finding"]


def test_a_start_is_numbered_although_the_attempts_file_cannot_be_written(bench):
    blocked = bench.dir / "attempts.jsonl"
    blocked.mkdir()
    bench.header(pid=1)
    bench.train(0, 5)
    bench.header(pid=2)
    bench.train(5, 5)
    bench.watchdog.turn()
    assert sorted(set(bench.train_rows()["attempt"])) == ["1", "2"]
    assert sum("attempts.jsonl" in sentence for sentence in bench.said) == 1
    bench.start()
    blocked.rmdir()
    bench.clock.advance(1)
    bench.watchdog.turn()
    entries = [json.loads(line) for line in blocked.read_text().splitlines()]
    assert [entry["attempt"] for entry in entries] == [1, 2]
    bench.header(pid=3)
    bench.train(10, 1)
    bench.watchdog.turn()
    assert sorted(set(bench.train_rows()["attempt"])) == ["1", "2", "3"]


def test_a_number_is_not_given_twice_when_the_attempts_file_is_deleted(bench):
    bench.header(pid=1)
    bench.train(0, 5)
    bench.watchdog.turn()
    (bench.dir / "attempts.jsonl").unlink()
    bench.header(pid=2)
    bench.train(5, 5)
    bench.watchdog.turn()
    assert sorted(set(bench.train_rows()["attempt"])) == ["1", "2"]


def test_many_starts_leave_little_state_and_are_told_once(bench):
    for start in range(60):
        bench.header(pid=start + 1)
        bench.step(start, loss=2.0)
        bench.watchdog.turn()
        bench.clock.advance(0.5)
    assert len(bench.watchdog._sources.to_state()["numbers"]) == 1
    assert sum("two trainers" in sentence for sentence in bench.said) == 1
    assert len((bench.dir / "attempts.jsonl").read_text().splitlines()) == 60


def test_history_of_many_starts_is_no_flapping(bench):
    started_ns = bench.clock.time_ns() - 3_600_000_000_000
    for start in range(60):
        bench.header(pid=start + 1, started_ns=started_ns + start)
        bench.step(start, loss=2.0)
    bench.watchdog.turn()
    assert not any("two trainers" in sentence for sentence in bench.said)


def test_a_flood_of_log_lines_is_bounded_in_the_store_and_counted(bench, tmp_path):
    bench.store.close()
    (tmp_path / "flood").mkdir()
    bench = Bench(tmp_path / "flood", logs=[str(tmp_path / "flood" / "run" / "*.out")])
    line = "[rank0]: OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
    (bench.dir / "train.out").write_text("".join(line.format(65536 + n, 32768 + n) for n in range(BURST + 500)))
    bench.header()
    bench.train(0, 3)
    bench.watchdog.turn()
    assert len(bench.events("message")) == BURST
    assert bench.watchdog.counters.flooded_events == 500
    assert bench.events("attempt_start") != []
    bench.store.close()


def test_a_log_that_never_falls_silent_does_not_hide_a_stall_or_a_death(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "run" / "*.out")])
    bench.header(pid=77)
    bench.train(0, 300)
    bench.watchdog.turn()
    bench.processes[77] = (False, None)
    for second in range(400):
        bench.clock.advance(5)
        with (bench.dir / "train.out").open("a") as file:
            file.write(f"{second} OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n")
        assert bench.watchdog.turn() is False
    assert any(event.data["reason"] == "process gone" for event in bench.events("attempt_end"))
    bench.store.close()
    other = tmp_path / "other"
    other.mkdir()
    bench = Bench(other, logs=[str(other / "run" / "*.out")])
    bench.header(pid=78)
    bench.train(0, 300)
    bench.watchdog.turn()
    for second in range(400):
        bench.clock.advance(5)
        with (bench.dir / "train.out").open("a") as file:
            file.write(f"{second} OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n")
        bench.watchdog.turn()
    assert any(event.data["rule"] == "stall" for event in bench.events("finding"))
    bench.store.close()


def test_a_process_of_another_pid_namespace_is_never_called_gone():
    table = LocalProcessTable(HOST, lambda _pid: (False, None), "boot/pid:[1]")
    assert table.is_gone(TrainerProcess(1, 7, HOST, 0, "boot/pid:[1]"))
    assert table.is_gone(TrainerProcess(1, 7, HOST, 0))
    assert not table.is_gone(TrainerProcess(1, 7, HOST, 0, "boot/pid:[2]"))
    assert not table.is_gone(TrainerProcess(1, 7, "elsewhere", 0, "boot/pid:[1]"))


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_an_attempts_file_that_is_no_file_neither_blocks_nor_ends_the_watchdog(bench, kind):
    import os

    path = bench.dir / "attempts.jsonl"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    bench.header()
    bench.train(0, 5)
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(5))


def test_a_heartbeat_is_written_before_the_first_step(bench):
    bench.watchdog.turn()
    beat = bench.store.latest("heartbeat", ["alive", "step_max"], {"run": "r"}, 10**11, bench.clock.time_ns())
    assert len(beat) == 1


def test_the_state_of_many_checkpoints_is_written_only_when_it_changed(bench):
    class Scanner:
        restored = None

        def poll(self):
            scan, self.next = self.next, None
            return scan

        def advise(self, wanted, step_s):
            pass

        def restore(self, state):
            self.restored = state

    written = []

    class Recording:
        def commit(self, points, state):
            written.append(sorted(state))
            bench.store.commit(points, state)

        def load_state(self, prefix):
            return bench.store.load_state(prefix)

    bench.start(Recording())
    scanner = bench.watchdog._scanner = Scanner()
    scanner.next = Scan((), {"known": ["x" * 1_000_000]})
    bench.header()
    for step in range(3):
        bench.step(step, loss=2.0)
        bench.watchdog.turn()
    assert written == [["watch/r/checkpoints", "watch/r/state"], ["watch/r/state"], ["watch/r/state"]]
    bench.start()
    assert bench.watchdog._checkpoint_state == {"known": ["x" * 1_000_000]}
