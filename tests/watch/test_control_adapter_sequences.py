"""Whatever people ask and the trainer does, in whatever order, and wherever the watchdog is started anew."""

import contextlib
import json
import tempfile

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control import read_request, read_status, submit
from trainvitals.control.records import STATES
from trainvitals.errors import ControlError
from trainvitals.records import Event, Step
from trainvitals.watch.control_adapter import ControlAdapter

HAPPENINGS = st.lists(
    st.sampled_from(
        ["pause", "hold", "resume", "stop", "checkpoint", "step", "end", "finish", "start", "poll", "anew", "anew without a state", "fails"]
    ),
    max_size=25,
)  # fmt: skip


class Way:
    """Counts what each request made it do."""

    def __init__(self, can_take_back):
        self.name, self.can_take_back = ("kill_switch" if can_take_back else "signal"), can_take_back
        self.parked, self.fails, self.is_on = [], False, False

    def park(self, request, trainer):
        if self.fails:
            return "no"
        self.parked.append(request.seq)
        self.is_on = True
        return ""

    def release(self, request):
        self.is_on = False
        return ""

    def is_gone(self, trainer):
        return False


@settings(deadline=None, max_examples=40)
@given(HAPPENINGS, st.booleans())
@example(["end", "pause"], False)
@example(["end", "pause"], True)
@example(["step", "pause", "resume", "end", "start", "step"], False)
@example(["step", "pause", "anew without a state", "end", "start", "step", "stop"], True)
@example(["fails", "pause", "fails", "pause", "finish", "anew", "resume"], True)
def test_each_request_acts_once_at_most_and_the_status_is_always_one_that_people_can_read(happenings, can_take_back):
    with tempfile.TemporaryDirectory() as run_dir:
        clock, way = ManualClock(), Way(can_take_back)
        adapter, step, attempt = ControlAdapter(run_dir, "r", way, clock, "host"), 0, 1
        adapter.poll(clock.monotonic_s(), clock.time_ns())
        for what in [*happenings, "poll", "poll"]:
            clock.advance(1.5)
            if what in ("pause", "hold", "resume", "stop", "checkpoint"):
                with contextlib.suppress(ControlError):
                    action, how = ("pause", "hold") if what == "hold" else (what, None)
                    submit(run_dir, "r", action=action, by="ana", source="ui", reason="x", clock=clock, how=how)
            elif what == "step":
                step += 1
                adapter.take(Step(step, attempt, clock.time_ns(), {}))
            elif what == "end":
                adapter.take(Event("attempt_end", clock.time_ns(), attempt=attempt, data={"reason": "process gone"}))
            elif what == "finish":
                adapter.take(Event("phase", clock.time_ns(), attempt=attempt, data={"phase": "finished", "state": "begin"}))
            elif what == "start":
                attempt += 1
                adapter.take(
                    Event("attempt_start", clock.time_ns(), attempt=attempt, data={"pid": 9, "host": "host", "started_ns": 1})
                )
            elif what == "fails":
                way.fails = not way.fails
            elif what.startswith("anew"):
                state = json.loads(json.dumps(adapter.to_state()))
                adapter = ControlAdapter(run_dir, "r", way, clock, "host")
                adapter.restore({} if "without" in what else state)
            events = adapter.poll(clock.monotonic_s(), clock.time_ns())
            assert adapter.trouble == "" and all(event.kind == "control" for event in events)
            status = read_status(run_dir)
            assert status.state in STATES and status.hook_version.startswith("watch ")
            assert status.applied_seq <= status.ack_seq and len(set(way.parked)) == len(way.parked)
        request = read_request(run_dir)
        if request.desired == "running":
            assert status.state in ("running", "stopped") and status.how == ""
            assert not way.is_on
        if status.refused_seq < request.seq and request.desired == "paused":
            assert way.is_on or not can_take_back, "asked for, not refused, and so told to the trainer"
            assert way.parked or status.ended or status.error, "nobody to be told, or told so"
