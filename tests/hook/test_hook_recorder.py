import decimal
import json
import math
import os
import shutil
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals import __version__
from trainvitals.clock import ManualClock
from trainvitals.hook import Recorder
from trainvitals.hook.process import pid_namespace

TIMEOUT_S = 20.0
MODES = ["direct", "queued"]


def records(path):
    """The file as a strict reader takes it: whole JSON lines only, no NaN."""

    def refuse(word):
        raise ValueError(word)

    with open(path, encoding="ascii") as file:
        return [json.loads(line, parse_constant=refuse) for line in file if line.strip()]


def steps(path):
    return [record for record in records(path) if record["type"] == "step"]


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def make(tmp_path):
    made = []

    def recorder(**options):
        made.append(Recorder(options.pop("run_dir", tmp_path), **{"run": "r1"} | options))
        return made[-1]

    yield recorder
    for one in made:
        one.close()


def test_the_file_opens_with_a_header_and_holds_one_line_a_step(make, mode, tmp_path):
    clock = ManualClock()
    recorder = make(writer=mode, clock=clock, rank=3, world_size=8)
    recorder.log(12, loss=2.1, lr=3e-4, tokens=5)
    recorder.close()
    header, step = records(tmp_path / "metrics.rank00003.jsonl")
    assert header == {
        "type": "header", "schema": 1, "run": "r1", "pid": os.getpid(), "host": os.uname().nodename,
        "started_ns": clock.time_ns(), "rank": 3, "world_size": 8, "hook_version": __version__, "pid_namespace": pid_namespace(),
    }  # fmt: skip
    assert step == {
        "type": "step", "step": 12, "time_ns": clock.time_ns(), "values": {"loss": 2.1, "lr": 3e-4, "tokens": 5},
    }  # fmt: skip


def test_nonfinite_values_are_named_and_never_stand_among_the_values(make, mode):
    recorder = make(writer=mode)
    recorder.log(1, loss=math.nan, grad_norm=math.inf, lr=-math.inf, mfu=0.4)
    recorder.close()
    (step,) = steps(recorder.path)
    assert step["values"] == {"mfu": 0.4}
    assert step["nonfinite"] == {"loss": "nan", "grad_norm": "inf", "lr": "-inf"}


def test_none_and_booleans_are_skipped_and_counted_but_are_no_errors(make, mode):
    recorder = make(writer=mode)
    recorder.log(1, loss=1.0, validation_loss=None, improved=True)
    recorder.close()
    (step,) = steps(recorder.path)
    assert "nonfinite" not in step and step["values"] == {"loss": 1.0}
    assert (recorder.skipped, recorder.errors, recorder.lost) == (2, 0, 0)


def test_events_have_kind_step_text_and_data(make, mode):
    recorder = make(writer=mode, clock=ManualClock())
    recorder.resumed(100, checkpoint="/ckpt/iter_100")
    recorder.log(101, loss=1.0)
    recorder.data(101, source="web", shards=["a", "b"], sample_first=0, sample_last=511, epoch=2)
    recorder.phase("checkpoint")
    recorder.phase("checkpoint", "end")
    recorder.event("message", step=101, text="skipped", kind_of="overflow")
    recorder.finish("wall time")
    recorder.finish("again")
    recorder.close()
    events = [
        {k: v for k, v in r.items() if k not in ("type", "time_ns")} for r in records(recorder.path) if r["type"] == "event"
    ]
    assert events == [
        {"kind": "resume", "step": 100, "text": "", "data": {"checkpoint": "/ckpt/iter_100"}},
        {"kind": "data", "step": 101, "text": "",
         "data": {"source": "web", "shards": ["a", "b"], "sample_first": 0, "sample_last": 511, "epoch": 2}},
        {"kind": "phase", "step": 101, "text": "", "data": {"phase": "checkpoint", "state": "begin"}},
        {"kind": "phase", "step": 101, "text": "", "data": {"phase": "checkpoint", "state": "end"}},
        {"kind": "message", "step": 101, "text": "skipped", "data": {"kind_of": "overflow"}},
        {"kind": "attempt_end", "step": 101, "text": "", "data": {"reason": "wall time", "last_step": 101, "skipped": 0}},
    ]  # fmt: skip


def test_an_exception_in_the_loop_is_written_and_goes_on(tmp_path, mode):
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path, writer=mode) as recorder:
        recorder.log(1, loss=1 / 0)
    assert records(recorder.path)[-1]["data"]["reason"] == "exception: ZeroDivisionError"
    with Recorder(tmp_path, writer=mode):
        pass
    assert records(recorder.path)[-1]["data"]["reason"] == "finished"


def test_all_names_may_be_given_by_name(make):
    recorder = make(writer="direct")
    recorder.event(kind="message", step=1, text="a")
    recorder.event("message", kind="inner")
    recorder.resumed(step=2)
    recorder.data(step=3, source="web")
    recorder.phase(name="eval", state="end")
    recorder.close()
    assert [(r["kind"], r["step"], r["data"]) for r in records(recorder.path)[1:]] == [
        ("message", 1, {}),
        ("message", None, {"kind": "inner"}),
        ("resume", 2, {}),
        ("data", 3, {"source": "web"}),
        ("phase", None, {"phase": "eval", "state": "end"}),
    ]


class Tensor:
    """Looks like a number on a device that may be broken."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    item = __float__


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Loud(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no text")


def test_numbers_of_other_kinds_are_taken(make, mode):
    recorder = make(writer=mode)
    recorder.log(
        1, tensor=Tensor(0.5), lazy=lambda: 0.25, decimal=decimal.Decimal("1.5"), huge=2**60, lazy_tensor=lambda: Tensor(2.0)
    )
    recorder.log("7", {"from/mapping": 1.0}, loss=2.0)
    recorder.log(step=8, loss=3.0)
    recorder.close()
    taken = steps(recorder.path)
    assert taken[0]["values"] == {"tensor": 0.5, "lazy": 0.25, "decimal": 1.5, "huge": float(2**60), "lazy_tensor": 2.0}
    assert (taken[1]["step"], taken[1]["values"]) == (7, {"from/mapping": 1.0, "loss": 2.0})
    assert (taken[2]["step"], taken[2]["values"]) == (8, {"loss": 3.0})
    assert recorder.errors == 0


def test_a_tensor_changed_in_place_afterwards_keeps_the_value_it_had(make):
    recorder = make(writer="queued")
    tensor = Tensor(1.0)
    recorder.log(1, loss=tensor)
    tensor.value = 2.0
    recorder.close()
    assert steps(recorder.path)[0]["values"] == {"loss": 1.0}


def test_what_is_no_number_is_counted_and_the_rest_of_the_record_gets_through(make, mode, capfd):
    recorder = make(writer=mode)
    recorder.log(
        1, loss=2.0, text="2.0", broken=Tensor(RuntimeError("CUDA error")), lazy=lambda: 1 / 0, huge=10**400, odd=object()
    )
    recorder.log(2, loss=2.0)
    recorder.close()
    first, second = steps(recorder.path)
    assert first["values"] == {"loss": 2.0}
    assert recorder.errors == 5 and recorder.lost == 0
    assert 5 in (first.get("errors"), second.get("errors"))
    assert "errors" not in second or "errors" not in first  # told once, because it changed once
    assert capfd.readouterr().err.count("trainvitals hook:") == 1


NASTY = [
    None,
    object(),
    "x",
    math.nan,
    math.inf,
    10**400,
    -(2**70),
    [],
    {},
    b"\xff",
    Hostile(),
    Tensor(ValueError()),
    Loud("k"),
    (),
]


@pytest.mark.parametrize("nasty", NASTY, ids=[str(n) for n in range(len(NASTY))])
def test_nothing_raises_whatever_it_is_given(make, mode, nasty, capfd):
    recorder = make(writer=mode)
    recorder.log(nasty, loss=1.0)
    recorder.log(1, loss=nasty)
    recorder.log(1, nasty)
    recorder.log(1, {nasty if nasty.__hash__ else "x": nasty})
    recorder.event(nasty)
    recorder.event("message", step=nasty, text=nasty, data=nasty, deep=[[nasty]])
    recorder.data(nasty, source=nasty, shards=nasty)
    recorder.resumed(nasty, why=nasty)
    recorder.phase(nasty, nasty)
    recorder.finish(nasty)
    recorder.close()
    recorder.close()
    recorder.log(2, loss=1.0)
    recorder.event("late")
    assert records(recorder.path)[0]["type"] == "header"
    assert recorder.lost >= 2


@pytest.mark.parametrize("nasty", NASTY, ids=[str(n) for n in range(len(NASTY))])
def test_a_recorder_with_wrong_arguments_does_not_raise(nasty, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Recorder(nasty).close()
    recorder = Recorder(tmp_path / "run", run=nasty, rank=nasty, world_size=nasty, writer=nasty)
    recorder.log(1, loss=1.0)
    recorder.close()
    assert steps(recorder.path)[0]["values"] == {"loss": 1.0}


def test_cycles_and_depth_and_size_in_data_stay_bounded(make, mode):
    recorder = make(writer=mode)
    cycle = {}
    cycle["self"] = cycle
    recorder.event("message", cycle=cycle)
    recorder.event("message", blob="x" * 10_000_000)
    recorder.event("message", text="y" * 10_000_000, bad=math.nan, keys={1: 2, None: 3, "a\nb": Hostile()})
    recorder.close()
    assert os.path.getsize(recorder.path) < 100_000
    assert records(recorder.path)[-1]["data"]["bad"] == "nan"
    assert records(recorder.path)[-1]["data"]["keys"]["a\nb"] == "<Hostile>"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metrics=st.dictionaries(st.text(st.characters()), st.floats() | st.integers() | st.none() | st.booleans(), max_size=6),
    data=st.dictionaries(st.text(min_size=1), json_like, max_size=4),
)
def test_any_metrics_become_one_strict_json_line_with_the_same_numbers(tmp_path_factory, metrics, data):
    recorder = Recorder(tmp_path_factory.mktemp("run"), writer="direct")
    recorder.log(5, metrics)
    recorder.event("message", None, "", **{key: value for key, value in data.items() if key not in ("step", "text")})
    recorder.close()
    _, step, event = records(recorder.path)
    numbers = {k: v for k, v in metrics.items() if v is not None and not isinstance(v, bool)}
    finite = {k: v for k, v in numbers.items() if abs(v) <= 2**53 or (isinstance(v, float) and math.isfinite(v))}
    told = {json.loads(json.dumps(name)) for name in step["values"]}
    assert {json.loads(json.dumps(name)) for name in finite} <= told
    for name, value in finite.items():
        assert step["values"][json.loads(json.dumps(name))] == value
    assert event["kind"] == "message"


def test_names_with_newlines_and_quotes_stay_one_line(make):
    recorder = make(writer="direct")
    recorder.log(1, {'a\n"b\\': 1.0, "\ud800": 2.0})
    recorder.close()
    assert steps(recorder.path)[0]["values"] == {'a\n"b\\': 1.0, "\ud800": 2.0}


def test_threads_logging_at_once_do_not_mix_their_lines(make, mode):
    recorder = make(writer=mode)
    start = threading.Barrier(8)

    def body(number):
        start.wait(TIMEOUT_S)
        for step in range(500):
            recorder.log(number * 1000 + step, loss=1.0 / (step + 1), grad_norm=float(number), note_length=1.5 * step)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    recorder.close()
    seen = sorted(record["step"] for record in steps(recorder.path))
    assert seen == sorted(number * 1000 + step for number in range(8) for step in range(500))
    assert recorder.lost == 0


def test_a_second_start_appends_a_header_of_its_own(make, mode, tmp_path):
    first = make(writer=mode, clock=ManualClock(10**18))
    first.log(1, loss=1.0)
    first.close()
    second = make(writer=mode, clock=ManualClock(2 * 10**18))
    second.log(1, loss=1.0)
    second.close()
    headers = [record["started_ns"] for record in records(first.path) if record["type"] == "header"]
    assert headers == [10**18, 2 * 10**18]


def test_the_local_directory_variable_moves_the_file(make, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINVITALS_LOCAL_DIR", str(tmp_path / "local"))
    recorder = make(run_dir=tmp_path / "shared")
    assert recorder.path == str(tmp_path / "local" / "metrics.rank00000.jsonl")
    assert os.path.exists(recorder.path) and not (tmp_path / "shared").exists()


def test_the_file_is_followed_after_a_change_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder("run", writer="direct")
    monkeypatch.chdir("/")
    shutil.rmtree(tmp_path / "run")
    recorder.log(1, loss=1.0)
    recorder.close()
    assert steps(tmp_path / "run" / "metrics.rank00000.jsonl")
