"""`import`: the rows that `watch` would have written, whatever was read before, however often it is killed."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from import_place import BEGIN, FOR_EVER, Place, megatron, said

from tests.services.influx_server import INFLUXD, InfluxServer
from trainvitals.__main__ import main
from trainvitals.attempts import hold_watch_lock
from trainvitals.cli import import_, import_files
from trainvitals.cli.import_ import Progress
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.errors import StoreUnavailable
from trainvitals.records import Step
from trainvitals.store.spool_file import SpoolStats
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch import importer
from trainvitals.watch.import_times import TimePlan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "a")


def test_an_import_stores_steps_findings_attempts_and_roll_ups(place, capsys):
    log = place.file("train.log", megatron(1, 300) + megatron(301, 30, loss=float("nan"), at=600).replace("nan", "nan"))
    assert place.run(log) == 0
    told, _ = said(capsys)
    assert (told["steps"], told["new_steps"], told["attempts"], told["first_step"], told["last_step"]) == (330, 330, [1], 1, 330)
    rows = place.rows()
    assert [row[1] for row in rows] == list(range(1, 331)) and rows[0][2] // 10**9 == int(
        BEGIN.replace(tzinfo=datetime.UTC).timestamp()
    )
    assert any("loss_nonfinite" in event[1] for event in place.events("finding")) and place.events("incident")
    assert len(place.events("attempt_start")) == 1 and (place.run_dir / "attempts.jsonl").exists()
    store = place.open()
    minutes = store.raw("train_1m", ["n"], {"run": "r"}, *FOR_EVER)
    assert minutes["n"].sum() == 330
    store.close()


def test_a_second_import_writes_nothing_new_and_says_so(place, capsys):
    log = place.file("train.log", megatron(1, 50))
    place.run(log)
    rows, events = place.rows(), place.events()
    capsys.readouterr()
    assert place.run(log) == 0
    told, text = said(capsys)
    assert told["new_steps"] == 0 and "nothing new" in text
    assert place.run(log, more=["--again"]) == 0
    told, text = said(capsys)
    assert (told["steps"], told["new_steps"], told["new_events"]) == (50, 0, 0) and "50 stored already" in text
    assert (place.rows(), place.events()) == (rows, events)


def test_a_log_that_has_grown_is_read_again_and_only_the_rest_is_new(place, capsys):
    text = megatron(1, 50)
    place.run(place.file("train.log", text))
    capsys.readouterr()
    place.run(place.file("train.log", text + megatron(51, 10, at=100)))
    told, _ = said(capsys)
    assert (told["steps"], told["new_steps"], told["attempts"]) == (60, 10, [1])


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize("order", ["watch first", "import first"])
def test_watch_and_import_in_any_order_give_the_same_rows(tmp_path, is_timed, order):
    text = megatron(1, 200, timed=is_timed) + megatron(150, 60, timed=is_timed, loss=3.5, at=1000)
    place = Place(tmp_path / "a")
    log = place.file("train.log", text)
    steps = [place.watch, lambda: place.run(log)]
    for step in steps if order == "watch first" else steps[::-1]:
        step()
        rows, events = place.rows(), place.events("attempt_start", "finding", "incident", "message", "resume")
        # Whether nothing came since is asked by who follows a log, not by who imports one.
        events = [event for event in events if "stall" not in event[1]]
        if step is steps[0 if order == "watch first" else 1]:
            before = rows, [event[:3] for event in events]
    assert (rows, [event[:3] for event in events]) == before
    assert (
        len({row[:2] for row in rows}) == len(rows) == 260
        and len((place.run_dir / "attempts.jsonl").read_text().splitlines()) == 2
    )


def test_times_of_a_log_that_tells_none_lie_before_its_last_change(place, capsys):
    written_s = 1_770_000_000
    log = place.file("train.log", "".join(f"iter {n}: loss 3.0000, time 2000.00ms, mfu 30.00%\n" for n in range(30)), written_s)
    place.run(log)
    assert [(row[1], row[2] // 10**9) for row in place.rows()] == [(n, written_s - 2 * (29 - n)) for n in range(30)]
    assert {row[4] for row in place.rows()} == {"1"}
    assert "30 steps without a time" in capsys.readouterr().err


def test_a_plan_of_times_spreads_what_does_not_fit_and_never_goes_back():
    def step(n, time_ns=None, gap_s=None):
        return Step(n, 1, time_ns, {} if gap_s is None else {"step_time_s": gap_s})

    second = 10**9
    plan = TimePlan()
    for one in (step(1), step(2, gap_s=3.0), step(3, 100 * second), step(4), step(5), step(6, 102 * second, gap_s=1.0)):
        plan.add(one)
    plan.end_of_file(500 * second)
    assert [t / second for t in plan.times] == [96, 99, 100, 100.5, 101, 102]
    plan.add(step(7))
    plan.end_of_file(50 * second)
    assert plan.times[6] > plan.times[5]


class Killed(BaseException):
    """As a kill -9: nothing of the program runs any more."""


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_killed_anywhere_it_goes_on_to_the_same_rows(tmp_path, monkeypatch, is_timed, seed):
    monkeypatch.setattr(importer, "COMMIT_POINTS", 40)
    monkeypatch.setattr("trainvitals.cli.parse._CHUNK_BYTES", 4_096)
    texts = [megatron(1, 300, timed=is_timed) + "FAILED\n" + megatron(250, 200, timed=is_timed, loss=3.4, at=2_000, seed=3),
             megatron(450, 100, timed=is_timed, at=9_000)]  # fmt: skip
    place, whole = Place(tmp_path / "a"), Place(tmp_path / "b")
    for one in (place, whole):
        one.logs = [one.file("one.log.gz", gzip.compress(texts[0].encode(), mtime=0)), one.file("two.log", texts[1])]
    assert whole.run(*whole.logs) == 0
    chance, real = random.Random(seed), SqliteStore.commit
    kills = 0

    def commit(self, points, state):
        nonlocal kills
        if chance.random() < 0.6 and kills < 12:
            kills += 1
            if chance.random() < 0.5:
                real(self, points, state)
            raise Killed
        real(self, points, state)

    monkeypatch.setattr(SqliteStore, "commit", commit)
    while True:
        try:
            assert place.run(*place.logs) == 0
            break
        except Killed:
            continue
    assert kills > 3
    assert place.rows() == whole.rows() and place.events() == whole.events()
    assert (place.run_dir / "attempts.jsonl").read_text() == (whole.run_dir / "attempts.jsonl").read_text()


def has_steps(place):
    try:
        store = place.open()
    except StoreUnavailable:  # not made so far
        return False
    try:
        return len(store.raw("train", ["step"], {"run": "r"}, *FOR_EVER, limit=1)) > 0
    finally:
        store.close()


def test_a_real_kill_in_the_middle_is_gone_on_from(tmp_path):
    place = Place(tmp_path / "a")
    log = place.file("train.log", megatron(1, 30_000))
    command = [sys.executable, "-m", "trainvitals", "import", str(log), "--run", "r", "--config", str(place.config)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pause, deadline_s = threading.Event(), time.monotonic() + 60
    while time.monotonic() < deadline_s and process.poll() is None and not has_steps(place):
        pause.wait(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["steps"] == 30_000
    assert [row[1] for row in place.rows()] == list(range(1, 30_001))


def test_rotations_of_one_log_are_one_attempt_in_order(place, capsys):
    place.file("train.log.2.gz", gzip.compress(megatron(1, 40).encode()))
    place.file("train.log.1", megatron(41, 40, at=80))
    log = place.file("train.log", megatron(81, 40, at=160))
    assert place.run(log, place.folder / "train.log.1", place.folder / "train.log.2.gz") == 0
    told, _ = said(capsys)
    assert (told["steps"], told["attempts"]) == (120, [1])
    assert [row[1] for row in place.rows()] == list(range(1, 121))


def test_rotations_without_times_are_ordered_by_their_numbers(place, capsys):
    for number, name in enumerate(("train.log.10", "train.log.9", "train.log")):
        place.file(name, megatron(1 + 40 * number, 40, timed=False))
    assert place.run(place.folder / "train.log*") == 0
    assert said(capsys)[0]["attempts"] == [1] and [row[1] for row in place.rows()] == list(range(1, 121))


def test_logs_of_several_jobs_become_attempts_in_order_of_time(place, capsys):
    later = place.file("slurm-12.out", megatron(40, 20, at=5_000))
    earlier = place.file("slurm-11.out", megatron(1, 50))
    assert place.run(later, earlier) == 0
    assert said(capsys)[0]["attempts"] == [1, 2]
    assert {row[1] for row in place.rows() if row[0] == "2"} == set(range(40, 60))


def test_a_file_named_twice_is_read_once_and_a_quoted_glob_is_expanded(place, capsys):
    log = place.file("train.log", megatron(1, 10))
    (place.folder / "link.log").symlink_to(log)
    assert place.run(log, log, place.folder / "*.log") == 0
    told, text = said(capsys)
    assert told["steps"] == 10 and "same file" in text


def test_a_directory_of_event_files_is_one_log(place, capsys):
    from tensorboard.compat.proto.event_pb2 import Event as Message
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = place.folder / "events"
    for part in range(2):
        writer = EventFileWriter(str(folder), filename_suffix=f".{part}")
        for step in range(part * 10, part * 10 + 10):
            summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=3.0)])
            writer.add_event(Message(wall_time=1_770_000_000.0 + step, step=step, summary=summary))
        writer.close()
    assert place.run(folder) == 0
    told, _ = said(capsys)
    assert (told["steps"], told["attempts"]) == (20, [1])
    assert place.run(folder) == 0 and said(capsys)[0]["new_steps"] == 0


def test_of_several_trainer_states_only_the_longest_is_read(place, capsys):
    rows = [{"loss": 3.0 - n / 100, "learning_rate": 1e-4, "epoch": n / 100, "step": n} for n in range(10, 60, 10)]
    for last in (20, 40, 50):
        folder = place.folder / f"checkpoint-{last}"
        folder.mkdir()
        content = {"global_step": last, "log_history": [row for row in rows if row["step"] <= last]}
        (folder / "trainer_state.json").write_text(json.dumps(content, indent=2))
    assert place.run(place.folder / "checkpoint-*" / "trainer_state.json") == 0
    told, text = said(capsys)
    assert (told["steps"], told["attempts"]) == (5, [1]) and text.count("left out") == 2


def test_what_cannot_be_imported_is_a_sentence_and_exit_code_2(place, capsys):
    empty = place.file("empty.log", "nothing of interest\n")
    binary = place.file("binary.log", b"\x7fELF" + bytes(100))
    pipe = place.folder / "pipe"
    os.mkfifo(pipe)
    for arguments, word in (
        ([place.folder / "gone.log"], "no file"), ([place.folder / "*.gone"], "no file"), (["-"], "Standard input"),
        ([empty], "No file holds a training step"), ([binary], "binary"), ([place.folder], "without event files"),
        ([pipe], "no regular file"), (["/dev/zero"], "no regular file"),
    ):  # fmt: skip
        assert place.run(*arguments) == 2
        out, err = capsys.readouterr()
        assert word in err and not out
    log = place.file("train.log", megatron(1, 5))
    assert place.run(log, more=["--format", "klingon"]) == 2 and "klingon" in capsys.readouterr().err
    assert place.run(log, more=["--timezone", "Mars"]) == 2 and "Mars" in capsys.readouterr().err
    assert main(["import", str(log), "--run", "other", "--config", str(place.config)]) == 2
    assert "--run-dir" in capsys.readouterr().err


def test_a_file_without_steps_beside_a_good_one_is_named(place, capsys):
    assert place.run(place.file("train.log", megatron(1, 5)), place.file("other.log", "words\n")) == 0
    assert "no training step in" in capsys.readouterr().err


def test_while_a_watch_holds_the_run_directory_nothing_is_imported(place, capsys):
    place.run_dir.mkdir()
    log = place.file("train.log", megatron(1, 5))
    with hold_watch_lock(place.run_dir):
        assert place.run(log) == 2
    assert "stop that one first" in capsys.readouterr().err


def test_a_log_of_the_hook_keeps_its_attempts_and_tells_of_changed_settings(place, capsys):
    from trainvitals.hook import Recorder

    clock = ManualClock()
    folder = place.folder / "hook"
    for lr, first in ((3e-4, 0), (1e-4, 5)):
        recorder = Recorder(folder, run="r", clock=clock, writer="direct")
        recorder.describe({"lr": lr})
        for step in range(first, first + 10):
            recorder.log(step, loss=2.0)
            clock.advance(1)
        recorder.close()
    assert place.run(recorder.path) == 0
    assert said(capsys)[0]["attempts"] == [1, 2]
    assert any("lr 3e-4 → 1e-4" in event[4] for event in place.events("finding"))
    (place.run_dir / "metrics.rank00000.jsonl").touch()
    assert place.run(place.file("train.log", megatron(1, 5))) == 0
    assert "attempts of its own" in capsys.readouterr().err
    assert json.loads((place.run_dir / "metadata" / "attempt-00002.json").read_text())["sections"]["config"]["lr"] == 1e-4


def test_without_detection_only_what_the_log_says_is_stored(place):
    log = place.file("train.log", megatron(1, 300) + megatron(301, 30, loss=9.0, at=600))
    assert place.run(log, more=["--no-detect"]) == 0
    assert place.events("finding", "incident") == [] and len(place.rows()) == 330


def test_a_run_needs_no_settings_when_its_directory_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINVITALS_STORE", f"sqlite://{tmp_path}/s.db")
    (tmp_path / "train.log").write_text(megatron(1, 5))
    assert main(["import", "train.log", "--run", "new", "--run-dir", "runs/new"]) == 0
    assert said(capsys)[0]["steps"] == 5 and (tmp_path / "runs" / "new" / "attempts.jsonl").exists()


def test_the_bar_tells_how_far_how_fast_and_how_long(monkeypatch):
    clock = ManualClock()
    progress = Progress(clock)
    progress.begin({"a": 1_000_000, "b": 3_000_000})
    clock.advance(10)
    progress.read("a", 600_000)
    progress.read("a", 1_000_000)
    counts = importer.Counts(steps=5_000)
    progress.counted(counts)
    assert progress.text(clock.monotonic_s()) == (
        "[######..................] 25% · 1.0 MB of 4.0 MB · 5,000 steps · 500 steps/s · 0:30 left"
    )
    progress.read("a", 200_000)
    assert "1.2 MB of 4.0 MB" in progress.text(clock.monotonic_s())


def test_sizes_are_told_in_the_unit_that_fits():
    assert [import_files.text_size(n) for n in (5, 5_000, 5_600_000, 7.1e9)] == ["5 B", "5.0 kB", "5.6 MB", "7.1 GB"]


def test_a_server_behind_a_spool_gets_every_row_once(tmp_path, capsys):
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path / "influxd").start()
    try:
        hardware, long = server.make_databases()
        store = (
            f'store = "influxdb+{server.url}"\n[influxdb]\ndatabase = "{hardware}"\ndatabase_long = "{long}"\n'
            f'[spool]\ndir = "{tmp_path}/spool"\n'
        )
        place = Place(tmp_path / "a", store)
        recent = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=3)
        text = megatron(1, 400).replace(f"{BEGIN:%Y-%m-%d}", f"{recent:%Y-%m-%d}")
        log = place.file("train.log", text)
        assert place.run(log) == 0
        assert said(capsys)[0]["new_steps"] == 400
        rows = place.rows()
        assert [row[1] for row in rows] == list(range(1, 401))
        assert place.run(log, more=["--again"]) == 0
        assert said(capsys)[0]["new_steps"] == 0 and place.rows() == rows
        reader = place.open()
        assert reader.raw("train_1m", ["n"], {"run": "r"}, *FOR_EVER)["n"].sum() == 400
        reader.close()
    finally:
        server.stop()


def test_rows_that_a_server_refuses_are_told_and_exit_code_1(place, monkeypatch, capsys):
    answers = iter([SpoolStats(dead_letters=2), SpoolStats(dead_letters=2), SpoolStats(dead_letters=2)])
    monkeypatch.setattr(import_, "spool_stats", lambda _sink: next(answers, SpoolStats(dead_letters=4, dropped=1)))
    assert place.run(place.file("train.log", megatron(1, 5))) == 1
    told, text = said(capsys)
    assert told["refused"] == 3 and "refused 3 rows" in text


def test_a_server_that_takes_nothing_ends_the_import_with_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(import_, "PATIENCE_S", 0.3)
    place = Place(tmp_path / "a", f'store = "influxdb+http://127.0.0.1:9"\n[spool]\ndir = "{tmp_path}/spool"\n')
    assert place.run(place.file("train.log", megatron(1, 5))) == 2
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert isinstance(import_._Ahead(SystemClock()).time_ns(), int)


def test_no_more_events_are_new_than_were_read(place, capsys):
    log = place.file("train.log", megatron(1, 300) + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert place.run(log) == 0
    told, _ = said(capsys)
    assert told["findings"] > 0 and 0 < told["new_events"] <= told["events"]
