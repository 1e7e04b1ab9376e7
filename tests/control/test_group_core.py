"""What all ranks say to each other, without any library: words, votes, the pace, and both sides over a channel of threads."""

import queue
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.control import group
from trainvitals.control.group import ANSWERS, MAX_INTERVAL, Alone, Leader, Op, Pace, PeersLost, Word, follow
from trainvitals.supervisor import exits

STEPS = st.integers(0, 2**40)
LIMIT_S = 20.0


class Hub:
    """Threads in the place of processes."""

    def __init__(self, ranks):
        self.words = [queue.Queue() for _ in range(ranks)]
        self.barrier = threading.Barrier(ranks, timeout=LIMIT_S)
        self.votes = [()] * ranks
        self.texts = [""] * ranks
        self.patience = []


class ThreadChannel:
    def __init__(self, hub, rank):
        self.hub, self.rank = hub, rank

    def say(self, word, *, is_patient):
        self.hub.patience.append(is_patient)
        for words in self.hub.words[1:]:
            words.put((word.to_numbers(), is_patient))

    def hear(self, *, is_patient):
        numbers, was_patient = self.hub.words[self.rank].get(timeout=LIMIT_S)
        assert was_patient == is_patient  # both sides use the same group
        return Word.from_numbers(numbers)

    def weigh(self, step, problem):
        self.hub.votes[self.rank], self.hub.texts[self.rank] = group.vote(self.rank, step, problem), problem
        self.hub.barrier.wait()
        failed, apart = group.counted([min(column) for column in zip(*self.hub.votes, strict=True)])
        told = apart if failed is None else f"rank {failed}: {self.hub.texts[failed]}"
        self.hub.barrier.wait()
        return told

    def share(self, text):
        raise NotImplementedError


@given(st.sampled_from(Op), STEPS, st.sampled_from(range(len(ANSWERS))), st.integers(1, MAX_INTERVAL))
def test_a_word_comes_back_as_it_was_said(op, step, value, interval):
    word = Word(op, step, value, interval)
    assert Word.from_numbers(word.to_numbers()) == word and len(word.to_numbers()) == group.WORD_NUMBERS


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_what_is_no_word_is_told_as_ranks_that_lost_each_other(numbers):
    if len(numbers) == group.WORD_NUMBERS and numbers[0] == group.PROTOCOL:
        return
    with pytest.raises(PeersLost, match="no word of this protocol"):
        Word.from_numbers(numbers)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "full"])), min_size=1, max_size=8))
def test_the_minimum_of_the_votes_names_the_lowest_rank_that_failed_and_ranks_at_different_steps(results):
    votes = [group.vote(rank, step, problem) for rank, (step, problem) in enumerate(results)]
    failed, apart = group.counted([min(column) for column in zip(*votes, strict=True)])
    bad = [rank for rank, (_, problem) in enumerate(results) if problem]
    steps = {step for step, _ in results}
    assert failed == (bad[0] if bad else None)
    assert apart == ("" if len(steps) == 1 else f"the ranks are at different steps, from {min(steps)} to {max(steps)}")


@given(st.text())
def test_a_text_fits_its_bytes_and_comes_back_or_is_cut(text):
    data = group.to_bytes(text)
    assert len(data) == group.MAX_TEXT_BYTES
    back = group.from_bytes(data)
    assert text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?").startswith(back)


@given(st.integers(1, MAX_INTERVAL), st.floats(0, 1e6), st.floats(1e-3, 1e3))
def test_the_interval_is_bounded_grows_in_parts_and_shrinks_at_once(interval, elapsed_s, wanted_s):
    found = group.next_interval(interval, elapsed_s, wanted_s)
    assert 1 <= found <= min(MAX_INTERVAL, group.MAX_GROWTH * interval)
    if elapsed_s / interval > wanted_s:
        assert found == 1


@given(st.floats(1e-4, 100.0))
def test_the_pace_settles_where_a_second_of_training_lies_between_two_meetings(step_s):
    interval = 1
    for _ in range(20):
        interval = group.next_interval(interval, interval * step_s, 1.0)
    assert interval * step_s >= 0.999 or interval == MAX_INTERVAL
    assert (interval - 1) * step_s <= 1.001


@given(st.lists(st.integers(1, 5), max_size=20))
def test_all_ranks_meet_at_the_same_calls_whatever_rank_0_says_of_the_pace(intervals):
    meetings = []
    for _ in range(2):
        pace, told, met = Pace(), iter(intervals), []
        for call in range(60):
            if pace.is_due:
                met.append(call)
                pace.met(next(told, 1))
            else:
                pace.passed()
        meetings.append(met)
    assert meetings[0] == meetings[1]
    assert (
        meetings[0][0] == 0
        and [b - a for a, b in zip(meetings[0], meetings[0][1:], strict=False)][: len(intervals)]
        == (intervals + [1] * 60)[: min(len(meetings[0]) - 1, len(intervals))]
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["drain", "save", "held"]), max_size=8),
    st.sampled_from(ANSWERS),
    st.sampled_from([None, 0, 1, 2]),
    STEPS,
)
def test_every_rank_does_what_rank_0_does_in_the_same_order_and_learns_the_same_results(orders, answer, failing, step):
    hub, done = Hub(3), [[], [], []]

    def hands_of(rank):
        def on_checkpoint(at):
            done[rank].append(("save", at))
            if rank == failing:
                raise OSError(28, "No space left on device")

        return Alone(on_checkpoint, lambda: done[rank].append("drain"), lambda: done[rank].append("held"))

    heard = [None] * 3

    def body(rank):
        heard[rank] = follow(ThreadChannel(hub, rank), hands_of(rank), step)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    leader = Leader(ThreadChannel(hub, 0), hands_of(0), 1.0)
    leader.begin(step)
    results = [leader.held() if order == "held" else getattr(leader, order)(step) for order in orders]
    leader.end(answer, 3)
    for thread in threads:
        thread.join(LIMIT_S)
    assert done[0] == done[1] == done[2]
    assert heard[1] == heard[2] == Word(Op.GO, step, ANSWERS.index(answer), 3)
    saved = "" if failing is None else f"rank {failing}: the checkpoint failed: OSError: [Errno 28] No space left on device"
    assert results == [{"drain": "", "save": saved, "held": None}[order] for order in orders]
    assert hub.patience == [True] + [False] * len(orders)  # only for the first word others may come late


def test_a_rank_at_another_step_makes_the_drain_fail_on_all():
    hub = Hub(2)
    heard = []
    other = threading.Thread(target=lambda: heard.append(follow(ThreadChannel(hub, 1), Alone(), 8)), daemon=True)
    other.start()
    leader = Leader(ThreadChannel(hub, 0), Alone(), 1.0)
    leader.begin(7)
    assert leader.drain(7) == "the ranks are at different steps, from 7 to 8"
    leader.flag(True)
    other.join(LIMIT_S)
    assert heard == [Word(Op.FLAG, 7, 1)]


@pytest.mark.parametrize("words", [0, 2])
def test_a_loss_at_the_first_word_is_early_and_later_it_is_not(words):
    class Broken(ThreadChannel):
        def say(self, word, *, is_patient):
            if len(self.hub.patience) == words:
                raise PeersLost("gone")
            super().say(word, is_patient=is_patient)

    leader = Leader(Broken(Hub(1), 0), Alone(), 1.0)
    leader.begin(1)
    with pytest.raises(PeersLost) as raised:
        for _ in range(3):
            leader.held()
    assert raised.value.is_early == (words == 0)


def test_the_code_of_a_parked_trainer_is_the_one_that_the_supervisor_knows():
    assert group.PARK_CODE == exits.PARK_CODE == 75
    assert exits.classify(exits.Evidence(code=group.PARK_CODE, end_reason="stopped")).kind == "parked"


@pytest.mark.parametrize("code", [0, 1, None])
def test_what_the_hook_says_counts_where_a_launcher_made_another_code_of_it(code):
    assert exits.classify(exits.Evidence(code=code, end_reason=group.PARKED_END)).kind == "parked"
    assert group.exit_code_of("park", {}) == 75 and group.exit_code_of("park", {group.TORCHRUN: "none"}) == 0
    assert group.exit_code_of("stop", {}) == group.exit_code_of("continue", {}) == 0
