"""What the callbacks are made of, as far as it needs no trainer's library."""

import io
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.hook import Recorder
from trainvitals.hook.guard import Failures, Guarded, never_raises
from trainvitals.hook.pace import Pace
from trainvitals.hook.rank_board import SLOTS, BoardReader, RankBoard, Sample, rank_statistics, replica_mismatches
from trainvitals.logs.parser import Parser
from trainvitals.records import Step

TIMEOUT_S = 30.0


class Told:
    def __init__(self):
        self.events = []

    def event(self, kind, /, step=None, text="", **data):
        self.events.append((kind, text, data))


class Callback(Guarded):
    def __init__(self):
        self.failures = Failures()
        self._recorder = Told()

    @never_raises
    def fails(self, error):
        raise error

    @never_raises
    def works(self, number):
        return number + 1


class Unprintable(Exception):
    def __str__(self):
        raise ValueError


def test_an_exception_of_a_callback_is_counted_and_told_and_goes_no_further(capsys):
    callback = Callback()
    assert callback.fails(ValueError("no such key")) is None
    assert callback.works(1) == 2
    assert (callback.failures.count, callback.failures.last) == (1, "fails: ValueError: no such key")
    assert callback._recorder.events[0][0] == "message"
    assert "no such key" in capsys.readouterr().err


def test_a_failure_at_every_step_is_told_ever_more_rarely(capsys):
    callback = Callback()
    for _ in range(1000):
        callback.fails(KeyError("loss"))
    assert [data["callback_failures"] for _, _, data in callback._recorder.events] == [2**n for n in range(10)]
    assert callback.failures.count == 1000


def test_neither_an_unprintable_exception_nor_a_closed_stderr_raises(monkeypatch):
    callback = Callback()
    monkeypatch.setattr("sys.stderr", None)
    callback.fails(Unprintable())
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    callback.fails(Unprintable())
    assert callback.failures.last == "fails: Unprintable"


def test_ctrl_c_passes_through():
    with pytest.raises(KeyboardInterrupt):
        Callback().fails(KeyboardInterrupt())


class Time:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_waiting_for_data_belongs_to_a_step_and_an_evaluation_does_not():
    time = Time()
    pace = Pace(time)
    for begin_s, end_s in ((10, 12), (13, 15)):  # a second of waiting for data
        time.now_s = begin_s
        pace.begin()
        time.now_s = end_s
        pace.end()
    assert pace.take() == (5.0, 2)
    pace.interrupt()
    time.now_s = 100
    pace.begin()
    time.now_s = 102
    pace.end()
    assert pace.take() == (2.0, 1)
    assert pace.take() == (0.0, 0)


class Store:
    """As torch.distributed's: text in, bytes out; asking for a key that is not there would wait for ever."""

    def __init__(self):
        self.content = {}

    def set(self, key, value):
        self.content[key] = value.encode()

    def check(self, keys):
        return all(key in self.content for key in keys)

    def multi_get(self, keys):
        return [self.content[key] for key in keys]


def sample(rank, loss=1.0, step=50, **more):
    return Sample(rank, step, loss, 0.5, 1.0, 0.1, **more)


def boards(world_size, store):
    return [RankBoard(store, rank, world_size, "trainvitals/0", 50) for rank in range(world_size)]


@given(
    st.integers(0, 10**12),
    st.floats(),
    st.floats(),
    st.floats(),
    st.floats(),
    st.integers(0, 99),
    st.lists(st.integers(0, 2**64 - 1)),
)
def test_a_sample_comes_out_of_the_store_as_it_went_in(step, loss, norm, step_s, before_s, replica, sums):
    told = Sample(3, step, loss, norm, step_s, before_s, replica, tuple(sums))
    assert repr(Sample.of(3, told.text())) == repr(told)


def test_what_no_rank_wrote_is_an_error():
    for text in ("", "50 1.0", "a b c d e f"):
        with pytest.raises(ValueError):
            Sample.of(0, text)


def test_rank_0_has_the_samples_when_the_last_rank_has_told():
    store = Store()
    ranks = boards(3, store)
    ranks[1].put(sample(1))
    ranks[0].put(sample(0))
    assert ranks[0].everyone(50) is None
    ranks[2].put(sample(2))
    assert [found.rank for found in ranks[0].everyone(50)] == [0, 1, 2]


def test_a_rank_that_skipped_the_step_is_missing_and_its_old_sample_is_not_taken_for_it():
    store = Store()
    ranks = boards(20, store)
    late = 50 + SLOTS * 50
    for board, rank in zip(ranks, range(20), strict=True):
        board.put(sample(rank))
    for rank in range(20):
        if rank not in (3, 17):
            ranks[rank].put(sample(rank, step=late))
    assert ranks[0].everyone(late) is None
    assert {found.rank for found in ranks[0].present(late)} == set(range(20)) - {3, 17}
    assert len(store.content) == 20


def test_the_store_holds_no_more_however_long_the_run_is():
    store = Store()
    board = RankBoard(store, 0, 1, "trainvitals/0", 50)
    for step in range(0, 50 * 1000, 50):
        board.put(sample(0, step=step))
    assert len(store.content) == SLOTS


def test_places_are_known_when_all_ranks_have_told_theirs():
    store = Store()
    first, second = boards(2, store)
    first.put_place("n17", 0, "GPU-1")
    assert first.places() is None
    second.put_place("n18", None, None)
    assert first.places() == [
        {"rank": 0, "host": "n17", "local_rank": 0, "gpu_uuid": "GPU-1"},
        {"rank": 1, "host": "n18", "local_rank": None, "gpu_uuid": None},
    ]


@pytest.fixture
def reader():
    """(reader of a board of three ranks, its store)."""
    store = Store()
    made = BoardReader(boards(3, store)[0])
    yield made, store
    made.close()
    assert not made._thread.is_alive()


def test_the_reader_answers_when_the_last_rank_has_told(reader):
    made, store = reader
    answer = made.ask(50)
    ranks = boards(3, store)
    for rank in range(3):
        assert not answer.is_done.is_set()
        ranks[rank].put_place("n17", rank, None)
        ranks[rank].put(sample(rank))
    assert answer.is_done.wait(TIMEOUT_S)
    assert [found.rank for found in answer.samples] == [0, 1, 2]
    again = made.ask(50)
    assert again.is_done.wait(TIMEOUT_S)
    assert (len(answer.places), again.places) == (3, None)


def test_the_reader_answers_with_what_is_there_when_the_asker_gives_up(reader):
    made, store = reader
    boards(3, store)[1].put(sample(1))
    answer = made.ask(50)
    answer.gives_up.set()
    assert answer.is_done.wait(TIMEOUT_S)
    assert ([found.rank for found in answer.samples], answer.places) == ([1], None)


def test_a_store_that_fails_is_told_and_never_asked_again(reader, monkeypatch):
    made, store = reader
    asked = []

    def fails(keys):
        asked.append(keys)
        raise ConnectionResetError("rank 0's host is gone")

    monkeypatch.setattr(store, "check", fails)
    answers = [made.ask(50), made.ask(100)]
    for answer in answers:
        assert answer.is_done.wait(TIMEOUT_S)
        assert isinstance(answer.error, ConnectionResetError) and answer.samples is None
    assert len(asked) == 1


def test_a_store_that_hangs_keeps_the_end_waiting_for_a_second_only(monkeypatch):
    store, entered, release = Store(), threading.Event(), threading.Event()

    def hangs(keys):
        entered.set()
        return release.wait(TIMEOUT_S)

    monkeypatch.setattr(store, "check", hangs)
    made = BoardReader(boards(2, store)[0])
    made.ask(50)
    assert entered.wait(TIMEOUT_S)
    begun_s = time.monotonic()
    made.close()
    assert time.monotonic() - begun_s < 10
    release.set()
    made._thread.join(TIMEOUT_S)


def test_the_worst_rank_is_the_one_far_from_the_median_or_the_one_without_a_finite_loss():
    samples = [sample(rank, loss) for rank, loss in enumerate((2.0, 2.1, 5.0, 2.05))]
    found = rank_statistics(samples, 4)
    assert (found["worst_rank"], found["loss_rank_min"], found["loss_rank_max"]) == (2, 2.0, 5.0)
    assert found["loss_rank_std"] == pytest.approx(1.277, abs=1e-3)
    found = rank_statistics([*samples, sample(4, math.nan)], 5)
    assert (found["worst_rank"], found["loss_rank_nonfinite"], found["loss_rank_max"]) == (4, 1, 5.0)
    assert "worst_rank" not in rank_statistics([sample(0, 1.0), sample(1, 2.0)], 2)
    assert "worst_rank" not in rank_statistics([sample(rank, math.nan) for rank in range(3)], 3)


def test_the_slowest_rank_is_the_last_one_at_the_first_all_reduce():
    samples = [
        Sample(rank, 50, 1.0, 0.5, step_s, before_s) for rank, step_s, before_s in ((0, 1.2, 0.1), (1, 1.1, 0.9), (2, 1.1, 0.2))
    ]
    found = rank_statistics(samples, 3)
    assert (found["slowest_rank"], found["pre_all_reduce_rank_max_s"], found["step_time_rank_max_s"]) == (1, 0.9, 1.2)
    without = [Sample(rank, 50, 1.0, 0.5, step_s, math.nan) for rank, step_s in ((0, 1.2), (1, 1.1))]
    assert rank_statistics(without, 2)["slowest_rank"] == 0


def test_what_rank_0_records_is_read_under_the_names_of_the_schema(tmp_path):
    found = rank_statistics([sample(rank, loss) for rank, loss in enumerate((2.0, 2.1, 5.0))], 3)
    with Recorder(tmp_path, run="tiny") as recorder:
        recorder.log(50, {"loss": 2.0, **found})
    parser = Parser()
    records = parser.feed((tmp_path / "metrics.rank00000.jsonl").read_bytes())
    (step,) = [record for record in records if isinstance(record, Step)]
    assert step.values == {"loss": 2.0, **found}
    assert step.values["worst_rank"] == 2


def test_missing_ranks_are_counted():
    assert rank_statistics([sample(0), sample(2)], 4)["ranks_missing"] == 2
    assert rank_statistics([sample(0)], 1) == {}


def test_replicas_that_differ_are_named_and_other_parts_of_the_model_are_not_compared_with_them():
    samples = [sample(rank, checksums=(7, 8)) for rank in range(4)]
    assert replica_mismatches(samples) == []
    samples[2] = sample(2, checksums=(7, 9))
    found = replica_mismatches(samples)
    assert [(one.replica, one.ranks, one.index) for one in found] == [(0, (2,), 1)]
    other = [sample(rank, checksums=(100, 200), replica=1) for rank in (4, 5)]
    assert replica_mismatches([*samples, *other]) == found
    assert [one.ranks for one in replica_mismatches([sample(0, checksums=(1,)), sample(1, checksums=(2,))])] == [(1,)]
