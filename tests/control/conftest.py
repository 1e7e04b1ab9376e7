"""A run directory, a real control client, and a training loop that a test steps."""

import contextlib
import threading

import pytest

from trainvitals.control import ControlClient, read_status, submit

TIMEOUT_S = 20.0
POLL_S = 0.01


def eventually(is_true):
    """Wait for a thread's work; fails instead of hanging."""
    nothing = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.005)):
        if is_true():
            return
        nothing.wait(0.005)
    pytest.fail("it never became true")


class Sink:
    """Keeps what the client tells the recorder."""

    def __init__(self):
        self.events = []
        self.phases = []
        self.ends = []

    def finish(self, reason="finished"):
        self.ends.append(reason)

    def event(self, kind, /, step=None, text="", **data):
        self.events.append({"kind": kind, "step": step, "text": text} | data)

    def phase(self, name, state="begin"):
        self.phases.append((name, state))

    @property
    def states(self):
        return [event["state"] for event in self.events]


class Rig:
    """A run directory, a client, and a training loop that a test steps."""

    timeout_s = TIMEOUT_S
    poll_s = POLL_S
    eventually = staticmethod(eventually)

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.saves = []
        self.sink = Sink()
        self.clients = []
        self.client = None
        self.loop = None
        self.answer = None

    def beside(self):
        """Another trainer in the same directory."""
        return Rig(self.run_dir)

    def start(self, **options):
        if self.client is not None:
            self.client.close()
        given = {"on_checkpoint": self.saves.append, "poll_s": POLL_S, "recorder": self.sink, "run": "r1"} | options
        self.client = ControlClient(self.run_dir, **given)
        self.clients.append(self.client)
        return self.client

    def ask(self, action, **options):
        given = {"by": "alice", "source": "cli", "reason": "loss spike"} | options
        request = submit(self.run_dir, "r1", action=action, **given)
        return request

    def asked(self, action, **options):
        """Ask, and wait until the client's thread has seen it."""
        request = self.ask(action, **options)
        self.until(lambda status: status.ack_seq == request.seq)
        return request

    def until(self, is_true):
        def looks():
            status = read_status(self.run_dir)
            return status is not None and is_true(status)

        eventually(looks)
        return read_status(self.run_dir)

    def hold(self, step):
        """Call at_step in a thread, because it is expected to hold."""

        def body():
            self.answer = self.client.at_step(step)

        self.answer = None
        self.loop = threading.Thread(target=body, daemon=True)
        self.loop.start()

    def released(self):
        self.loop.join(TIMEOUT_S)
        assert not self.loop.is_alive()
        return self.answer


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    if made.loop is not None and made.loop.is_alive():
        with contextlib.suppress(Exception):
            submit(made.run_dir, "", action="stop", by="test", source="cli", reason="end of the test")
        made.loop.join(5)
    for client in made.clients:
        client.close()
