"""The command that tells the watchdog what was changed on purpose."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.control import inbox
from trainvitals.control.requests import Watcher

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "watch"))
from test_watchdog import Bench

WHO = ["--by", "ana"]


@pytest.fixture
def command(capsys):
    def run(*words):
        code = main(["annotate", *map(str, words)])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out.strip() else None, captured.err

    return run


@pytest.fixture
def watched(tmp_path):
    """A real watchdog that turns in a thread of its own."""
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
    assert not loop.is_alive()
    bench.store.close()


def test_a_note_is_applied_and_what_it_silences_is_said(command, watched):
    code, said, sentence = command(watched, *WHO, "--step", 600, "--change", "nodes", "rack 4 is out")
    assert (code, said["outcome"], said["step"], said["change"]) == (0, "applied", 600, "nodes")
    assert set(said["silences"]) == {"throughput_drop", "straggler", "rank_silent"}
    assert sentence.startswith("The note about nodes counts from step 600 on: for 500 points it silences throughput_drop")


def test_rules_and_points_may_be_named_in_any_way_and_order(command, watched):
    code, said, sentence = command(
        "--points", "20", watched, "--rules", "loss_drift, loss_spike", "--rules", "grad_*", *WHO, "look"
    )
    assert code == 0 and "for 20 points" in sentence
    assert set(said["silences"]) == {"loss_drift", "loss_spike", "grad_norm_spike", "grad_norm_nonfinite"}


def test_where_nobody_watches_it_is_refused_at_once_and_nothing_is_left(command, tmp_path):
    code, said, sentence = command(tmp_path, *WHO, "--change", "data_mix", "new mix")
    assert (code, said["outcome"]) == (1, "refused")
    assert "Nobody watches this run, so nothing was asked" in sentence
    assert inbox.listing(tmp_path).names == ()


def test_a_watchdog_of_another_run_refuses_it(command, watched):
    code, said, sentence = command(watched, *WHO, "--run", "other", "x")
    assert (code, said["outcome"]) == (1, "refused") and "watches the run 'r', not 'other'" in sentence


def test_without_an_answer_in_time_it_says_where_the_note_waits(command, tmp_path):
    inbox.announce(tmp_path, Watcher("r", ("annotation",)))
    code, said, sentence = command(tmp_path, *WHO, "--wait", "0.2", "x")
    assert (code, said["outcome"]) == (1, "not_answered")
    (name,) = inbox.listing(tmp_path).names
    assert name in sentence and "Not answered within 0.2 s" in sentence


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["x"], "--by is missing"),
        ([*WHO, " "], "text must say"),
        ([*WHO, "--step", "-1", "x"], "step must be a whole number"),
        ([*WHO, "--points", "0", "x"], "points must be"),
        ([*WHO, "--rules", "loss_spyke", "x"], "is loss_spike meant?"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_asks_nobody(command, tmp_path, words, why):
    code, said, sentence = command(tmp_path, *words)
    assert (code, said) == (2, None) and why in sentence
    assert not (tmp_path / "control").exists()


def test_a_directory_that_is_not_there_and_a_change_that_nobody_knows_are_wrong_usage(command, tmp_path):
    assert command(tmp_path / "gone", *WHO, "x")[0] == 2
    with pytest.raises(SystemExit) as ended:
        command(tmp_path, *WHO, "--change", "mood", "x")
    assert ended.value.code == 2


def test_the_help_says_what_the_exit_codes_mean(command, capsys):
    with pytest.raises(SystemExit):
        main(["annotate", "--help"])
    assert "Exit code 0: applied" in capsys.readouterr().out
