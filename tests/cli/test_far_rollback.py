"""``control rollback`` from a host that has no directory of the run: signed, through the store, to its supervisor and back."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "watch"))

from far_bench import FarBench

from trainvitals.__main__ import main
from trainvitals.cli.far_rollback import answer
from trainvitals.control import supervised
from trainvitals.control.requests import Watcher
from trainvitals.records import Event
from trainvitals.store.encode import event_point


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = FarBench(tmp_path, monkeypatch)
    supervised.make_directories(made.dir)
    made.config = tmp_path / "dashboard.toml"
    made.config.write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[requests]\nkey_files = ["{made.key_file}"]\n[[runs]]\nname = "r"\n'
        f'dir = "{tmp_path}/not-on-this-host"\ncontrol_road = "store"\n[access.runs."r"]\noperators = ["ana"]\n'
    )
    yield made
    made.store.close()


def ask(bench, capsys, *more, by="ana", place="r", wait="0"):
    code = main(
        ["control", "rollback", place, "--config", str(bench.config), "--by", by, "--reason", "loss spike", "--wait", wait, *more]
    )
    out, err = capsys.readouterr()
    return code, (json.loads(out) if out.strip() else {}), err


def test_it_is_one_signed_row_that_the_runs_watchdog_puts_before_the_supervisor(bench, capsys, monkeypatch):
    supervised.announce(bench.dir, Watcher("r", (supervised.ROLLBACK,), "node9", 1))
    monkeypatch.setattr("trainvitals.cli.far_rollback.SystemClock", lambda: bench.clock)
    code, told, err = ask(bench, capsys, "--to", "/ckpt/100", "--skip-samples", "5:9")
    assert code == 1 and told["outcome"] == "not_answered" and "Sent, signed" in err
    bench.turn()
    (name,) = supervised.waiting(bench.dir)
    request = supervised.read(bench.dir, name)
    assert (request.id, request.by, request.data) == (
        told["request"], "ana", {"to": "/ckpt/100", "reason": "loss spike", "skip_samples": "5:9"},
    )  # fmt: skip


def test_what_the_supervisor_says_is_the_answer(bench, capsys, monkeypatch):
    supervised.announce(bench.dir, Watcher("r", (supervised.ROLLBACK,), "node9", 1))
    over = threading.Event()

    def supervise():
        while not over.is_set():
            for row in bench.rows():
                event = Event(
                    "supervisor", time.time_ns(), id=f"taken/{row.id}", source="supervisor", text="going back to /ckpt/100",
                    data={"state": "taken", "request": row.id},
                )  # fmt: skip
                bench.store.write([event_point("r", event)])
                return
            over.wait(0.05)

    thread = threading.Thread(target=supervise)
    thread.start()
    code, told, err = ask(bench, capsys, "--to", "/ckpt/100", wait="60", place=f"{bench.home}/not-on-this-host")
    over.set()
    thread.join(60)
    assert code == 0 and told["outcome"] == "applied" and "going back to /ckpt/100" in err


def test_nobody_who_may_not_act_sends_anything(bench, capsys):
    code, told, err = ask(bench, capsys, "--to", "/ckpt/100", by="eve")
    assert code == 1 and told == {} and "eve may look at" in err and bench.rows() == []


def test_without_a_checkpoint_or_for_another_action_it_is_wrong_usage(bench, capsys):
    assert ask(bench, capsys)[0] == 2
    assert ask(bench, capsys, "--to", "/c", "--skip-samples", "all")[0] == 2
    assert ask(bench, capsys, "--to", "/c", place="another")[0] == 2
    assert main(["control", "pause", "r", "--config", str(bench.config), "--by", "ana", "--reason", "x"]) == 2
    assert bench.rows() == []


def event(kind, **data):
    return Event(kind, 1, id="e", text=f"{kind} says", data=data)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([], "not_answered"),
        ([event("supervisor", state="taken", request="other")], "not_answered"),
        ([event("control", outcome="applied", request="id")], "passed_on"),
        ([event("control", outcome="applied", request="id"), event("supervisor", state="taken", request="id")], "applied"),
        ([event("control", outcome="applied", request="id"), event("supervisor", state="refused", request="id")], "refused"),
        ([event("watch", outcome="refused", request="id")], "refused"),
        ([event("supervisor", state="trouble", request="id")], "not_answered"),
    ],
)
def test_the_answer_is_told_by_the_events_of_the_request(events, outcome):
    assert answer(events, "id")[0] == outcome
