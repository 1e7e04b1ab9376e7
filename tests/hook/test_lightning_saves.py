"""The companion of ``trainer.save_checkpoint``: it changes nothing of the call and tells begin and end."""

from __future__ import annotations

import concurrent.futures
import pickle

import pytest

from trainvitals.hook.lightning_saves import watch, when_written


class Trainer:
    def __init__(self):
        self.calls = []

    def save_checkpoint(self, filepath, weights_only=None, storage_options=None):
        self.calls.append((filepath, weights_only, storage_options))
        if filepath == "bad":
            raise OSError("no space")


class Callback:
    def __init__(self):
        self.told = []

    def save_begins(self, trainer, path, weights_only):
        self.told.append(("begins", path, weights_only, len(trainer.calls)))
        return None

    def save_ended(self, trainer, path, save, error):
        self.told.append(("ended", path, error, len(trainer.calls)))


def test_a_save_is_told_before_and_after_and_its_arguments_arrive_as_they_were_given():
    trainer, callback = Trainer(), Callback()
    assert watch(callback, trainer)
    trainer.save_checkpoint("a")
    trainer.save_checkpoint("b", True)
    trainer.save_checkpoint("c", weights_only=True, storage_options=5)
    assert trainer.calls == [("a", None, None), ("b", True, None), ("c", True, 5)]
    assert callback.told == [
        ("begins", "a", False, 0), ("ended", "a", None, 1), ("begins", "b", True, 1), ("ended", "b", None, 2),
        ("begins", "c", True, 2), ("ended", "c", None, 3),
    ]  # fmt: skip


def test_what_the_save_raises_passes_and_is_told():
    trainer, callback = Trainer(), Callback()
    watch(callback, trainer)
    with pytest.raises(OSError, match="no space"):
        trainer.save_checkpoint("bad")
    assert isinstance(callback.told[-1][2], OSError)
    with pytest.raises(TypeError):
        trainer.save_checkpoint("a", nonsense=1)


def test_watching_twice_tells_once_and_a_watched_trainer_can_be_pickled():
    trainer, callback = Trainer(), Callback()
    watch(Callback(), trainer)
    watch(callback, trainer)
    copy = pickle.loads(pickle.dumps(trainer))
    trainer.save_checkpoint("a")
    copy.save_checkpoint("b")
    assert [told[0] for told in callback.told] == ["begins", "ended"]
    assert (trainer.calls, copy.calls) == ([("a", None, None)], [("b", None, None)])


def test_what_is_no_trainer_is_left_alone():
    assert not watch(Callback(), object())


class AsyncCheckpointIO:
    def __init__(self):
        self._executor = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._error = None


class Around:
    def __init__(self, inner):
        self.checkpoint_io = inner


class Strategy:
    def __init__(self, checkpoint_io):
        self.strategy = self
        self.checkpoint_io = checkpoint_io


def test_what_an_executor_was_given_before_is_written_before_it_is_told():
    plugin = AsyncCheckpointIO()
    order = []
    plugin._executor.submit(lambda: order.append("written"))
    assert when_written(Strategy(Around(plugin)), lambda error: order.append(error))
    plugin._executor.shutdown(wait=True)
    assert order == ["written", None]
    assert not when_written(Strategy(None), order.append) and not when_written(Strategy(Around(None)), order.append)
