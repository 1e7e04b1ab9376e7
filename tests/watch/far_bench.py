"""A dashboard and a watchdog that share a store and a key, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from test_watchdog import Bench

from trainvitals.control import signed
from trainvitals.settings import parse
from trainvitals.store.request_rows import RequestRow, read_request_rows, request_point
from trainvitals.watch import far_control
from trainvitals.watch.request_feed import RequestFeed
from trainvitals.web.remote import FarReader

KEY = b"a secret that is long enough to be one"


class FarBench(Bench):
    """``dashboard``: its settings; the run directory that they name is not there. ``turn``: the watchdog looks at the store and acts."""

    def __init__(self, tmp_path, monkeypatch, **tables):
        self.home, self.tables = tmp_path, tables
        self.key_file = tmp_path / "key"
        self.key_file.write_bytes(KEY)
        self.key_file.chmod(0o600)
        self.is_store_away = False
        monkeypatch.setattr(far_control, "_feed", self.feed)
        super().__init__(tmp_path)
        self.dashboard = self.settings_of(tmp_path / "not-on-this-host")
        self.reader = FarReader()

    def settings_of(self, run_dir, **tables):
        run = {"name": "r", "dir": str(run_dir), "control_road": "store", "checkpoints": [str(self.home / "checkpoints")]}
        keys = {"requests": {"key_files": [str(self.key_file)]}}
        return parse({"store": f"sqlite://{self.home}/store.db", "runs": [run]} | keys | tables)

    def start(self, store=None):
        self.settings = self.settings_of(self.dir, **self.tables)
        return super().start(store)

    def feed(self, settings, run, clock):
        def open_store():
            if self.is_store_away:
                raise signed_away()
            return _Kept(self.store)

        key_files = [settings.resolve(path) for path in settings.requests.key_files]
        return RequestFeed(run.name, open_store, key_files, clock, settings.requests.poll_s, in_thread=False)

    def turn(self, times=2):
        for _ in range(times):
            self.clock.advance(2)
            self.watchdog.turn()

    def rows(self) -> list[RequestRow]:
        return read_request_rows(self.store, "r", 0, 2**62, 10_000)

    def plant(self, request, *, key=KEY, run="r", signature=None, later_ns=0):
        text = request.to_text()
        signature = signed.sign(text, key) if signature is None else signature
        self.store.write([request_point(run, request.kind, request.issued_at_ns + later_ns, request.id, text, signature)])

    def request(self, **more):
        given = {"kind": "pause", "run": "r", "by": "ana", "source": "ui", "data": {"reason": "spike"},
                 "now_ns": self.clock.time_ns(), "valid_s": 600.0}  # fmt: skip
        changes = more.pop("changes", {})
        return replace(signed.new_request(**(given | more)), **changes)

    def refused(self) -> dict[str, int]:
        return dict(self.watchdog._far._requests.refused)

    def told(self):
        return self.reader.read(self.store, self.dashboard.runs[0], self.clock.time_ns())

    def answers(self, request_id):
        return [event for event in self.events() if event.data.get("request") == request_id]


class _Kept:
    """The bench's store, which the feed must not close."""

    def __init__(self, store):
        self.raw = store.raw

    def close(self):
        pass


def signed_away():
    from trainvitals.errors import StoreUnavailable

    return StoreUnavailable("the store is away")
