"""What somebody's own classes, a repository, or another user may do to the hook: nothing that the trainer feels."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections import ChainMap
from collections.abc import Mapping

import pytest

from trainvitals.hook import Recorder, appender, encode, git, metadata
from trainvitals.hook.metadata import rank_values


class Endless(Mapping):
    """A mapping without an end."""

    def __iter__(self):
        return (f"k{number}" for number in itertools.count())

    def __len__(self):
        return 1

    def __getitem__(self, name):
        return 1.0


class EndlessDict(dict):
    """The same, derived from ``dict``: ``json`` asks for its items."""

    def items(self):
        return ((f"k{number}", 1) for number in itertools.count())

    def __iter__(self):
        return (f"k{number}" for number in itertools.count())

    def __getitem__(self, name):
        return 1

    def __len__(self):
        return 1


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path, run="r", writer="direct") as made:
        yield made


def lines(recorder):
    return [json.loads(line) for line in pathlib.Path(recorder.path).read_text().splitlines()]


@pytest.mark.parametrize("endless", [Endless(), EndlessDict(), {"deep": [Endless()]}, {"deep": {"er": EndlessDict()}}])
def test_an_event_with_a_mapping_without_end_is_bounded(recorder, endless):
    recorder.event("message", 1, "x", content=endless)
    (event,) = [line for line in lines(recorder) if line["type"] == "event"]
    assert len(json.dumps(event)) < 2 * encode.MAX_DATA_BYTES and recorder.lost == 0


def test_numbers_of_a_mapping_without_end_are_a_lost_record_and_of_another_class_are_taken(recorder):
    recorder.log(1, Endless())
    assert recorder.lost == 1
    recorder.log(2, ChainMap({"loss": 2.0}, {"lr": 0.1}))
    assert [line["values"] for line in lines(recorder) if line["type"] == "step"] == [{"lr": 0.1, "loss": 2.0}]


def test_a_large_event_of_plain_values_says_that_it_was_cut(recorder):
    recorder.event("message", 1, "x", numbers=list(range(1_000_000)))
    recorder.event("message", 2, "x", words="y" * 100_000)
    first, second = [line["data"] for line in lines(recorder) if line["type"] == "event"]
    assert first == {"truncated_items": "more than 20,000", "keys": ["numbers"]}
    assert second["truncated_bytes"] > 100_000


def test_a_plain_event_is_written_whole(recorder):
    data = {"a": [1, {"b": (2, None)}], "c": "text", "d": 1.5, "e": True}
    recorder.event("message", 1, "x", **data)
    assert lines(recorder)[-1]["data"] == {"a": [1, {"b": [2, None]}], "c": "text", "d": 1.5, "e": True}


def test_ranks_without_end_are_bounded(monkeypatch):
    monkeypatch.setattr(metadata, "MAX_RANKS", 100)
    assert len(rank_values({"rank": number, "host": "n"} for number in itertools.count())) == 100
    assert len(rank_values(Endless())) == 100


class LyingText(str):
    """A path whose methods raise."""

    __slots__ = ()

    def __len__(self):
        raise RuntimeError("no")

    __bool__ = __fspath__ = __str__ = __len__


def test_a_path_of_a_class_that_raises_ends_no_thread_with_a_traceback(recorder, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", [LyingText("train.py"), 7, pathlib.Path("x")])
    recorder.describe({"lr": 1}, script=LyingText(__file__))
    recorder.describe({"lr": 1})
    recorder.log(1, loss=1.0)
    recorder.close()
    assert "Traceback" not in capfd.readouterr().err
    sections = {line["data"]["section"] for line in lines(recorder) if line["type"] == "event" and line["kind"] == "metadata"}
    assert {"config", "software", "script", "git"} <= sections


# -- links --------------------------------------------------------------------------------------------------------


def test_a_link_of_another_user_is_not_written_through(tmp_path, monkeypatch):
    (tmp_path / "profile").write_text("mine\n")
    (tmp_path / "metrics.rank00000.jsonl").symlink_to(tmp_path / "profile")
    monkeypatch.setattr(appender.os, "geteuid", lambda: os.getuid() + 1)
    recorder = Recorder(tmp_path, run="r", writer="direct")
    recorder.log(1, loss=1.0)
    assert recorder.lost == 1 and (tmp_path / "profile").read_text() == "mine\n"
    assert "link of another user" in recorder._appender.last_error
    recorder.close()


def test_a_link_of_ones_own_and_a_run_directory_behind_a_link_are_written_to(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "scratch")
    (tmp_path / "scratch" / "metrics.rank00000.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    for _ in range(2):
        with Recorder(tmp_path / "run", run="r", writer="direct") as recorder:
            recorder.log(1, loss=1.0)
            assert recorder.lost == 0
    assert (tmp_path / "elsewhere.jsonl").read_text().count('"type":"step"') == 2


# -- git ----------------------------------------------------------------------------------------------------------


def fake_git(tmp_path, monkeypatch, script):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "git"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_a_git_that_talks_without_end_is_ended_and_its_words_are_not_kept(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "exec yes")
    began_s = time.monotonic()
    assert "more than 1 MiB" in git.describe_git(str(tmp_path), 30)["unavailable"]
    assert time.monotonic() - began_s < 15


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_git_that_hangs_when_the_trainer_ends_is_ended_with_its_children(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, f"sleep 300 & echo $! > {tmp_path}/child.new; mv {tmp_path}/child.new {tmp_path}/child; wait")
    monkeypatch.setattr(metadata, "CLOSE_WAIT_S", 0.05)
    recorder = Recorder(tmp_path / "run", run="r", writer="direct")
    recorder.describe({"lr": 1})
    until_s = time.monotonic() + 60
    while not (tmp_path / "child").exists() and time.monotonic() < until_s:
        os.sched_yield()
    child = int((tmp_path / "child").read_text())
    recorder.close()
    while is_running(child) and time.monotonic() < until_s:
        os.sched_yield()
    assert not is_running(child) and recorder.errors == 1


def test_a_git_of_an_earlier_description_is_ended_as_well(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/$$.new; mv {tmp_path}/$$.new {tmp_path}/$$.pid; exec sleep 300")
    monkeypatch.setattr(metadata, "CLOSE_WAIT_S", 0.05)
    recorder = Recorder(tmp_path / "run", run="r", writer="direct")
    until_s = time.monotonic() + 60
    for count in (1, 2):
        recorder.describe({"lr": 1}, script=__file__)
        while len(list(tmp_path.glob("*.pid"))) < count and time.monotonic() < until_s:
            os.sched_yield()
    pids = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    recorder.close()
    while any(map(is_running, pids)) and time.monotonic() < until_s:
        os.sched_yield()
    assert [pid for pid in pids if is_running(pid)] == [] and len(pids) == 2


def test_after_the_end_no_git_is_left_running(tmp_path):
    running = git.Running()
    running.stop()
    assert git.describe_git(str(tmp_path), 10, running) == {"unavailable": "the trainer ended"}


def test_a_commit_that_is_known_is_told_when_the_comparison_fails(tmp_path):
    def run(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    run("init", "-b", "main")
    (tmp_path / "train.py").write_text("print(1)\n")
    run("add", ".")
    run("commit", "-m", "x")
    for path in (tmp_path / ".git" / "objects").glob("??/*"):
        if (
            subprocess.run(["git", "cat-file", "-t", path.parent.name + path.name], cwd=tmp_path, capture_output=True).stdout
            != b"commit\n"
        ):
            path.unlink()
    found = git.describe_git(str(tmp_path), 20)
    assert len(found["commit"]) == 40 and "object may be missing" in found["diffstat_unavailable"] and "dirty" not in found


@pytest.mark.parametrize("writer", ["direct", "queued"])
def test_a_loss_that_no_number_holds_costs_itself_and_not_its_step(tmp_path, writer):
    with Recorder(tmp_path, run="r", writer=writer) as made:
        made.log(1, loss=10**400, lr=0.5)
        made.log(2, loss=-(10**400), lr=0.25)
    steps = [line for line in lines(made) if line["type"] == "step"]
    assert [line["values"] for line in steps] == [{"lr": 0.5}, {"lr": 0.25}]
    assert (made.lost, made.errors) == (0, 2)
