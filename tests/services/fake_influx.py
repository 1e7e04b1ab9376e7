"""Stand-ins for InfluxDB 2.x and 3, which no package archive we can reach ships: their rules in front of a real 1.6 engine.

A request passes the rules of the version, then goes on to the real influxd, whose InfluxQL engine 2.x carries unchanged
(influxdb branch 2.7, influxql/query). What differs, each from the source it names, and nothing else:

2.x
- ``/query`` and ``/write`` want ``Authorization: Token T`` (not ``Bearer``), else 401 (http/legacy/..., 2.7).
- a line that does not parse: 400 and nothing of the batch is stored (http/legacy/write_handler.go, http/points, 2.7).
- a field of another type than stored: 422, the rest is stored (same).
- an unknown bucket: 404 (same); a bucket answers as the database of its name (virtual mapping, from 2.5 on).
- CREATE and DROP DATABASE are not implemented (statement error); DELETE is.

3 (HEAD of 2026-06)
- a line that does not parse: 400 and nothing is stored (``accept_partial=false``, influxdb3_types/src/http.rs).
- a database is made by the first write (influxdb3_catalog update.rs); an unknown one in a query is a statement error.
- a query whose range touches more than 432 files of ten minutes: an error that names the limit, with HTTP 200
  (influxdb3_write/src/write_buffer/mod.rs, core/iox_v1_query_api).
- DELETE is not implemented (core/iox_query_influxql/src/plan); a query that does not parse is a statement error with HTTP 200.
- a tag and a field of one table may not share a name: 400 (docs influxdb3/core/write-data/compatibility-apis).
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.services.influx_server import InfluxServer

TOKEN = "the-right-token"
FILE_NS = 600 * 10**9
FILE_LIMIT = 432
_FIELD = re.compile(rb"([^=,]+)=(\"(?:\\.|[^\"\\])*\"|[^,]+)", re.DOTALL)
_KINDS = (
    ("int", re.compile(rb"-?\d+i\Z")),
    ("float", re.compile(rb"-?\d+(\.\d*)?([eE][+-]?\d+)?\Z")),
    ("bool", re.compile(rb"(t|T|true|True|TRUE|f|F|false|False|FALSE)\Z")),
    ("str", re.compile(rb"\"(\\.|[^\"\\])*\"\Z", re.DOTALL)),
)


@dataclass
class Line:
    measurement: str
    tags: tuple[str, ...]
    kinds: dict[str, str]
    time_ns: int
    text: bytes


def split_lines(body: bytes) -> list[bytes]:
    """Lines; a newline inside the quotes of a field is part of its line, a quote in a tag means nothing."""
    lines, current = [], bytearray()
    in_fields = in_quotes = escaped = False
    for byte in body:
        if byte == 0x0A and not in_quotes:
            lines.append(bytes(current))
            current.clear()
            in_fields = escaped = False
            continue
        current.append(byte)
        if escaped:
            escaped = False
        elif byte == 0x5C:
            escaped = True
        elif byte == 0x22 and in_fields:
            in_quotes = not in_quotes
        elif byte == 0x20:
            in_fields = True
    return [line for line in [*lines, bytes(current)] if line.strip()]


def parse_line(text: bytes) -> Line | None:
    """A line by the rules of the format, None when it breaks them."""
    head = re.match(rb"((?:\\.|[^ \\])+) ", text, re.DOTALL)
    tail = re.search(rb" (-?\d+)\Z", text)
    if head is None or tail is None or tail.start() < head.end():
        return None
    measurement, *tags = re.split(rb"(?<!\\),", head[1])
    if any(not re.fullmatch(rb"(?:\\.|[^=\\])+=(?:\\.|[^=\\])+", tag, re.DOTALL) for tag in tags):
        return None
    kinds: dict[str, str] = {}
    at, body = 0, text[head.end() : tail.start()]
    while at < len(body):
        found = _FIELD.match(body, at)
        kind = next((name for name, pattern in _KINDS if found and pattern.match(found[2])), None)
        if found is None or kind is None or (found.end() < len(body) and body[found.end() : found.end() + 1] != b","):
            return None
        kinds[found[1].decode()] = kind
        at = found.end() + 1
    if not kinds:
        return None
    return Line(measurement.decode(), tuple(tag.split(b"=")[0].decode() for tag in tags), kinds, int(tail[1]), text)


@dataclass
class FakeInflux:
    """A server with the rules of ``major`` (2 or 3) in front of a real one. ``token`` may be changed while it runs."""

    behind: InfluxServer
    major: int
    token: str = TOKEN
    seen_paths: list[str] = field(default_factory=list)
    refused_files: int = 0
    retention: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._types: dict[tuple[str, str, str], str] = {}
        self._files: dict[tuple[str, str], set[int]] = {}
        self._databases: set[str] = set()
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # head and body in one packet: else each answer waits for a delayed acknowledgement

            def do_GET(self) -> None:
                fake._handle(self, b"")

            def do_POST(self) -> None:
                fake._handle(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def do_PATCH(self) -> None:
                self.do_POST()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def adopt(self, *names: str) -> None:
        """Databases of the engine behind that are there for this server too."""
        self._databases.update(names)

    def _handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urllib.parse.urlsplit(request.path)
        asked = {name: values[0] for name, values in urllib.parse.parse_qs(parts.query).items()}
        self.seen_paths.append(parts.path)
        if parts.path == "/ping":
            return self._answer(request, 204, None)
        offered = request.headers.get("Authorization", "")
        accepted = {f"Token {self.token}"} | ({f"Bearer {self.token}"} if self.major == 3 else set())
        if offered not in accepted:
            return self._answer(request, 401, {"code": "unauthorized", "message": "unauthorized access"})
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if parts.path in ("/write", "/api/v2/write"):
            return self._write(request, asked.get("bucket") or asked.get("db") or "", body)
        if parts.path == "/query":
            if request.command == "POST":
                asked |= {name: values[0] for name, values in urllib.parse.parse_qs(body.decode()).items()}
            return self._query(request, asked)
        if self.major == 2 and parts.path.startswith(("/api/v2/orgs", "/api/v2/buckets")):
            return self._manage(request, parts.path, asked, json.loads(body or b"{}"))
        if self.major == 3 and parts.path == "/api/v3/configure/database":
            name = json.loads(body)["db"]
            if name in self._databases:
                return self._answer(request, 409, {"error": "attempted to create a resource that already exists"})
            self._make(name)
            return self._answer(request, 200, None)
        return self._answer(request, 404, {"code": "not found", "message": "path not found"})

    def _make(self, name: str) -> None:
        self.behind.query(f'CREATE DATABASE "{name}"')
        self._databases.add(name)

    def _manage(self, request: BaseHTTPRequestHandler, path: str, asked: dict[str, str], document: dict[str, Any]) -> None:
        """Organizations and buckets of the 2.x API (docs v2 api: /orgs, /buckets); a bucket's id is its name turned to hex."""
        if path == "/api/v2/orgs":
            if asked.get("org") != "org":
                return self._answer(request, 404, {"code": "not found", "message": "organization name not found"})
            return self._answer(request, 200, {"orgs": [{"id": "0a", "name": "org"}]})
        if request.command == "GET":
            name = asked["name"]
            if name not in self._databases:
                return self._answer(request, 404, {"code": "not found", "message": f'bucket "{name}" not found'})
            return self._answer(request, 200, {"buckets": [{"id": name.encode().hex(), "name": name}]})
        if request.command == "PATCH":
            name = bytes.fromhex(path.rsplit("/", 1)[1]).decode()
            self.retention[name] = document["retentionRules"]
            return self._answer(request, 200, {"id": name.encode().hex()})
        assert document["orgID"] == "0a"
        self._make(document["name"])
        self.retention[document["name"]] = document["retentionRules"]
        return self._answer(request, 201, {"id": document["name"].encode().hex()})

    def _write(self, request: BaseHTTPRequestHandler, database: str, body: bytes) -> None:
        if self.major == 2 and database not in self._databases:
            return self._answer(request, 404, {"code": "not found", "message": f'bucket "{database}" not found'})
        lines = [parse_line(text) for text in split_lines(body)]
        if any(line is None for line in lines):
            return self._answer(request, 400, {"code": "invalid", "message": "unable to parse a line: nothing was stored"})
        good, conflicts = [], 0
        with self._lock:
            for line in lines:
                assert line is not None
                keys = {(database, line.measurement, name): kind for name, kind in line.kinds.items()}
                if self.major == 3 and any(
                    self._types.get((database, line.measurement, tag), "tag") != "tag" or tag in line.kinds for tag in line.tags
                ):
                    return self._answer(request, 400, {"error": "a tag and a field share a name: nothing was stored"})
                if any(self._types.get(key, kind) != kind for key, kind in keys.items()):
                    conflicts += 1
                    if self.major == 3:
                        return self._answer(request, 400, {"error": "invalid column type: nothing was stored"})
                    continue
                self._types |= keys | {(database, line.measurement, tag): "tag" for tag in line.tags}
                self._files.setdefault((database, line.measurement), set()).add(line.time_ns // FILE_NS)
                good.append(line.text)
            if self.major == 3 and database not in self._databases:
                self._make(database)
        status, answer = self._forward("POST", f"/write?db={urllib.parse.quote(database)}&precision=ns", b"\n".join(good))
        if status >= 300:
            return self._answer(request, status, json.loads(answer or b"{}"))
        if conflicts:
            return self._answer(request, 422, {"code": "unprocessable entity", "message": "field type conflict: partial write"})
        return self._answer(request, 204, None)

    def _query(self, request: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        database, statement = asked.get("db", ""), asked.get("q", "")
        if re.match(r"\s*(CREATE|DROP)\s+DATABASE", statement, re.I) or (self.major == 3 and statement.startswith("DELETE")):
            return self._answer(request, 200, {"results": [{"statement_id": 0, "error": "not implemented"}]})
        if database not in self._databases:
            return self._answer(request, 200, {"results": [{"statement_id": 0, "error": f"database not found: {database}"}]})
        if self.major == 3 and self._touched(database, statement) > FILE_LIMIT:
            self.refused_files += 1
            text = (
                f"Query would exceed file limit of {FILE_LIMIT} parquet files. Please specify a smaller time range for your query. "
                "You can increase the file limit with the `--query-file-limit` option."
            )
            return self._answer(request, 200, {"results": [{"statement_id": 0, "error": text}]})
        body = urllib.parse.urlencode(asked).encode()
        status, answer = self._forward("POST", "/query", body, {"Content-Type": "application/x-www-form-urlencoded"})
        if self.major == 3 and status == 400:
            return self._answer(request, 200, {"results": [{"statement_id": 0, "error": json.loads(answer)["error"]}]})
        return self._answer(request, status, json.loads(answer))

    def _touched(self, database: str, statement: str) -> int:
        """Files of ten minutes that the statements' ranges touch."""
        touched = 0
        for part in re.split(r"; (?=SELECT)", statement):
            if part.startswith("SHOW"):
                continue
            named = re.search(r'FROM "([^"]+)"', part)
            low, high = re.search(r"time >= (-?\d+)", part), re.search(r"time < (-?\d+)", part)
            if named is None or low is None or high is None:
                raise AssertionError(f"a statement without both time bounds: {part}")
            files = self._files.get((database, named[1]), set())
            touched += sum(int(low[1]) // FILE_NS <= file <= (int(high[1]) - 1) // FILE_NS for file in files)
        return touched

    def _forward(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answer(self, request: BaseHTTPRequestHandler, status: int, document: Any) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        request.send_response(status)
        request.send_header("X-Influxdb-Version", "v2.7.11" if self.major == 2 else "3.2.0")
        request.send_header("Content-Type", "application/json")
        if status != 204:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
