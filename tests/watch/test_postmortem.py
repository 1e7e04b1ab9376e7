"""A death is looked into: real files, a real store, real threads; what hangs, vanishes or is hostile stops nothing."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest
from test_watchdog import HOST, Bench, NoCheckpoints

from trainvitals.clock import SystemClock
from trainvitals.logs.tails import Tail
from trainvitals.records import Event
from trainvitals.settings import LogSettings, RunSettings
from trainvitals.store.encode import check_point, event_point
from trainvitals.watch import tail_archive, tail_reading
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.postmortem import Death, PostmortemRunner, look_into, with_places
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.tail_archive import KeptTail, safe_name, write_archive
from trainvitals.watch.watchdog import Watchdog

OOM = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 4 has a total capacity of 79 GiB\n"
TIMEOUT = (
    "[rank{0}]:[E102 03:34:06.123456789 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out.\n"
)


class DeadBench(Bench):
    """A bench whose watchdog looks into deaths, in the same thread unless told otherwise."""

    in_thread = False

    def start(self, store=None):
        run = self.settings.runs[0]
        run = RunSettings(**{**run.__dict__, "rank_logs": (str(self.dir / "ranks" / "*.err"),)})
        self.runner = PostmortemRunner(run, self.settings.logs, SystemClock(), in_thread=self.in_thread)
        self.watchdog = Watchdog(
            self.settings, run, store or self.store, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable(HOST, lambda pid: self.processes.get(pid, (True, None)))),
            scanner=CheckpointScanner(NoCheckpoints(), self.clock, 10, in_thread=False),
            breaker=BreakerAction(run, lambda _dir: self.status), node=HOST, say=self.said.append, postmortems=self.runner,
        )  # fmt: skip
        self.watchdog.restore()
        return self.watchdog

    def write_ranks(self, ranks=8, dead=3):
        folder = self.dir / "ranks"
        folder.mkdir(exist_ok=True)
        at_s = self.clock.time_ns() / 1e9
        for rank in range(ranks):
            path = folder / f"rank_{rank}.err"
            path.write_text((OOM if rank == dead else TIMEOUT).format(rank))
            os.utime(path, (at_s, at_s))

    def die(self, pid=1):
        self.header(pid=pid)
        self.train(0, 30)
        self.watchdog.turn()
        self.write_ranks()
        self.processes[pid] = (False, None)
        self.clock.advance(5)
        self.watchdog.turn()
        self.clock.advance(5)
        self.watchdog.turn()


@pytest.fixture
def bench(tmp_path):
    made = DeadBench(tmp_path)
    yield made
    made.store.close()


def test_a_trainer_that_vanished_is_dead_of_what_the_rank_logs_say(bench):
    bench.die()
    (event,) = bench.events("postmortem")
    assert (
        event.text.startswith("cause: CUDA out of memory") and "rank 3" in event.text and "7 others only followed" in event.text
    )
    assert event.data["cause"]["rank"] == 3 and event.data["suspects"] == [] and event.attempt == 1
    dead = [event for event in bench.events("finding") if event.data["rule"] == "run_dead"]
    assert "after step 29: CUDA out of memory" in dead[-1].text
    assert any("post-mortem of attempt 1: cause: CUDA out of memory" in sentence for sentence in bench.said)


def test_the_ends_are_kept_with_an_index_and_the_cause_first(bench):
    bench.die()
    folder = bench.dir / "tails" / "attempt-00001"
    index = json.loads((folder / "index.json").read_text())
    assert index["run"] == "r" and len(index["files"]) == 8
    first = index["files"][0]
    assert first["path"].endswith("rank_3.err") and first["faults"] == ["out_of_memory"]
    assert gzip.decompress((folder / first["name"]).read_bytes()).decode() == OOM.format(3)


def test_what_the_metadata_says_of_a_rank_is_named_with_it(bench):
    folder = bench.dir / "metadata"
    folder.mkdir()
    places = {"3": "node9/3/GPU-1234"}
    content = {"schema": 1, "run": "r", "attempt": 1, "start": {}, "sections": {"ranks": places}}
    (folder / "attempt-00001.json").write_text(json.dumps(content))
    bench.die()
    assert "on node9 rank 3 [node9/3/GPU-1234]" in bench.events("postmortem")[-1].text
    fault = Event("fault", 1, data={"class": "nccl_timeout", "rank": 3, "ranks_missing": [3, 4]})
    assert with_places(fault, {3: "node9/3/GPU-1234"}).data["ranks_missing_places"] == {"3": "node9/3/GPU-1234"}


def test_a_watchdog_that_was_killed_before_the_answer_asks_again_and_answers_once(tmp_path):
    class Slow(DeadBench):
        def start(self, store=None):
            made = super().start(store)
            if not hasattr(self, "is_second"):
                self.runner.poll = lambda *_args: None  # killed before it came that far
            return made

    bench = Slow(tmp_path)
    bench.die()
    assert bench.events("postmortem") == []
    bench.is_second = True
    for _ in range(3):
        bench.start()
        bench.watchdog.turn()
        bench.clock.advance(1)
        bench.watchdog.turn()
    assert len(bench.events("postmortem")) == 1
    bench.store.close()


def test_history_that_is_read_again_is_not_looked_into(bench):
    bench.die()
    bench.clock.advance(10_000)
    bench.header(pid=2)
    bench.train(20, 5)
    bench.watchdog.turn()
    before = len(bench.events("postmortem"))
    runner = PostmortemRunner(bench.settings.runs[0], bench.settings.logs, in_thread=False)
    runner.ask(Death(1, bench.clock.time_ns() - 2 * 3600 * 10**9))
    assert runner.poll(2, bench.clock.time_ns()) is None and runner.to_state() == []
    assert before == 1


def test_a_trainers_file_cannot_make_up_a_post_mortem(bench):
    bench.header()
    bench.append(
        {"type": "event", "kind": "postmortem", "time_ns": bench.clock.time_ns(), "text": "cause: you", "data": {"cause": {}}}
    )
    bench.train(0, 3)
    bench.watchdog.turn()
    assert bench.events("postmortem") == []


# -- reading ------------------------------------------------------------------------------------------------------------


def look(tmp_path, budget_s=20.0, **settings):
    run_dir = tmp_path / "run"
    run_dir.mkdir(exist_ok=True)
    run = RunSettings(name="r", dir=str(run_dir), rank_logs=(str(tmp_path / "ranks" / "**" / "*"),))
    return look_into(run, LogSettings(**settings), Death(1, time.time_ns()), SystemClock(), budget_s, lambda _chosen: None)


def ranks(tmp_path, count=8, dead=3):
    folder = tmp_path / "ranks"
    folder.mkdir(exist_ok=True)
    for rank in range(count):
        (folder / f"rank_{rank}.err").write_text((OOM if rank == dead else TIMEOUT).format(rank))
    return folder


def test_pipes_devices_directories_and_packed_files_are_passed_over(tmp_path):
    folder = ranks(tmp_path)
    os.mkfifo(folder / "rank_90.err")
    (folder / "rank_91.err").symlink_to("/dev/zero")
    (folder / "rank_92.err").symlink_to(folder / "nowhere")
    (folder / "old.log.gz").write_bytes(b"x")
    done = look(tmp_path)
    assert done.postmortem.cause is not None and done.postmortem.cause.rank == 3
    reading = done.postmortem.reading
    assert (reading.read, reading.unreadable, reading.skipped, reading.left) == (8, 2, 1, 0) or reading.unreadable == 3
    assert any("no regular file" in trouble for trouble in reading.troubles)


def test_a_file_system_that_hangs_costs_its_file_and_not_the_answer(tmp_path, monkeypatch):
    ranks(tmp_path)
    released = threading.Event()
    real = tail_reading.read_tail

    def hanging(path, tail_bytes):
        if path.endswith("rank_5.err"):
            released.wait(60)
        return real(path, tail_bytes)

    monkeypatch.setattr(tail_reading, "read_tail", hanging)
    monkeypatch.setattr(tail_reading, "STUCK_S", 0.5)
    began = time.monotonic()
    try:
        done = look(tmp_path, budget_s=20.0)
    finally:
        released.set()
    assert time.monotonic() - began < 10
    assert done.postmortem.cause is not None and done.postmortem.cause.rank == 3
    assert done.postmortem.reading.left == 1 and "1 file was not read in time" in done.postmortem.message


def test_the_turn_never_waits_for_a_disk_that_hangs(tmp_path, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(tail_reading, "read_tail", lambda *_args: Tail(b"", 0, 0) if released.wait(60) else None)
    ranks(tmp_path)
    run = RunSettings(name="r", dir=str(tmp_path), rank_logs=(str(tmp_path / "ranks" / "*"),))
    runner = PostmortemRunner(run, LogSettings(), SystemClock(), budget_s=0.2)
    monkeypatch.setattr("trainvitals.watch.postmortem.KEEP_S", 0.2)
    runner.ask(Death(1, time.time_ns()))
    deadline = time.monotonic() + 10
    finished = None
    try:
        while finished is None and time.monotonic() < deadline:
            began = time.monotonic()
            finished = runner.poll(1, time.time_ns())
            assert time.monotonic() - began < 0.5
            released.wait(0.02)
    finally:
        released.set()
    assert finished is not None and finished.postmortem.reading.is_partial


def test_other_attempts_files_are_not_looked_at(tmp_path):
    folder = ranks(tmp_path)
    at_s = 1_767_325_000  # 2026-01-02 03:36:40
    for path in folder.iterdir():
        changed_s = at_s - 86_400 if path.name == "rank_3.err" else at_s
        os.utime(path, (changed_s, changed_s))
    run = RunSettings(name="r", dir=str(tmp_path), rank_logs=(str(folder / "*"),))
    death = Death(1, at_s * 10**9, started_ns=(at_s - 7200) * 10**9)
    done = look_into(run, LogSettings(), death, SystemClock(), 20.0, lambda _chosen: None)
    assert done.postmortem.reading.skipped == 1
    assert done.postmortem.cause is not None and done.postmortem.cause.kind == "nccl_timeout" and done.postmortem.suspects == (3,)


def test_a_start_in_the_future_hides_no_file(tmp_path):
    folder = ranks(tmp_path)
    run = RunSettings(name="r", dir=str(tmp_path), rank_logs=(str(folder / "*"),))
    death = Death(1, time.time_ns(), started_ns=time.time_ns() + 8 * 3600 * 10**9)
    done = look_into(run, LogSettings(), death, SystemClock(), 20.0, lambda _chosen: None)
    assert done.postmortem.reading.skipped == 0 and done.postmortem.cause is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_link_to_another_users_file_is_not_read(tmp_path):
    folder = ranks(tmp_path, count=1, dead=0)
    secret = tmp_path / "secret.txt"
    secret.write_text(OOM.format(9))
    (folder / "rank_9.err").symlink_to(secret)
    (folder / "latest.err").symlink_to(folder / "rank_0.err")
    os.chown(secret, 4321, 4321)
    os.chown(folder / "rank_9.err", 4323, 4323, follow_symlinks=False)
    done = look(tmp_path)
    reading = done.postmortem.reading
    assert (reading.read, reading.unreadable, reading.skipped) == (1, 1, 1)
    assert any("another user" in trouble for trouble in done.postmortem.reading.troubles)


def test_torchruns_log_directory_tells_the_rank(tmp_path):
    for rank in range(4):
        folder = tmp_path / "ranks" / "none_ab" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("RuntimeError: CUDA error: unknown error\n" if rank == 2 else "fine\n")
    cause = look(tmp_path).postmortem.cause
    assert cause is not None and (cause.kind, cause.rank) == ("cuda_error", 2)


# -- keeping ------------------------------------------------------------------------------------------------------------


def test_hostile_file_names_stay_in_their_directory(tmp_path):
    folder = ranks(tmp_path, count=0)
    for name in (b"a\nb.err", b"\xff\xfe.err", "ünïcode ‮.err".encode(), b"-rf.err", b"x" * 240 + b".err"):
        with open(os.path.join(os.fsencode(folder), name), "w") as file:
            file.write(OOM.format(1))
    done = look(tmp_path)
    kept = sorted(path.name for path in (tmp_path / "run" / "tails" / "attempt-00001").iterdir())
    assert len(kept) == 6 and done.trouble == ""
    assert all(name.isascii() and not name.startswith((".", "-")) and len(name) < 200 for name in kept)
    index = json.loads((tmp_path / "run" / "tails" / "attempt-00001" / "index.json").read_text())
    assert {os.fsencode(file["path"]) for file in index["files"]} == {os.fsencode(path) for path in folder.iterdir()}
    told = Event("postmortem", 1, attempt=1, id="r/1/postmortem/0", text=done.postmortem.message, data=done.postmortem.to_data())
    check_point(event_point("r", told))
    assert safe_name("/../../etc/passwd").startswith("etc__passwd-") and "/" not in safe_name("/../../etc/passwd")
    assert safe_name("/a/b") != safe_name("/a/c") and safe_name("//") != ""


def test_a_disk_that_takes_nothing_is_said_and_counted_and_costs_no_answer(bench):
    (bench.dir / "tails").write_text("in the way")
    bench.die()
    assert bench.events("postmortem")[0].text.startswith("cause: CUDA out of memory")
    assert bench.watchdog.counters.tails_not_kept == 1
    assert any("could not be kept" in sentence for sentence in bench.said)


def test_the_hooks_own_files_tell_the_host_of_a_rank(tmp_path):
    ranks(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.rank00003.jsonl").write_text('{"type":"header","rank":3,"host":"node17"}\n{"type":"st')
    assert "on node17 rank 3 (" in look(tmp_path).postmortem.message


def test_nothing_is_kept_when_the_settings_say_so(tmp_path):
    ranks(tmp_path)
    done = look(tmp_path, kept_attempts=0)
    assert done.postmortem.tails == "" and done.trouble == "" and not (tmp_path / "run" / "tails").exists()
    done = look(tmp_path, kept_bytes=0)
    assert done.postmortem.tails == ""


def test_a_file_that_a_loop_of_links_names_again_and_again_is_read_once(tmp_path):
    folder = ranks(tmp_path, count=3, dead=0)
    (folder / "up").symlink_to("..")
    run = RunSettings(name="r", dir=str(tmp_path), rank_logs=(str(folder / "**" / "*.err"),))
    done = look_into(run, LogSettings(), Death(1, time.time_ns()), SystemClock(), 20.0, lambda _chosen: None)
    reading = done.postmortem.reading
    assert (reading.read, reading.left, done.postmortem.followers) == (3, 0, 2) and reading.skipped > 3


def test_files_beyond_the_bound_are_said_to_be_too_many_and_not_to_be_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_reading, "MAX_FILES", 2)
    ranks(tmp_path, count=5, dead=0)
    told = look(tmp_path).postmortem
    assert (told.reading.left, told.reading.beyond) == (0, 3) and told.reading.is_partial
    assert "3 files too many were not asked for" in told.message and "not asked for" in told.reading.troubles[0]


def test_the_kept_ends_belong_to_the_runs_group(tmp_path):
    folder = Path(write_archive(str(tmp_path), 1, [KeptTail((0, 0), "/x/rank0.err", b"text", 4, 0, {})], {}, 3))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o2770, 0o2770]


@pytest.mark.parametrize("room", [0, 400, 3_000])
def test_of_a_disk_that_is_nearly_full_the_causes_take_what_is_left(tmp_path, monkeypatch, room):
    written = tail_archive._write
    left = [room]

    def nearly_full(path, content):
        if len(content) > left[0]:
            path.write_bytes(content[: left[0]])
            left[0] = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= len(content)
        written(path, content)

    def removed(path, missing_ok=False):
        left[0] += path.stat().st_size if path.exists() else 0
        os.unlink(path)

    monkeypatch.setattr(tail_archive, "_write", nearly_full)
    monkeypatch.setattr(Path, "unlink", removed)
    tails = [KeptTail((number, 0), f"/x/rank{number}.err", b"x" * 300, 300, 0, {}) for number in range(20)]
    if room < 3_000:
        with pytest.raises(OSError, match="No space left"):
            write_archive(str(tmp_path), 1, tails, {"left_out": 2}, 3)
        assert list((tmp_path / "tails").iterdir()) == []
        return
    folder = Path(write_archive(str(tmp_path), 1, tails, {"left_out": 2}, 3))
    index = json.loads((folder / "index.json").read_text())
    assert [file["path"] for file in index["files"]] == [f"/x/rank{number}.err" for number in range(len(index["files"]))]
    assert 1 <= len(index["files"]) < 10 and index["left_out"] == 22 - len(index["files"])
    assert len(list(folder.iterdir())) == len(index["files"]) + 1
