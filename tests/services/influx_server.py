"""Real servers for tests: Debian's influxd (1.6.7 at the time of writing) and nginx in front of it, on free loopback ports."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from pathlib import Path

INFLUXD = shutil.which("influxd") or shutil.which("influxd", path="/usr/sbin:/usr/bin")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/bin")
READY_S = 60.0

INFLUXD_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc_port}"
[meta]
  dir = "{directory}/meta"
  logging-enabled = false
[data]
  dir = "{directory}/data"
  wal-dir = "{directory}/wal"
  index-version = "{index}"
  query-log-enabled = false
[coordinator]
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
  auth-enabled = {auth}
[monitor]
  store-enabled = false
[subscriber]
  enabled = false
[continuous_queries]
  enabled = false
[retention]
  enabled = false
[shard-precreation]
  enabled = false
"""

NGINX_CONFIG = """
pid nginx.pid;
error_log nginx.log;
worker_processes 1;
daemon off;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  client_max_body_size 64m; client_body_buffer_size 16m; proxy_max_temp_file_size 0; proxy_buffers 64 64k;
  upstream influx {{ server 127.0.0.1:{influx_port}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    proxy_http_version 1.1; proxy_set_header Connection "";
    location = /api/v2/write {{ set $args "db=$arg_bucket&precision=$arg_precision"; rewrite ^ /write break; proxy_pass http://influx; }}
    location / {{ proxy_pass http://influx; }}
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_answers(port: int, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the server answers at all; its log is in the failure."""
    deadline = time.monotonic() + READY_S
    pause = threading.Event()
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            connection.getresponse().read()
            return
        except (OSError, http.client.HTTPException):
            pause.wait(0.05)
        finally:
            connection.close()
    stop(process)
    raise AssertionError(f"{process.args} did not answer: {log.read_text(errors='replace')[-3000:]}")


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """End it and wait; a server that does not go is killed."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


@dataclass
class InfluxServer:
    """One influxd with its data under ``directory``; it may be stopped, killed and started again on the same port."""

    directory: Path
    index: str = "inmem"
    auth: bool = False
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> InfluxServer:
        assert INFLUXD is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        config, log = self.directory / "influxd.conf", self.directory / "influxd.log"
        config.write_text(
            INFLUXD_CONFIG.format(
                directory=self.directory, port=self.port, rpc_port=free_port(), index=self.index, auth=str(self.auth).lower()
            )
        )
        with log.open("ab") as output:
            self.process = subprocess.Popen([INFLUXD, "-config", str(config)], stdout=output, stderr=output)
        wait_until_answers(self.port, "/ping", self.process, log)
        return self

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)

    def kill(self) -> None:
        """``kill -9``"""
        if self.process is not None:
            stop(self.process, signal.SIGKILL)

    def query(self, statement: str, database: str = "", **more: str) -> list[dict]:
        """Results of a statement, sent as a plain POST: nothing of the product is in between."""
        body = urllib.parse.urlencode({"q": statement, "db": database, "epoch": "ns", **more})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/query", body, {"Content-Type": "application/x-www-form-urlencoded"})
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status == 200 and not any("error" in result for result in document["results"]), document
        return document["results"]

    def make_databases(self) -> tuple[str, str]:
        """Two fresh ones: (hardware, long)."""
        mark = uuid.uuid4().hex[:12]
        names = f"health_{mark}", f"health_long_{mark}"
        self.query(";".join(f'CREATE DATABASE "{name}"' for name in names))
        return names

    def drop_databases(self, *names: str) -> None:
        self.query(";".join(f'DROP DATABASE "{name}"' for name in names))


def count_rows(server: InfluxServer, database: str, measurement: str, field_name: str) -> int:
    """Rows of a measurement that have a field, as the server itself counts them."""
    (result,) = server.query(f'SELECT count("{field_name}") FROM "{measurement}"', database)
    return sum(int(series["values"][0][1]) for series in result.get("series", []))


@dataclass
class NginxServer:
    """nginx that turns ``/api/v2/write`` into ``/write``: the way of influxdb-client to a 1.6 server."""

    directory: Path
    influx_port: int
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> NginxServer:
        assert NGINX is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "nginx.conf"
        config.write_text(NGINX_CONFIG.format(port=self.port, influx_port=self.influx_port))
        log = self.directory / "nginx.out"
        with log.open("ab") as output:
            self.process = subprocess.Popen([NGINX, "-p", str(self.directory), "-c", str(config)], stdout=output, stderr=output)
        wait_until_answers(self.port, "/ping", self.process, log)
        return self

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)
