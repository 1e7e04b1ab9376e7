"""Arming the breaker from a terminal, and a resume that a supervisor carries out."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.control import ControlClient, inbox, look, supervised
from trainvitals.control.audit import newest
from trainvitals.control.requests import Watcher

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "watch"))
from test_watchdog import Bench


@pytest.fixture
def command(capsys):
    def run(action: str, run_dir: Path, *words: str):
        code = main(["control", action, str(run_dir), "--by", "ana", "--reason", "night shift", *words])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out.strip() else None, captured.err

    return run


@pytest.fixture
def watched(tmp_path):
    bench, over = Bench(tmp_path), threading.Event()
    bench.watchdog.turn()

    def body():
        while not over.wait(0.02):
            bench.clock.advance(1)
            bench.watchdog.turn()

    loop = threading.Thread(target=body, daemon=True)
    loop.start()
    yield bench.dir
    over.set()
    loop.join(20)
    bench.store.close()


def test_the_breaker_is_armed_and_the_watchdog_says_so(command, watched):
    code, said, sentence = command("breaker", watched, "--mode", "armed")
    assert (code, said["outcome"], said["mode"]) == (0, "applied", "armed")
    assert "armed" in sentence
    assert (watcher := inbox.watcher_of(watched)) is not None and watcher.breaker == "armed"
    assert {"request", "breaker_mode"} <= {record.kind for record in newest(watched, 5)}


def test_where_nobody_watches_nothing_is_armed_and_nothing_is_left(command, tmp_path):
    code, said, sentence = command("breaker", tmp_path, "--mode", "armed")
    assert (code, said["outcome"]) == (1, "refused") and "Nobody watches this run" in sentence
    assert inbox.listing(tmp_path).names == ()


def test_an_unanswered_request_says_where_it_waits(command, tmp_path):
    inbox.announce(tmp_path, Watcher("r", ("breaker",)))
    code, said, sentence = command("breaker", tmp_path, "--mode", "off", "--wait", "0.1")
    assert (code, said["outcome"]) == (1, "not_answered") and said["id"] in sentence


def test_a_mode_must_be_named(command, tmp_path):
    code, said, sentence = command("breaker", tmp_path)
    assert (code, said) == (2, None) and "--mode is missing: off, dry-run, armed" in sentence
    with pytest.raises(SystemExit) as ended:
        command("breaker", tmp_path, "--mode", "loaded")
    assert ended.value.code == 2


def test_a_viewer_arms_nothing(command, watched, tmp_path):
    config = tmp_path / "access.toml"
    config.write_text(f'[[runs]]\nname = "r"\ndir = "{watched}"\n[access.runs."r"]\noperators = ["ben"]\n')
    code, said, sentence = command("breaker", watched, "--mode", "armed", "--config", str(config))
    assert (code, said["outcome"]) == (1, "refused") and "ana may look at 'r', but not act on it" in sentence
    assert newest(watched, 1)[0].kind == "access_refused"


@pytest.mark.parametrize("is_supervised", [True, False])
def test_a_resume_after_the_end_is_the_supervisors_to_carry_out(command, tmp_path, is_supervised: bool):
    ControlClient(tmp_path, run="r", poll_s=0.01).close()
    assert command("stop", tmp_path, "--wait", "0")[0] == 1
    if is_supervised:
        supervised.make_directories(tmp_path)
        supervised.announce(tmp_path, Watcher("r", (supervised.ROLLBACK,), "n7", 1))
    code, said, sentence = command("resume", tmp_path, "--wait", "0")
    assert (code, said["outcome"]) == ((0, "supervisor_starts") if is_supervised else (1, "ended"))
    told = look(tmp_path, 0)
    if is_supervised:
        assert "The supervisor starts the trainer" in sentence and told.supervisor == "n7"
        assert "the supervisor on n7 starts the trainer again" in told.sentence
    else:
        assert "nothing starts it from here" in told.sentence and told.supervisor == ""
