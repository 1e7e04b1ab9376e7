"""What an InfluxDB server may answer or not answer, and the sentence and kind of error that comes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.services.fake_influx import FakeInflux
from tests.services.fixtures import InfluxPlace, MakePlace
from tests.services.influx_server import InfluxServer, free_port
from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError, StoreRejected, StoreUnavailable
from trainvitals.records import Point
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore
from trainvitals.store.influx_connection import InfluxConnection, flavour_of
from trainvitals.store.influx_rights import Rights

SECOND = 10**9
T0 = 1_767_323_045 * SECOND
EVER = (0, 2**62)
NODE = Point("node", {"node": "n"}, T0, {"gpus": 8})


def step(number: int, time_ns: int | None = None) -> Point:
    return Point(
        "train", {"run": "r", "attempt": "1"}, time_ns or T0 + number * SECOND, {"step": number, "loss": 1.0, "nonfinite": 0}
    )


Answer = tuple[int, str]


class Scripted:
    """A server that answers whatever it is told to; ``answers`` maps a path to (status, body)."""

    def __init__(self, version: str = "1.6.7") -> None:
        self.answers: dict[str, Answer] = {}
        self.authorizations: list[str | None] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                scripted.authorizations.append(self.headers.get("Authorization"))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = (204, "") if path == "/ping" else scripted.answers.get(path, (200, '{"results":[]}'))
                if status == 0:  # hang up in mid-answer
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(body.encode())
                    return
                self.send_response(status)
                self.send_header("X-Influxdb-Version", version)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.fixture
def open_scripted(scripted: Scripted) -> Iterator[Callable[..., InfluxStore]]:
    opened: list[InfluxStore] = []

    def open_one(**settings: object) -> InfluxStore:
        opened.append(InfluxStore(scripted.url, InfluxdbSettings(**{"timeout_s": 5.0, **settings}), ManualClock()))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.mark.parametrize("status", [302, 405, 408, 411, 429, 500, 502, 503, 504])
def test_a_server_that_is_overloaded_is_asked_again_later(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], status: int
) -> None:
    scripted.answers["/write"] = (status, '{"error":"engine: write: no space left on device"}')
    with pytest.raises(StoreUnavailable, match=f"HTTP {status}"):
        open_scripted().write([NODE])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_points_that_a_server_will_never_take_are_told_from_those_that_may_go_later(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], status: int
) -> None:
    scripted.answers["/write"] = (status, '{"error":"partial write: points beyond retention policy dropped=1"}')
    with pytest.raises(StoreRejected, match="retention policy dropped"):
        open_scripted().write([NODE])


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"results": [{"error": "query-timeout limit exceeded"}]}, StoreUnavailable, "timeout"),
        ({"results": [{"error": "something broke"}]}, StoreError, "something broke"),
        ({"results": [{}, {"error": "the second statement"}]}, StoreError, "second statement"),
        ({"error": "all of it"}, StoreError, "all of it"),
        ({"results": [{"error": "database not found: health"}]}, StoreUnavailable, "store setup"),
        ({"results": [{"partial": True, "series": []}]}, StoreError, "cut an answer"),
        ({"results": [{"series": [{"columns": ["time"], "values": [[1]], "partial": True}]}]}, StoreError, "cut an answer"),
        ([], StoreUnavailable, "no known form"),
        ({}, StoreUnavailable, "no known form"),
        ({"results": None}, StoreUnavailable, "no known form"),
        ({"results": ["text"]}, StoreUnavailable, "no known form"),
        ({"results": [{"series": [{"columns": None}]}]}, StoreUnavailable, "no known form"),
    ],
)
def test_every_error_and_every_cut_answer_of_every_statement_is_an_exception(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], body: object, kind: type[StoreError], words: str
) -> None:
    scripted.answers["/query"] = (200, json.dumps(body))
    store = open_scripted()
    with pytest.raises(StoreError, match=words) as caught:
        store.raw("node", ["gpus"], {}, *EVER)
    assert type(caught.value) is kind
    health = store.health()
    assert not health.is_reachable and health.version == "1.6.7" and health.text


@pytest.mark.parametrize("answer", [(200, "<html>hello</html>"), (200, ""), (0, '{"results":'), (404, "<html>nginx</html>")])
def test_another_program_at_the_address_and_a_cut_connection_are_sentences(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], answer: Answer
) -> None:
    scripted.answers["/query"] = answer
    with pytest.raises(StoreUnavailable):
        open_scripted().raw("node", ["gpus"], {}, *EVER)


@pytest.mark.parametrize("write_path", ["v1", "v2"])
def test_an_answer_that_does_not_say_stored_is_no_acknowledgement(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], write_path: str
) -> None:
    scripted.answers["/write"] = scripted.answers["/api/v2/write"] = (200, "<html>Please sign in</html>")
    with pytest.raises(StoreUnavailable, match="HTTP 200 instead of 204"):
        open_scripted(write_path=write_path).write([NODE])
    scripted.answers["/write"] = scripted.answers["/api/v2/write"] = (204, "")
    open_scripted(write_path=write_path).write([NODE])


@pytest.mark.parametrize("text", ["# the token\nS3CRET==", "S3CRET\tx", "S3CRET\u20ac"])
def test_a_token_file_that_holds_more_than_a_token_is_told_without_its_contents(
    open_scripted: Callable[..., InfluxStore], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(StoreUnavailable, match="is no token") as caught:
        open_scripted(token_file=str(path)).write([NODE])
    assert "S3CRET" not in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_of_authorities_is_told_with_the_key_that_names_it(scripted: Scripted, tmp_path: Path) -> None:
    settings = InfluxdbSettings(ca_file=str(tmp_path / "none.pem"))
    store = InfluxStore(scripted.url.replace("http:", "https:"), settings, ManualClock())
    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*ca_file"):
        store.write([NODE])
    store.close()


def test_words_of_a_server_reach_no_terminal_as_control_characters_and_not_at_length(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore]
) -> None:
    scripted.answers["/write"] = (500, json.dumps({"error": "\x1b[31m red\n" + "x" * 5000}))
    with pytest.raises(StoreUnavailable) as caught:
        open_scripted().write([NODE])
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_server_that_is_not_there_is_a_sentence_with_its_address_and_health_never_raises() -> None:
    store = InfluxStore(f"http://127.0.0.1:{free_port()}", InfluxdbSettings(), ManualClock())
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.write([NODE])
    health = store.health()
    assert not health.is_reachable and "cannot be reached" in health.text
    store.close()


def test_user_and_password_are_sent_as_basic_and_never_told(
    scripted: Scripted, open_scripted: Callable[..., InfluxStore], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    scripted.answers["/query"] = (401, '{"error":"authorization failed"}')
    store = open_scripted(user="watch", password_file=str(password))
    with pytest.raises(StoreUnavailable, match="user 'watch'") as caught:
        store.raw("node", ["gpus"], {}, *EVER)
    assert "s3cret" not in str(caught.value) and "s3cret" not in store.health().text
    assert scripted.authorizations[-1] == "Basic d2F0Y2g6czNjcmV0"


def test_a_statement_about_no_database_is_refused_in_a_whole_sentence(influxd: InfluxServer) -> None:
    with (
        closing(InfluxConnection(influxd.url, Rights(environ={}))) as connection,
        pytest.raises(StoreError, match="a query of the server itself: invalid name"),
    ):
        connection.query("", 'CREATE DATABASE "a/b"', changes=True)


@pytest.mark.parametrize("way", ["influxdb2_rules", "influxdb3_rules"])
def test_a_rotated_token_is_taken_up_without_a_restart(make_influx_place: MakePlace, way: str) -> None:
    place = make_influx_place(way)
    fake = place.server
    assert isinstance(fake, FakeInflux)
    store = place.open()
    store.write([NODE])
    right, fake.token = fake.token, "the-new-token"
    try:
        with pytest.raises(StoreUnavailable, match="token") as caught:
            store.write([NODE])
        assert "no restart" in str(caught.value) and right not in str(caught.value)
        with pytest.raises(StoreUnavailable, match="refused the token"):
            store.raw("node", ["gpus"], {}, *EVER)
        place.token_file.write_text("the-new-token\n")
        store.write([NODE])
        assert store.raw("node", ["gpus"], {}, *EVER)["gpus"].to_list() == [8]
    finally:
        fake.token = right


def test_a_missing_token_is_told_with_where_to_put_one(influxdb2_rules: FakeInflux) -> None:
    store = InfluxStore(influxdb2_rules.url, InfluxdbSettings(), ManualClock())
    with pytest.raises(StoreUnavailable, match=r"without a token.*token_file"):
        store.write([NODE])
    store.close()


def test_the_environment_wins_over_the_file_and_a_missing_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    rights = Rights(str(path), environ={})
    with pytest.raises(StoreUnavailable, match="token_file"):
        rights.header_secret()
    path.write_text(" from-file \n")
    assert rights.header_secret() == "from-file"
    assert Rights(str(path), environ={"TRAINVITALS_INFLUXDB_TOKEN": "from-environment"}).header_secret() == "from-environment"
    assert Rights(environ={}).header_secret() == ""


def test_a_missing_database_names_the_command_that_makes_it(influxd: InfluxServer, influxdb2_rules: FakeInflux) -> None:
    for url, token in ((influxd.url, "x"), (influxdb2_rules.url, influxdb2_rules.token)):
        environment = InfluxStore(url, InfluxdbSettings(database="nowhere", database_long="nowhere_long"), ManualClock())
        environment.connection._rights = Rights(environ={"TRAINVITALS_INFLUXDB_TOKEN": token})
        for call in (
            lambda store=environment: store.write([NODE]),
            lambda store=environment: store.write([step(1)]),
            lambda store=environment: store.raw("node", ["gpus"], {}, *EVER),
        ):
            with pytest.raises(StoreUnavailable, match=r"nowhere.*store setup"):
                call()
        assert "store setup" in environment.health().text
        environment.close()


def test_a_type_conflict_is_refused_for_good_and_says_so(make_influx_place: MakePlace) -> None:
    for way, stored in (("influxd", 1), ("influxdb2_rules", 1), ("influxdb3_rules", 0)):
        place = make_influx_place(way)
        store = place.open()
        wrong = b'node,node=a gpus="eight",row=1i %d' % T0
        store.connection.write(place.names[0], wrong)  # somebody else wrote text there
        good = Point("node", {"node": "b"}, T0 + 1, {"power_sum_w": 5.0})
        with pytest.raises(StoreRejected):
            store.write([good, NODE])
        # 1.x and 2.x keep the good line, 3 keeps nothing: writing it again alone is right on all.
        assert len(store.raw("node", ["power_sum_w"], {"node": "b"}, *EVER)) == stored
        store.write([good])
        assert len(store.raw("node", ["power_sum_w"], {"node": "b"}, *EVER)) == 1


@pytest.mark.parametrize("way", ["influxd", "influxd_through_nginx", "influxdb2_rules", "influxdb3_rules"])
def test_a_line_that_does_not_parse_is_refused_for_good(make_influx_place: MakePlace, way: str) -> None:
    place = make_influx_place(way)
    store = place.open()
    with pytest.raises(StoreRejected):
        store.connection.write(
            place.names[0], b"node,node=a gpus=8i,row=1i 5\nnode,node=b gpus=NaN 5\nnode,node=c gpus=8i,row=1i 5"
        )
    # By version: 1.x stores the good lines of the batch, 2.x and 3 nothing.
    assert len(store.raw("node", ["gpus"], {}, *EVER)) == (2 if way.startswith("influxd_") or way == "influxd" else 0)


def test_a_range_in_too_many_files_is_read_in_parts(make_influx_place: MakePlace) -> None:
    place = make_influx_place("influxdb3_rules")
    fake, store = place.server, place.open()
    assert isinstance(fake, FakeInflux)
    hours = 1000
    store.write([step(number, T0 + number * 3600 * SECOND) for number in range(hours)])
    store.write([Point("node", {"node": f"n{k}"}, T0 + (k * 500) * 3600 * SECOND, {"gpus": k}) for k in range(3)])
    refused = fake.refused_files
    assert store.raw("train", ["step"], {"run": "r"}, *EVER)["step"].to_list() == list(range(hours))
    assert fake.refused_files > refused
    newest = store.raw("train", ["step"], {}, *EVER, limit=3, newest_first=True)
    assert newest["step"].to_list() == [999, 998, 997]
    for by in ("step", "time_ns"):
        frame = store.buckets("train", ["loss"], {}, *EVER, 100, by)
        assert frame["n"].sum() == hours and len(frame) <= 102
    assert store.time_of_step("r", 1, 17) == T0 + 17 * 3600 * SECOND
    assert store.latest("node", ["gpus"], {}, 3000 * 3600 * SECOND, T0 + 1001 * 3600 * SECOND)["gpus"].to_list() == [0, 1, 2]
    assert store.tag_values("node", "node", 3000 * 3600 * SECOND, T0 + 1001 * 3600 * SECOND) == ["n0", "n1", "n2"]
    other = place.open()
    other.write([step(number, T0 + (number + 5) * 3600 * SECOND) for number in range(10, 20)])  # read again at other times
    assert len(other.raw("train", ["step"], {}, *EVER)) == hours


def test_an_old_version_is_written_to_by_write_and_a_new_one_by_the_clients_own_path(
    influx_place: InfluxPlace, influxdb2_rules: FakeInflux, make_influx_place: MakePlace
) -> None:
    assert not flavour_of("1.6.7~rc0").has_v2_write and flavour_of("1.8.10").has_v2_write
    assert [flavour_of(text).major for text in ("v2.7.11", "3.2.0", "1.12.1", "", "weird")] == [2, 3, 1, 2, 2]
    influx_place.open().write([NODE])
    place = make_influx_place("influxdb2_rules")
    influxdb2_rules.seen_paths.clear()
    place.open().write([NODE])
    assert "/api/v2/write" in influxdb2_rules.seen_paths and "/write" not in influxdb2_rules.seen_paths


def test_what_is_written_packed_arrives_as_it_was(make_influx_place: MakePlace, influxdb2_rules: FakeInflux) -> None:
    place = make_influx_place("influxdb2_rules")
    settings = InfluxdbSettings(
        token_file=str(place.token_file), database=place.names[0], database_long=place.names[1], compress=True
    )
    store = InfluxStore(influxdb2_rules.url, settings, ManualClock())
    store.write([NODE])
    assert store.raw("node", ["gpus"], {}, *EVER)["gpus"].to_list() == [8]
    store.close()


def test_a_store_opened_for_reading_writes_and_deletes_nothing(influx_place: InfluxPlace) -> None:
    reader = influx_place.open(read_only=True)
    for call in (lambda: reader.write([NODE]), lambda: reader.delete_before("node", T0)):
        with pytest.raises(StoreError, match="reading only"):
            call()


def test_more_extra_metrics_than_a_table_can_hold_are_dropped_counted_and_shown(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    for begin in (0, 80):
        extra = {f"metric_{number}": 1.0 for number in range(begin, begin + 60)}
        store.write([Point("train", {"run": "r", "attempt": "1"}, T0 + begin, {"step": begin, "nonfinite": 0, **extra})])
    health = store.health()
    assert health.dropped == 20 and "metric_1" in health.text
    assert len(store.stored_fields("train")) == len(set(store.stored_fields("train")))
    assert "metric_99" in store.stored_fields("train") and "metric_139" not in store.stored_fields("train")
