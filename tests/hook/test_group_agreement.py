"""All ranks or none, over a store of threads."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.hook.group_agreement import MAX_WHY, agree


class Store:
    """What torch's store does with these calls."""

    def __init__(self):
        self.lock, self.values = threading.Lock(), {}

    def add(self, key, amount):
        with self.lock:
            self.values[key] = str(int(self.values.get(key, "0")) + amount)
            return int(self.values[key])

    def check(self, keys):
        with self.lock:
            return all(key in self.values for key in keys)

    def get(self, key):
        with self.lock:
            return self.values[key].encode()

    def compare_set(self, key, expected, desired):
        with self.lock:
            if self.values.get(key, "") == expected:
                self.values[key] = desired
            return self.values[key].encode()


def told_by(store, problems, wait_s=60.0, name="once"):
    """What each rank is told; a rank whose problem is None never comes."""
    told = {}

    def rank(number, problem):
        told[number] = agree(store, name, number, len(problems), problem, wait_s)

    threads = [
        threading.Thread(target=rank, args=(number, problem)) for number, problem in enumerate(problems) if problem is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return told


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["", "", "no device", "x" * 1000, "no\nway"]), min_size=1, max_size=8))
def test_all_ranks_are_told_the_same_and_yes_only_when_all_can(problems):
    told = told_by(Store(), problems)
    assert len(told) == len(problems) and len(set(told.values())) == 1
    assert (told[0] == "") == (not any(problems)) and len(told[0]) <= MAX_WHY
    if told[0]:
        number = int(told[0].split()[1].rstrip(":"))
        assert told[0] == f"rank {number}: {problems[number]}"[:MAX_WHY]


@pytest.mark.parametrize("problem", ["no device"])
def test_one_that_cannot_keeps_nobody_waiting_for_one_that_never_comes(problem):
    begun_s = time.monotonic()
    told = told_by(Store(), ["", problem, None], wait_s=3600.0)
    assert set(told.values()) == {"rank 1: no device"} and time.monotonic() - begun_s < 60


def test_whoever_comes_after_the_others_gave_up_does_not_go_on_alone():
    store = Store()
    told = told_by(store, ["", "", None], wait_s=0.05)
    assert set(told.values()) == {told[0]} and "not all 3 ranks had come" in told[0]
    assert agree(store, "once", 2, 3, "", 60.0) == told[0]


def test_a_second_question_has_an_answer_of_its_own():
    store = Store()
    assert told_by(store, ["", "no"], name="a")[0] == "rank 1: no"
    assert told_by(store, ["", ""], name="b") == {0: "", 1: ""}
