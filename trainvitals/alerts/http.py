"""The one door to the receivers of messages: one POST, one deadline for all of it, no redirects, no proxy of the environment.

Nothing that leaves this file as text holds the path of an address, a header or a body that was sent.
"""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from trainvitals import __version__
from trainvitals.alerts.address import AddressError, Endpoint, Resolve, allowed_addresses, endpoint, look_up

#: From the look-up of the name to the last byte of the answer.
TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 2_048
_MAX_PROXY_ANSWER_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``error`` is "" when there was an answer; else ``status`` is 0 and it says what failed.

    is_final: no use in trying again. body: at most 2 KB. location: a redirect that was not followed is not kept.
    """

    status: int = 0
    body: bytes = b""
    retry_after: str = ""
    error: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """How a target is reached. ``resolve`` is for tests."""

    allow_private: bool = False
    proxy: str = field(default="", repr=False)
    ca_file: str = ""
    timeout_s: float = TIMEOUT_S
    resolve: Resolve | None = field(default=None, repr=False)


def post(url: str, body: bytes, headers: Mapping[str, str], route: Route, method: str = "POST") -> Answer:
    """Send ``body`` and return what came back. Never raises for what an address, a network or a receiver does."""
    deadline = _Deadline(route.timeout_s)
    try:
        where = endpoint(url, "The address")
        with _connect(where, route, deadline) as sock:
            return _exchange(sock, where, body, headers, method, deadline)
    except AddressError as error:
        return Answer(error=str(error), is_final=error.is_final)
    except ssl.SSLCertVerificationError as error:
        return Answer(error=f"the receiver's certificate is not accepted: {error.verify_message}")
    except ssl.SSLError as error:
        return Answer(error=f"TLS failed: {error.reason or 'the connection was closed'}")
    except TimeoutError:
        return Answer(error=f"no answer within {route.timeout_s:.0f} s")
    except http.client.HTTPException as error:
        return Answer(error=f"the answer is no HTTP ({type(error).__name__})")
    except OSError as error:
        return Answer(error=f"no connection: {error.strerror or type(error).__name__}")
    except ValueError:
        return Answer(error="a header or the address cannot be sent", is_final=True)  # the error repeats it


class _Deadline:
    """Each wait gets what is left of the whole, so that a receiver that sends a byte a second is no exception."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds

    def left_s(self) -> float:
        left = self._until_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Socket:
    """What ``http.client`` needs of a socket, with the deadline in each wait."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left_s())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline))

    def close(self) -> None:
        """The opener closes it."""


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._sock.settimeout(self._deadline.left_s())
        return self._sock.recv_into(buffer)


def _connect(where: Endpoint, route: Route, deadline: _Deadline) -> socket.socket:
    """A connected socket, with TLS for https."""
    sock = _through_proxy(where, route, deadline) if route.proxy else _direct(where, route, deadline)
    if where.scheme != "https":
        return sock
    try:
        context = ssl.create_default_context(cafile=route.ca_file or None)
    except OSError as error:
        sock.close()
        raise AddressError(
            f"ca_file {route.ca_file} cannot be read: {error.strerror or 'no certificates'}.", is_final=True
        ) from None
    try:
        sock.settimeout(deadline.left_s())
        return context.wrap_socket(sock, server_hostname=where.host)
    except BaseException:
        sock.close()
        raise


def _direct(where: Endpoint, route: Route, deadline: _Deadline) -> socket.socket:
    addresses = allowed_addresses(where, deadline.left_s(), allow_private=route.allow_private, resolve=route.resolve)
    return _open([str(address) for address in addresses], where.port, deadline)


def _open(addresses: list[str], port: int, deadline: _Deadline) -> socket.socket:
    last: OSError = OSError("it has no address")
    for number, address in enumerate(addresses):
        # One address that swallows packets must not eat the time of the next.
        timeout_s = deadline.left_s() / (len(addresses) - number)
        try:
            return socket.create_connection((address, port), timeout=timeout_s)
        except OSError as error:
            last = error
    raise last


def _through_proxy(where: Endpoint, route: Route, deadline: _Deadline) -> socket.socket:
    """A tunnel (CONNECT). The proxy looks the name up, so what it may reach is its own rule; an address given as such is checked."""
    if where.scheme != "https":
        raise AddressError("A proxy is used for https only.", is_final=True)
    proxy = endpoint(route.proxy, "The proxy", with_user=True)
    if proxy.scheme != "http":
        raise AddressError("The proxy must begin with http://; what goes through it is encrypted anyway.", is_final=True)
    if _is_literal(where.host):
        allowed_addresses(where, deadline.left_s(), allow_private=route.allow_private)
    sock = _open(list((route.resolve or look_up)(proxy.host, proxy.port, deadline.left_s())), proxy.port, deadline)
    try:
        host = f"[{where.host}]" if ":" in where.host else where.host
        lines = [f"CONNECT {host}:{where.port} HTTP/1.1", f"Host: {host}:{where.port}"]
        if proxy.user:
            token = base64.b64encode(unquote(proxy.user).encode("utf-8")).decode("ascii")
            lines.append(f"Proxy-Authorization: Basic {token}")
        wrapped = _Socket(sock, deadline)
        wrapped.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
        # Byte by byte: what follows the empty line belongs to TLS.
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            sock.settimeout(deadline.left_s())
            byte = sock.recv(1)
            if not byte or len(answer) >= _MAX_PROXY_ANSWER_BYTES:
                raise AddressError("The proxy closed the connection.", is_final=False)
            answer += byte
        status = answer.split(b" ", 2)[1:2]
        if status != [b"200"]:
            shown = status[0][:3].decode("ascii", "replace") if status else "nothing"
            raise AddressError(f"The proxy refused the connection ({shown}).", is_final=False)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _exchange(
    sock: socket.socket, where: Endpoint, body: bytes, headers: Mapping[str, str], method: str, deadline: _Deadline
) -> Answer:
    connection = http.client.HTTPConnection(where.host, where.port)
    connection.sock = _Socket(sock, deadline)
    sent = {
        "Host": where.authority,
        "User-Agent": f"trainvitals/{__version__}",
        "Accept": "*/*",
        "Connection": "close",
        **headers,
    }
    connection.putrequest(method, where.path, skip_host=True, skip_accept_encoding=True)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    retry_after = response.getheader("Retry-After") or ""
    try:
        kept = response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException):
        # The status says what became of the message; a body that breaks off says nothing against it.
        kept = b""
    return Answer(response.status, kept, retry_after[:64])
