"""A page's thread waits until the loop that serves it has handled what it was given."""

from __future__ import annotations

import asyncio
import threading

import pytest

from trainvitals.web import server_loop


@pytest.fixture(autouse=True)
def no_loop(monkeypatch):
    monkeypatch.setattr(server_loop, "_loop", None)


def test_without_a_known_loop_nobody_waits():
    assert not server_loop.wait_until_taken_over()


def test_what_was_given_to_the_loop_before_is_handled_when_the_wait_ends():
    done = []

    async def serve():
        server_loop.keep()
        loop = asyncio.get_running_loop()

        def draw():
            for number in range(1_000):
                loop.call_soon_threadsafe(done.append, number)
            return server_loop.wait_until_taken_over(60), len(done)

        return await asyncio.to_thread(draw)

    assert asyncio.run(serve()) == (True, 1_000)
    assert not server_loop.wait_until_taken_over(), "that loop is closed"


def test_a_loop_that_hangs_is_waited_for_no_longer_than_asked():
    answers, goes_on = [], threading.Event()

    async def serve():
        server_loop.keep()
        asyncio.get_running_loop().call_soon(goes_on.wait, 60)
        thread = threading.Thread(target=lambda: (answers.append(server_loop.wait_until_taken_over(0.05)), goes_on.set()))
        thread.start()
        await asyncio.sleep(0)
        await asyncio.to_thread(thread.join)

    asyncio.run(serve())
    assert answers == [False]
