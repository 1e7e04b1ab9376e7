"""kill -9 of the real watchdog while requests come through the store: each is carried out once, whatever is killed."""

from __future__ import annotations

import collections
import random
import threading

from test_kill import FOR_EVER, KILLS, start_watch, wait_until

from trainvitals import settings as settings_module
from trainvitals.access import Identity
from trainvitals.control import inbox
from trainvitals.control.audit import newest
from trainvitals.control.audit_chain import history_anchors, verify
from trainvitals.control.request import history, read_request
from trainvitals.store.open import open_store
from trainvitals.web import remote


def test_twenty_kills_while_requests_come_through_the_store_lose_none_and_carry_out_none_twice(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (tmp_path / "key").write_bytes(b"s" * 40)
    (tmp_path / "key").chmod(0o600)
    config = tmp_path / "trainvitals.toml"
    config.write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[watch]\npoll_s = 0.02\nheartbeat_s = 0.3\n'
        f'[requests]\nkey_files = ["{tmp_path}/key"]\npoll_s = 0.05\n'
        f'[[runs]]\nname = "r"\ndir = "{run_dir}"\ncontrol_road = "store"\n'
    )
    settings = settings_module.load(config, environ={})
    chance = random.Random(11)
    saves, notes = [], []

    def stand() -> int:
        return len(list((run_dir / "control" / "history").glob("*.json"))) + len(inbox.answered(run_dir))

    def send(kind, data):
        return remote.send(settings, settings.runs[0], kind=kind, who=Identity("ana"), data=data)

    with (tmp_path / "errors").open("wb") as errors:
        watch = start_watch(tmp_path, errors)
        assert wait_until((tmp_path / "store.db").exists, 60), (tmp_path / "errors").read_text()
        for kill in range(KILLS):
            before = stand()
            saves.append(send("checkpoint", {"reason": f"number {kill}"}))
            if kill % 2:
                notes.append(send("annotation", {"step": kill, "text": "x", "change": "note"}))
            # Some kills meet the very moment in which a file was written, some whatever comes.
            if kill % 2:
                assert wait_until(lambda before=before: stand() > before, 60), (tmp_path / "errors").read_text()
            threading.Event().wait(chance.random() * (0.02 if kill % 2 else 1.0))
            watch.kill()
            watch.wait()
            watch = start_watch(tmp_path, errors)
        store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)

        def answered() -> collections.Counter[str]:
            return collections.Counter(
                str(event.data.get("request")) for event in store.events("r", ["control", "annotation"], *FOR_EVER)
            )

        assert wait_until(lambda: len(answered()) == len(saves) + len(notes), 60), (tmp_path / "errors").read_text()
        watch.terminate()
        watch.wait(20)
    assert answered() == collections.Counter(saves + notes)
    assert not [event.text for event in store.events("r", ["watch"], *FOR_EVER) if event.data.get("outcome") == "refused"]
    store.close()
    assert sorted(one.request_id for one in history(run_dir)) == sorted(saves)
    assert read_request(run_dir).checkpoint_request == len(saves)
    audited = [record.data.get("request") for record in newest(run_dir, 500) if record.kind == "request"]
    assert sorted(audited) == sorted(saves + notes) and verify(run_dir, history_anchors(run_dir)).is_intact
    assert "Traceback" not in (tmp_path / "errors").read_text()
