"""The door to the receivers: where it connects, how long it waits, what it never follows and never tells."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from receivers import Receiver, Reply

from trainvitals.alerts import address
from trainvitals.alerts.http import MAX_ANSWER_BYTES, Route, post

HERE = Route(allow_private=True)


@contextmanager
def raw_server(serve, tls=None):
    """A server that does with each connection what ``serve(connection)`` does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection):
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection:
                serve(connection)
        except OSError:
            pass  # the client went away, which is what several tests want

    threading.Thread(target=run, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def read_request(connection):
    """All of it: a server that closes with unread bytes makes the system throw away what it has answered."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536) or b"\r\n\r\n"
    length = int(data.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
    while len(data.partition(b"\r\n\r\n")[2]) < length:
        data += connection.recv(65_536)
    return data


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(file of certificate, file of key) for localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,DNS:receiver.example", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize(
    ("host", "is_allowed_privately"),
    [
        ("127.0.0.1", True), ("10.0.0.1", True), ("172.16.3.4", True), ("192.168.1.1", True), ("100.64.0.1", True), ("[::1]", True),
        ("[fd00::1]", True), ("[::ffff:10.0.0.1]", True), ("[64:ff9b::a00:1]", True), ("169.254.169.254", False), ("[fe80::1]", False),
        ("[::ffff:169.254.169.254]", False), ("[64:ff9b::a9fe:a9fe]", False), ("192.0.0.192", False), ("192.0.0.9", True), ("[64:ff9b:1::7f00:1]", True), ("[64:ff9b:1::a9fe:a9fe]", False), ("[::127.0.0.1]", True),
        ("[::ffff:0:127.0.0.1]", True), ("[::ffff:0:169.254.169.254]", False), ("[fec0::1]", True), ("192.88.99.1", True), ("224.0.0.1", False), ("0.0.0.0", False), ("[::]", False),
    ],
)  # fmt: skip
def test_private_addresses_need_a_word_and_those_of_metadata_services_are_never_used(host, is_allowed_privately):
    where = address.endpoint(f"https://{host}/", "It")
    with pytest.raises(address.AddressError) as refused:
        address.allowed_addresses(where, 1.0, allow_private=False)
    assert refused.value.is_final
    if is_allowed_privately:
        assert address.allowed_addresses(where, 1.0, allow_private=True)
    else:
        with pytest.raises(address.AddressError, match="metadata"):
            address.allowed_addresses(where, 1.0, allow_private=True)


@pytest.mark.parametrize("host", ["8.8.8.8", "[2001:4860:4860::8888]", "[::ffff:8.8.8.8]"])
def test_a_public_address_is_used(host):
    assert address.allowed_addresses(address.endpoint(f"https://{host}/", "It"), 1.0, allow_private=False)


@pytest.mark.parametrize("host", ["0x7f000001", "2130706433", "127.1", "0177.0.0.1"])
def test_an_odd_spelling_of_a_private_address_is_that_address(host):
    answer = post(f"https://{host}/", b"", {}, Route())
    assert answer.is_final and "not public" in answer.error


def test_a_name_that_leads_to_the_metadata_service_is_refused_before_anything_is_sent():
    with Receiver() as receiver:
        answer = post(f"https://metadata.example:{receiver.port}/", b"x", {}, Route(resolve=lambda *_: ["169.254.169.254"]))
    assert answer.is_final and "169.254.169.254" in answer.error and not receiver.received


def test_a_name_is_looked_up_once_and_exactly_what_was_checked_is_connected_to():
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    with Receiver() as receiver:
        answer = post(
            f"http://rebinding.example:{receiver.port}/x", b"", {}, Route(allow_private=True, resolve=lambda *_: next(answers))
        )
        assert answer.status == 200 and len(receiver.received) == 1
        assert receiver.received[0].headers["Host"] == f"rebinding.example:{receiver.port}"


def test_of_several_addresses_those_that_are_not_allowed_are_left_out():
    with Receiver() as receiver:
        route = Route(allow_private=True, resolve=lambda *_: ["169.254.169.254", "127.0.0.1"])
        assert post(f"http://two.example:{receiver.port}/", b"", {}, route).status == 200


def test_http_is_for_this_machine_only():
    answer = post("http://plain.example/", b"", {}, Route(allow_private=True, resolve=lambda *_: ["93.184.215.14"]))
    assert answer.is_final and "use https" in answer.error
    with Receiver() as receiver:
        assert "not public" in post(receiver.url, b"", {}, Route()).error


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x/", "file:///etc/passwd", "https://", "https://x y/", "https://ü/", "https://x/\r\nHost: y", "https://x:99999/",
     "https://[::1/", "https://user:pass-word-1@x/", "https://x/" + "a" * 5_000, "//x/", "https://a..b/", "https://" + "a" * 300 + "/"],
)  # fmt: skip
def test_what_is_no_address_is_a_sentence_that_does_not_repeat_it(url):
    answer = post(url, b"", {}, Route(resolve=None))
    assert answer.error and "pass-word-1" not in answer.error and "\r" not in answer.error


def test_a_redirect_is_not_followed():
    with Receiver() as elsewhere, Receiver(lambda received: Reply(302, headers={"Location": elsewhere.url})) as receiver:
        assert post(receiver.url, b"x", {}, HERE).status == 302
        assert not elsewhere.received


def test_the_proxy_of_the_environment_is_not_used(monkeypatch):
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert post(receiver.url, b"x", {}, HERE).status == 200
        assert not proxy.received


def test_only_two_kilobytes_of_an_answer_are_kept():
    with Receiver(lambda received: Reply(500, b"y" * 1_000_000)) as receiver:
        answer = post(receiver.url, b"x", {}, HERE)
    assert answer.status == 500 and len(answer.body) == MAX_ANSWER_BYTES


def test_a_receiver_that_sends_a_byte_now_and_then_is_left_at_the_deadline():
    def drip(connection):
        connection.recv(65_536)
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10_000:
            connection.sendall(bytes([byte]))
            threading.Event().wait(0.05)

    with raw_server(drip) as port:
        started = time.monotonic()
        answer = post(f"http://127.0.0.1:{port}/", b"x", {}, Route(allow_private=True, timeout_s=1.0))
        took_s = time.monotonic() - started
    assert answer.error == "no answer within 1 s" and took_s < 30


def test_a_receiver_that_never_answers_is_left_at_the_deadline():
    with raw_server(lambda connection: connection.recv(1) and threading.Event().wait(20)) as port:
        assert (
            post(f"http://127.0.0.1:{port}/", b"x", {}, Route(allow_private=True, timeout_s=0.5)).error == "no answer within 0 s"
        )


@pytest.mark.parametrize(
    "said", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"\0" * 100, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200]
)
def test_an_answer_that_is_no_http_is_a_sentence(said):
    def serve(connection):
        read_request(connection)
        connection.sendall(said)

    with raw_server(serve) as port:
        answer = post(f"http://127.0.0.1:{port}/", b"x", {}, HERE)
    assert answer.error and not answer.is_final


def test_a_body_that_breaks_off_does_not_undo_its_status():
    def serve(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")

    with raw_server(serve) as port:
        assert post(f"http://127.0.0.1:{port}/", b"x", {}, HERE).status == 200


def test_nobody_listening_is_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = post(f"http://127.0.0.1:{port}/", b"x", {}, HERE)
    assert answer.error.startswith("no connection") and not answer.is_final


def test_a_resolver_that_hangs_is_left_at_the_deadline(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: release.wait(60) and [])
    answer = post("https://hangs.example/", b"", {}, Route(timeout_s=0.3))
    release.set()
    assert "not looked up" in answer.error and not answer.is_final


def test_a_certificate_of_an_own_authority_is_accepted_by_its_file_and_by_nothing_else(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)

    def serve(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def route(**more):
        return Route(allow_private=True, resolve=lambda *_: ["127.0.0.1"], **more)

    with raw_server(serve, tls) as port:
        right = post(f"https://receiver.example:{port}/", b"x", {}, route(ca_file=str(certificate[0])))
        assert right.body == b"ok", right
        assert "certificate is not accepted" in post(f"https://receiver.example:{port}/", b"x", {}, route()).error
        wrong = post(f"https://other.example:{port}/", b"x", {}, route(ca_file=str(certificate[0])))
        assert "certificate is not accepted" in wrong.error
        missing = post(f"https://receiver.example:{port}/", b"x", {}, route(ca_file="/nowhere/ca.pem"))
        assert missing.is_final and "/nowhere/ca.pem" in missing.error


def test_through_a_proxy_the_tunnel_carries_tls_to_the_receiver_and_the_password_to_the_proxy_only(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    asked = []

    def receiver(connection):
        asked.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with raw_server(receiver, tls) as port:

        def proxy(connection):
            asked.append(connection.recv(65_536))
            with socket.create_connection(("127.0.0.1", port)) as onward:
                connection.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
                back = threading.Thread(target=pump, args=(onward, connection), daemon=True)
                back.start()
                pump(connection, onward)
                back.join(10)

        def pump(source, sink):
            try:
                while data := source.recv(65_536):
                    sink.sendall(data)
            except OSError:
                pass

        with raw_server(proxy) as proxy_port:
            route = Route(proxy=f"http://user:p%40ss@127.0.0.1:{proxy_port}", ca_file=str(certificate[0]), timeout_s=10)
            answer = post("https://receiver.example/hook", b"body", {}, route)
    assert answer.body == b"ok", answer
    assert asked[0].startswith(b"CONNECT receiver.example:443 HTTP/1.1\r\n") and b"Basic dXNlcjpwQHNz" in asked[0]
    assert asked[1].startswith(b"POST /hook HTTP/1.1\r\n") and b"Basic" not in asked[1]


def test_through_a_proxy_an_address_in_numbers_is_checked_all_the_same():
    answer = post("https://169.254.169.254/", b"", {}, Route(proxy="http://127.0.0.1:1", allow_private=True))
    assert answer.is_final and "metadata" in answer.error
    assert post("http://127.0.0.1/", b"", {}, Route(proxy="http://127.0.0.1:1", allow_private=True)).is_final


def test_a_proxy_that_refuses_is_named_as_such():
    with Receiver(lambda received: Reply(200)) as not_a_proxy:  # answers 501 to CONNECT
        answer = post("https://x.example/", b"", {}, Route(proxy=not_a_proxy.url))
    assert "The proxy refused the connection (501)" in answer.error
