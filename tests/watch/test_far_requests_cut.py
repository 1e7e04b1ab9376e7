"""The watchdog ends at each single step of writing what was asked for elsewhere: whichever it was, it is asked once."""

from __future__ import annotations

import os

import pytest
from far_bench import FarBench

from trainvitals.control import inbox, supervised
from trainvitals.control.audit import newest
from trainvitals.control.audit_chain import history_anchors, verify
from trainvitals.control.request import history, read_request
from trainvitals.control.requests import Watcher

#: What writes a file of the control directory consists of; each call of one may be the last.
STEPS = ("link", "replace", "fsync", "write", "unlink")
MOST = 80


class Cut(BaseException):
    """The end of the process: nobody catches it."""


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("checkpoint", {"reason": "x"}),
        ("pause", {"reason": "x"}),
        ("rollback", {"to": "/ckpt/1", "reason": "x", "skip_samples": ""}),
        ("annotation", {"step": 1, "text": "x", "change": "note"}),
    ],
)
def test_a_cut_anywhere_asks_once(tmp_path, monkeypatch, kind, data):
    for last in range(MOST):
        (tmp_path / f"{last}").mkdir()
        bench = FarBench(tmp_path / f"{last}", monkeypatch)
        supervised.make_directories(bench.dir)
        supervised.announce(bench.dir, Watcher("r", ("rollback",), "node9", 1))
        bench.turn()
        made = bench.request(kind=kind, data=data)
        bench.plant(made)
        was_cut = run_until_cut(bench, last)
        bench.start()
        bench.turn(4)
        check(bench, made, kind)
        bench.store.close()
        if not was_cut:
            assert last > 3
            return
    raise AssertionError("it never came to its end")


def run_until_cut(bench, last: int) -> bool:
    """One look of the watchdog in which no step after number ``last`` is made."""
    left = last

    def counted(real):
        def step(*arguments, **more):
            nonlocal left
            if left == 0:  # and from then on: what tidies up after an error is not done either
                raise Cut
            left -= 1
            return real(*arguments, **more)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            bench.turn(4)
        except Cut:
            return True
    return False


def check(bench, made, kind) -> None:
    (event,) = bench.answers(made.id)
    assert event.data.get("outcome") != "refused", event.text
    asked = [r for r in newest(bench.dir, 99) if r.kind == "request" and made.id in (r.data.get("request"), r.data.get("id"))]
    assert len(asked) == 1 and verify(bench.dir, history_anchors(bench.dir)).is_intact
    if kind == "rollback":
        assert len(supervised.waiting(bench.dir)) == 1
    elif kind == "annotation":
        assert [answer.outcome for answer in inbox.answered(bench.dir)] == ["applied"]
    else:
        assert [one.request_id for one in history(bench.dir)] == [made.id] == [read_request(bench.dir).request_id]
        assert read_request(bench.dir).checkpoint_request == (kind == "checkpoint")
