"""A real InfluxDB that is stopped, killed, full, slow or refuses the token: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from chaos_tools import spool_counters, stored_steps, wait_until
from chaos_writer import open_spool, point

from tests.services.fake_influx import FakeInflux
from tests.services.influx_server import InfluxServer, count_rows

OUTAGE_S = 60.0


def test_a_minute_without_the_server_loses_nothing_and_the_newest_point_is_there_first(server, start_writer, tmp_path):
    databases = server.make_databases()
    writer = start_writer(url=server.url, databases=databases, run="r", batch=50, pause_s=0.05)
    assert wait_until(lambda: count_rows(server, databases[1], "train", "step") > 100, 30)
    server.stop()
    before = writer.acknowledged
    threading.Event().wait(OUTAGE_S)
    assert writer.acknowledged > before + 5_000, "appends must not wait for the server"
    back = writer.acknowledged
    server.start()
    assert wait_until(lambda: count_rows(server, databases[1], "train", "step") > before + 100, 60)
    first_steps = stored_steps(server, databases[1], "r")
    assert max(first_steps) >= back, "the live view must come back before the backlog"
    writer.end()
    again = start_writer(url=server.url, databases=databases, run="r", count=1)
    wanted = list(range(writer.acknowledged + 1))
    assert wait_until(lambda: count_rows(server, databases[1], "train", "step") >= len(wanted), 60)
    again.end()
    assert sorted(stored_steps(server, databases[1], "r")) == wanted
    count = spool_counters(tmp_path / "spool" / "a.spool")
    assert (count["appended"], count["delivered"], count["waiting"]) == (len(wanted), len(wanted), 0)


def test_five_kills_of_the_server_under_load_lose_nothing_and_repeat_nothing(server, start_writer, tmp_path):
    databases = server.make_databases()
    writer = start_writer(url=server.url, databases=databases, run="r", batch=20, pause_s=0.01)
    for _ in range(5):
        reached = writer.acknowledged + 1_000
        assert wait_until(lambda reached=reached: writer.acknowledged >= reached, 30)
        server.kill()
        server.start()
    writer.process.stdin.close()
    assert writer.is_done.wait(30)
    wanted = list(range(writer.acknowledged + 1))
    writer.end()
    last = start_writer(url=server.url, databases=databases, run="r", count=1)
    assert wait_until(lambda: count_rows(server, databases[1], "train", "step") >= len(wanted), 60)
    last.end()
    assert sorted(stored_steps(server, databases[1], "r")) == wanted


def test_beyond_the_bound_what_is_missing_is_exactly_what_was_counted_as_dropped(server, start_writer, tmp_path):
    databases = server.make_databases()
    server.stop()
    writer = start_writer(url=server.url, databases=databases, run="r", batch=20, count=40_000, max_bytes=200_000)
    assert writer.is_done.wait(90)
    server.start()
    path = tmp_path / "spool" / "a.spool"
    assert wait_until(lambda: spool_counters(path)["waiting"] == 0, 60)
    writer.end()
    stored = stored_steps(server, databases[1], "r")
    count = spool_counters(path)
    assert len(stored) == len(set(stored))
    assert 40_000 - len(stored) == count["dropped_by_size"] > 0
    assert max(stored) == 39_999 and count["delivered"] == len(stored)


def test_a_server_with_a_full_disk_loses_nothing_once_it_has_room(start_writer, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    server = InfluxServer(disk / "influxd")
    try:
        server.start()
        databases = server.make_databases()
        writer = start_writer(url=server.url, databases=databases, run="r", batch=1_000, count=120_000)
        assert writer.is_done.wait(60), "appends must not wait for the server"
        path = tmp_path / "spool" / "a.spool"
        spool_is_stuck = lambda: "no space" in (tmp_path / "errors").read_text()  # noqa: E731
        assert wait_until(spool_is_stuck, 60), (tmp_path / "errors").read_text()
        assert spool_counters(path)["waiting"] > 0
        subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
        server.kill()  # a database that met a full disk is started again by its keepers
        server.start()
        assert wait_until(lambda: spool_counters(path)["waiting"] == 0, 90)
        writer.end()
        assert "dead_letters" not in spool_counters(path)
        assert sorted(stored_steps(server, databases[1], "r")) == list(range(120_000))
    finally:
        server.kill()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_wrong_token_keeps_everything_and_a_rotated_one_is_taken_up_without_a_restart(server, tmp_path):
    databases = server.make_databases()
    guard = FakeInflux(server, 2)
    guard.adopt(*databases)
    token_file = tmp_path / "token"
    token_file.write_text("a wrong token\n")
    spool = open_spool(
        {"spool": str(tmp_path / "a.spool"), "url": guard.url, "databases": databases, "token_file": str(token_file)}
    )
    try:
        spool.write([point("r", number) for number in range(100)])
        assert wait_until(lambda: "401" in spool.stats().fault, 20)
        assert spool.stats().waiting == 100 and spool.stats().dead_letters == 0
        token_file.write_text(guard.token + "\n")
        assert wait_until(lambda: spool.stats().waiting == 0, 30)
        guard.token = "rotated"
        spool.write([point("r", number) for number in range(100, 200)])
        assert wait_until(lambda: "401" in spool.stats().fault, 20)
        token_file.write_text("rotated\n")
        assert wait_until(lambda: spool.stats().waiting == 0, 30)
    finally:
        spool.close()
        guard.stop()
    assert sorted(stored_steps(server, databases[1], "r")) == list(range(200))


class SlowProxy:
    """Passes requests on at once and answers ``delay_s`` later."""

    def __init__(self, server: InfluxServer) -> None:
        import http.client

        self.delay_s = 0.0
        self.writes = 0
        pause = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                if self.path.startswith("/write"):
                    proxy.writes += 1
                    pause.wait(proxy.delay_s)
                self.send_response(answer.status)
                self.send_header("X-Influxdb-Version", answer.headers["X-Influxdb-Version"])
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _pass_on  # noqa: N815

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    return  # the client gave up waiting, which is what the test wants

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._pause = pause

    def stop(self) -> None:
        self._pause.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def slow(server):
    proxy = SlowProxy(server)
    yield proxy
    proxy.stop()


def test_answers_after_ten_seconds_hold_up_no_append(server, slow, start_writer, tmp_path):
    databases = server.make_databases()
    slow.delay_s = 10.0
    writer = start_writer(url=slow.url, databases=databases, run="r", batch=10, pause_s=0.02)
    assert wait_until(lambda: slow.writes >= 1, 30)
    first = writer.acknowledged
    assert wait_until(lambda: slow.writes >= 2, 30)
    assert writer.acknowledged > first + 500
    slow.delay_s = 0.0
    writer.process.stdin.close()
    assert writer.is_done.wait(30)
    writer.end()
    last = start_writer(url=server.url, databases=databases, run="r", count=1)
    assert wait_until(lambda: spool_counters(tmp_path / "spool" / "a.spool")["waiting"] == 0, 60)
    last.end()
    assert sorted(stored_steps(server, databases[1], "r")) == list(range(writer.acknowledged + 1))


def test_writes_that_were_stored_but_never_answered_in_time_are_there_once(server, slow, tmp_path):
    databases = server.make_databases()
    slow.delay_s = 3.0
    spool = open_spool({"spool": str(tmp_path / "a.spool"), "url": slow.url, "databases": databases, "timeout_s": 0.5})
    try:
        spool.write([point("r", number) for number in range(2_000)])
        assert wait_until(lambda: slow.writes >= 3, 60)
        assert spool.stats().waiting == 2_000 and spool.stats().fault
        slow.delay_s = 0.0
        assert wait_until(lambda: spool.stats().waiting == 0, 60)
    finally:
        spool.close()
    assert sorted(stored_steps(server, databases[1], "r")) == list(range(2_000))
