"""kill -9 of the real watchdog while people write notes: each note is one event and silences once, whatever is killed."""

from __future__ import annotations

import collections
import json
import random
import threading
import zlib

from test_kill import FOR_EVER, KILLS, start_watch, wait_until

from trainvitals import settings as settings_module
from trainvitals.control import inbox
from trainvitals.errors import ControlError
from trainvitals.store.open import open_store

NOTES = 18  # the detectors keep the newest 20


def is_watched(run_dir) -> bool:
    return inbox.why_not(run_dir, "r", "annotation") == ""


def test_twenty_kills_while_people_write_notes_lose_none_and_apply_none_twice(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    inbox.make_directories(run_dir)
    config = tmp_path / "trainvitals.toml"
    config.write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[watch]\npoll_s = 0.02\nheartbeat_s = 0.3\n[[runs]]\nname = "r"\ndir = "{run_dir}"\n'
    )
    settings = settings_module.load(config, environ={})
    chance = random.Random(7)
    made = []
    with (tmp_path / "errors").open("wb") as errors:
        watch = start_watch(tmp_path, errors)
        assert wait_until(lambda: is_watched(run_dir), 60), (tmp_path / "errors").read_text()
        for kill in range(KILLS):
            if len(made) < NOTES:
                try:
                    made.append(
                        inbox.submit(run_dir, "r", kind="annotation", by="ana", source="cli", data={"step": kill, "text": "x"})
                    )
                except ControlError:
                    # The machine is so busy that no watchdog lived long enough to tell that it reads.
                    assert wait_until(lambda: is_watched(run_dir), 60)
            # Some kills meet the start, some the look, some the moment between the commit and the answer.
            if kill % 3 == 0:
                wait_until(lambda: inbox.listing(run_dir).names == (), 20)
            threading.Event().wait(chance.random() * 1.5)
            watch.kill()
            watch.wait()
            watch = start_watch(tmp_path, errors)
        assert wait_until(lambda: inbox.listing(run_dir).names == (), 60)
        told = run_dir / "control" / "requests" / "watcher.json"
        assert wait_until(lambda: json.loads(told.read_text())["pid"] == watch.pid, 60)
        watch.terminate()
        watch.wait(20)
    store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    try:
        events = collections.Counter(event.data["request"] for event in store.events("r", ["annotation"], *FOR_EVER))
        state = json.loads(zlib.decompress(store.load_state("watch/r/")["watch/r/state"]))
    finally:
        store.close()
    assert events == collections.Counter(request.id for request in made)
    assert sorted(note["step"] for note in state["engine"]["_notes"]) == sorted(request.data["step"] for request in made)
    assert all(inbox.answer_to(run_dir, request).outcome == "applied" for request in made)
    assert "Traceback" not in (tmp_path / "errors").read_text()
    assert not is_watched(run_dir)
