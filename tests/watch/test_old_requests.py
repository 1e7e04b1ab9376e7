"""What was asked when nobody watched: a note is still true, an armed breaker may not be wanted any more."""

import os
import time

import pytest

from tests.watch.test_watchdog import Bench
from trainvitals.control import inbox
from trainvitals.control.requests import ANNOTATION, BREAKER, WatchRequest, new_id


def put(bench, kind, data, age_s):
    request = WatchRequest(
        kind=kind, by="ana", source="ui", data=data, run="r", id=new_id(), issued_at_ns=bench.clock.time_ns() - round(age_s * 1e9)
    )
    inbox.put(bench.dir, request)
    at_s = time.time() - age_s
    os.utime(inbox.requests_dir(bench.dir) / request.name, (at_s, at_s))
    return request


@pytest.mark.parametrize(("age_s", "outcome", "mode"), [(10, "applied", "armed"), (3 * 86_400, "refused", "dry-run")])
def test_a_breaker_is_not_armed_by_what_somebody_wanted_days_ago(tmp_path, age_s, outcome, mode):
    bench = Bench(tmp_path)
    put(bench, BREAKER, {"mode": "armed", "reason": "night"}, age_s)
    bench.watchdog.turn()
    (answer,) = inbox.answered(bench.dir)
    assert answer.outcome == outcome and inbox.watcher_of(bench.dir) is not None
    assert bench.watchdog._mode.mode == mode
    assert outcome == "applied" or "when nobody watched" in answer.sentence
    bench.store.close()


def test_a_note_that_waited_is_kept(tmp_path):
    bench = Bench(tmp_path)
    put(bench, ANNOTATION, {"step": 5, "change": "data_mix", "text": "new mix"}, 3 * 86_400)
    bench.watchdog.turn()
    assert [answer.outcome for answer in inbox.answered(bench.dir)] == ["applied"]
    bench.store.close()
