"""The watchdog is killed at any commit, before or after the store took it, while the store comes and goes: nobody was told of anything that
no store has in the end."""

from __future__ import annotations

import random

import pytest
from test_start_without_store import Place, once

from trainvitals.errors import StoreUnavailable


class Killed(BaseException):
    """As ``kill -9``: nothing of the process runs any more."""


class Deadly:
    """A store that takes nothing while ``is_full``, and kills whoever writes to it the ``left``-th time."""

    def __init__(self, inner):
        self.inner, self.is_full, self.left, self.is_after = inner, False, 0, False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def commit(self, points, state):
        self.left -= 1
        if self.left == 0 and not self.is_after:
            raise Killed
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        self.inner.commit(points, state)
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_told_is_in_the_store_once(tmp_path, seed):
    chance = random.Random(seed)
    place = Place(tmp_path)
    place.store = store = Deadly(place.store)
    place.begin()
    place.header()
    place.train(0, 100)
    step = 100
    for _ in range(3):
        store.is_full = chance.random() < 0.8
        store.left, store.is_after = chance.randint(1, 40), chance.random() < 0.5
        for seconds, turns in ((60, 12), (1, 4)):  # a hang, and that it is over
            try:
                for _ in range(turns):
                    place.clock.advance(seconds)
                    place.watchdog.turn()
            except Killed:
                place.begin()
            if seconds > 1:
                place.train(step, 20, seed=step)
                step += 20
        if chance.random() < 0.5:
            place.begin()  # killed when all was quiet
    store.is_full, store.left = False, 0
    place.begin()
    place.train(step, 20, seed=step)
    place.clock.advance(10)
    place.turns(6)
    stored = {one.data["id"]: one.data for one in once(place.events("incident"))}
    told = {one.incident_id for one in place.outbox.messages() if one.incident_id}
    assert told and told <= set(stored)
    assert len(once(place.events("alert"))) == len(place.outbox.messages())
    assert all(one["closed_at_ns"] is not None for identifier, one in stored.items() if "/stall/" in identifier)
    assert list(place.train_rows()["step"]) == list(range(step + 20))
    place.store.close()
    place.outbox.close()
