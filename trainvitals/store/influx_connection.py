"""The one door to an InfluxDB server: HTTP, rights, versions, and its errors as ours.

``influxdb-client`` is the HTTP, TLS and header layer only, called synchronously with bytes: its batching mode lost every buffered
point at exit, on SIGTERM, after a fork and in an outage (measured), and its write call does not tell 204 from another program's
200. Answers are read as JSON: CSV hides errors. Every error and every ``partial`` of every statement is an exception.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import urllib3
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.rest import ApiException

from trainvitals.errors import StoreError, StoreRejected, StoreUnavailable
from trainvitals.store.influx_rights import Rights

#: Longer statements go in the body: proxies refuse long addresses (nginx: 8 kB for the request line).
_LONGEST_URL = 2_000
_LONGEST_REASON = 300
_T = TypeVar("_T")
_REJECTED = (400, 413, 422)
#: The only answer of every version that says "stored"; a sign-in page in between answers 200.
_STORED = 204
_NO_DATABASE = re.compile(
    r"(database|bucket|dbrp)\b.*not found|not found.*(database|bucket|dbrp)|no dbrp|could not find bucket", re.I
)
_LATER = re.compile(
    r"timeout|timed out|max-concurrent|max-select|interrupted|shutdown|not available|try again|engine is closed", re.I
)
_FILE_LIMIT = re.compile(r"file limit|query-file-limit", re.I)


class FileLimitExceeded(StoreError):
    """InfluxDB 3 refused a range because it lies in too many files: ask for shorter ones."""


@dataclass(frozen=True)
class Flavour:
    """Which InfluxDB answers: ``major`` 1, 2 or 3 (what is unknown counts as 2), and its own words."""

    major: int
    minor: int
    version: str

    @property
    def has_v2_write(self) -> bool:
        """``/api/v2/write`` is there from 1.8 on."""
        return (self.major, self.minor) >= (1, 8)

    @property
    def name(self) -> str:
        return f"influxdb{self.major}"


class Table(NamedTuple):
    """One series of an answer: its group tags, the names of its columns, its rows."""

    tags: Mapping[str, str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def flavour_of(version: str) -> Flavour:
    """From the header ``X-Influxdb-Version``: ``1.6.7~rc0``, ``v2.7.10``, ``3.2.0``."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return Flavour(int(found[1]), int(found[2]), version) if found else Flavour(2, 0, version or "unknown")


class InfluxConnection:
    """Calls to one server. Threads may share it; a forked child makes its own connections.

    url: ``http://host:8086``. timeout_s: of one request. v2_write: None = what the version has; a proxy in front of an
    older server may offer more than its version says.
    """

    def __init__(
        self,
        url: str,
        rights: Rights,
        *,
        org: str = "",
        timeout_s: float = 30.0,
        verify: bool = True,
        ca_file: str = "",
        compress: bool = False,
        v2_write: bool | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._rights = rights
        self._org = org
        self._options: dict[str, Any] = {"timeout": round(timeout_s * 1000), "verify_ssl": verify, "enable_gzip": compress}
        if ca_file:
            self._options["ssl_ca_cert"] = ca_file
        self._v2_write = v2_write
        self._lock = threading.Lock()
        self._client: InfluxDBClient | None = None
        self._made_with: tuple[int, str] = (0, "")
        self._secret: str | None = None
        self._flavour: Flavour | None = None
        self._closed = False

    def take_rights(self, rights: Rights) -> None:
        """Go on as somebody else."""
        self._rights, self._secret = rights, None

    def flavour(self) -> Flavour:
        """Asked once, and again after the server was away (it may have been replaced by another version)."""
        if self._flavour is None:
            answer = self._call("GET", "/ping", [], "be reached")
            self._flavour = flavour_of(str(answer.headers.get("X-Influxdb-Version", "")))
        return self._flavour

    def write(self, database: str, lines: bytes) -> None:
        """Send lines (ns). Raises ``StoreRejected`` when some can never be stored: then others of them may be stored."""
        use_v2 = self.flavour().has_v2_write if self._v2_write is None else self._v2_write
        if use_v2:
            path, parameters = "/api/v2/write", [("org", self._org or "-"), ("bucket", database), ("precision", "ns")]
        else:
            path, parameters = "/write", [("db", database), ("precision", "ns")]
        answer = self._call("POST", path, parameters, database, body=lines)
        if answer.status != _STORED:
            self._flavour = None
            raise StoreUnavailable(
                f"InfluxDB at {self.url} did not say that it stored the points of {database} (HTTP {answer.status} instead of "
                f"{_STORED}); is there another program or a sign-in page at this address?"
            )

    def query(
        self, database: str, statements: str, values: Mapping[str, Any] | None = None, *, changes: bool = False
    ) -> list[list[Table]]:
        """Run InfluxQL; one list of tables a statement. ``values`` are bound as ``$name``. changes: DELETE and the like."""
        parameters = [("epoch", "ns"), *([("db", database)] if database else [])]
        named = database or "the server itself"  # in sentences
        asked = [("q", statements), *([("params", json.dumps(values))] if values else [])]
        if changes or sum(len(text) for _name, text in asked) > _LONGEST_URL:
            answer = self._call("POST", "/query", parameters, named, form=asked)
        else:
            answer = self._call("GET", "/query", parameters + asked, named)
        try:
            document = json.loads(answer.data)
        except ValueError as error:
            raise StoreUnavailable(
                f"InfluxDB at {self.url} answered a query with something that is no JSON; is there another program at this address?"
            ) from error
        try:
            return self._tables(document, named)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise self._unknown_form() from error

    def manage(
        self, method: str, path: str, parameters: list[tuple[str, str]], what: str, document: Mapping[str, Any] | None = None,
        *, missing_ok: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """A call of the management API of 2.x or 3; ``what`` names the object in errors. missing_ok: 404 gives nothing."""
        body = None if document is None else dict(document)  # the client turns it into JSON
        try:
            answer = self._call(method, path, parameters, what, body=body, content="application/json")
        except StoreUnavailable as error:
            cause = error.__cause__
            if missing_ok and isinstance(cause, ApiException) and cause.status == 404:
                return {}
            raise
        try:
            parsed = json.loads(answer.data) if answer.data else {}
        except ValueError:
            parsed = {}
        return parsed if isinstance(parsed, dict) else {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()  # type: ignore[no-untyped-call]

    def _call(
        self, method: str, path: str, parameters: list[tuple[str, str]], database: str, *, body: bytes | dict[str, Any] | None = None,
        form: list[tuple[str, str]] | None = None, content: str = "text/plain; charset=utf-8",
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded" if form else content}

        def run(client: InfluxDBClient) -> urllib3.BaseHTTPResponse:
            answer: urllib3.BaseHTTPResponse = client.api_client.call_api(  # type: ignore[no-untyped-call]
                path, method, query_params=parameters, body=body, post_params=form, header_params=dict(headers), auth_settings=[],
                _preload_content=False, _return_http_data_only=True,
            )  # fmt: skip
            _ = answer.data  # read here, so that a cut connection is met here
            return answer

        return self._guarded(run, database)

    def _guarded(self, run: Callable[[InfluxDBClient], _T], database: str) -> _T:
        """Run a call. Refused rights are read again once (a rotated token needs no restart); errors become ours."""
        client, secret = self._ready()
        try:
            return run(client)
        except ApiException as error:
            if error.status not in (401, 403):
                raise self._as_ours(error, database) from error
            self._secret = self._rights.header_secret()
            if self._secret == secret:
                raise self._as_ours(error, database) from error
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error
        client, _secret = self._ready()
        try:
            return run(client)
        except ApiException as error:
            raise self._as_ours(error, database) from error
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error

    def _ready(self) -> tuple[InfluxDBClient, str]:
        secret = self._secret
        if secret is None:
            secret = self._secret = self._rights.header_secret()
        with self._lock:
            if self._closed:
                raise StoreError(f"The store {self.url} was closed.")
            if self._client is None or self._made_with != (os.getpid(), secret):
                # A forked child must not talk on its parent's connections; the old client goes with its last user.
                self._client = InfluxDBClient(
                    self.url, secret or "-", org=self._org or "-", auth_basic=self._rights.is_basic, **self._options
                )
                self._made_with = (os.getpid(), secret)
            return self._client, secret

    def _unreachable(self, error: Exception) -> StoreUnavailable:
        self._flavour = None
        why = f"TLS: {_reason(error)}" if isinstance(error, ApiException) else f"{type(error).__name__}: {_short(str(error))}"
        certificates = ", and [influxdb] ca_file and verify" if self.url.startswith("https:") else ""
        return StoreUnavailable(
            f"InfluxDB at {self.url} cannot be reached ({why}); check that it runs and that store names the right "
            f"address{certificates}."
        )

    def _as_ours(self, error: ApiException, database: str) -> StoreError:
        status, reason = error.status or 0, _reason(error)
        if not status:  # the client's way to say that TLS failed
            return self._unreachable(error)
        if status in (401, 403):
            return StoreUnavailable(
                f"InfluxDB at {self.url} refused {self._rights.words} for {database} (HTTP {status}: {reason}); "
                f"{self._rights.remedy} It is read again at every refusal, so no restart is needed."
            )
        if status == 404 or (status in _REJECTED and _NO_DATABASE.search(reason)):
            return self._no_database(database, reason)
        if status in _REJECTED:
            if _FILE_LIMIT.search(reason):
                return FileLimitExceeded(self._file_limit(reason))
            return StoreRejected(f"InfluxDB at {self.url} refused (HTTP {status}) for {database}: {reason}.")
        # Anything else may be a proxy or a rule in between that a person puts right: the points are kept.
        self._flavour = None
        return StoreUnavailable(f"InfluxDB at {self.url} cannot serve {database} now (HTTP {status}: {reason}).")

    def _no_database(self, database: str, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"InfluxDB at {self.url} has no database or bucket {database!r} ({reason}); "
            "run `python -m trainvitals store setup`, or name the right ones in [influxdb] database and database_long."
        )

    def _file_limit(self, reason: str) -> str:
        return (
            f"InfluxDB at {self.url} refuses ranges that lie in many files ({reason}); start it with a higher "
            "--query-file-limit, or use InfluxDB 3 Enterprise, which compacts them."
        )

    def _tables(self, document: Any, database: str) -> list[list[Table]]:
        if not isinstance(document, dict):
            raise self._unknown_form()
        results = document.get("results", [])
        for part in [document, *results]:
            if "error" in part:
                raise self._statement_error(str(part["error"]), database)
        answers = []
        for result in results:
            series = result.get("series") or []
            if result.get("partial") or any(each.get("partial") for each in series):
                raise StoreError(
                    f"InfluxDB at {self.url} cut an answer of {database} short; set max-row-limit = 0 in its configuration."
                )
            answers.append([Table(each.get("tags") or {}, list(each["columns"]), each.get("values") or []) for each in series])
        if not answers:
            raise self._unknown_form()
        return answers

    def _unknown_form(self) -> StoreUnavailable:
        return StoreUnavailable(f"InfluxDB at {self.url} gave an answer of no known form; is there a proxy in front of it?")

    def _statement_error(self, text: str, database: str) -> StoreError:
        reason = _short(text)
        if _FILE_LIMIT.search(text):
            return FileLimitExceeded(self._file_limit(reason))
        if _NO_DATABASE.search(text):
            return self._no_database(database, reason)
        kind = StoreUnavailable if _LATER.search(text) else StoreError
        return kind(f"InfluxDB at {self.url} could not answer a query of {database}: {reason}.")


def _reason(error: ApiException) -> str:
    body = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = {}
    if isinstance(parsed, dict):
        body = str(parsed.get("error") or parsed.get("message") or body)
    return _short(body or str(error.reason or "no reason given"))


def _short(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"
