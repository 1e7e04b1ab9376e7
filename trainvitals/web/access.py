"""Who may reach the dashboard, and how it knows who they are: ``[login] mode`` in the settings.

Two doors: ``require_address`` refuses to start where the mode does not allow it, ``may_answer`` refuses single requests. In mode
``local`` that is everything that does not come from this machine under a local name (a proxy or a second socket could still bring it in; a
foreign Host name means DNS rebinding). In mode ``proxy`` only the listed proxies are answered, and only they name a person.
"""

from __future__ import annotations

import hmac
import ipaddress
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from trainvitals.access import Identity
from trainvitals.errors import SettingsError
from trainvitals.settings import Settings

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: What a proxy adds of its own: in mode ``local`` a sign that one stands in front, so that "from this machine" says nothing.
FORWARDING = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"x-forwarded-host"})
SECRET_HEADER = b"x-trainvitals-proxy"
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 4096
MAX_NAME = 200
#: Asked by the machine's own supervisor, in every mode.
HEALTH_PATH = "/healthz"
#: Programs post here with a token of their own, which no proxy and no login could give them; nothing else is served here.
TOKEN_PATH = "/api/alertmanager"  # noqa: S105 (a path)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Entry:
    """How people come in. hosts: names of the dashboard, lower case. secret: what a proxy proves itself with, empty = by address alone.
    base_path: below which the server serves its pages, "" = none."""

    mode: str = "local"
    networks: tuple[Network, ...] = ()
    identity_header: bytes = b""
    hosts: frozenset[str] = frozenset()
    secret: bytes = field(default=b"", repr=False)
    base_path: str = ""

    def is_at(self, path: str, ours: str) -> bool:
        """Whether a request is for one of our routes, which stand below the base path and without it."""
        base = self.base_path.strip("/")
        return path == ours or bool(base and path == f"/{base}{ours}")


LOCAL = Entry()


def entry_of(settings: Settings) -> Entry:
    """Raises ``SettingsError`` for a mode that lacks what makes it safe."""
    login = settings.login
    if login.mode == "local":
        return LOCAL
    where = f"{settings.path or 'settings'}, [login]"
    hosts = frozenset(name.lower() for name in (*login.hosts, urlsplit(settings.dashboard.public_url).hostname or "") if name)
    if not hosts:
        raise SettingsError(
            f"{where}: mode {login.mode!r} needs public_url under [dashboard]: the address under which people come."
        )
    if login.mode == "oidc":
        return Entry("oidc", hosts=hosts)
    if not login.proxy_addresses:
        raise SettingsError(
            f"{where}: mode 'proxy' needs proxy_addresses, for example [\"10.0.0.5\"]: only these may name a person."
        )
    header = login.identity_header.strip().lower()
    if not header or not header.isascii() or not all(letter.isalnum() or letter == "-" for letter in header):
        raise SettingsError(f"{where}: identity_header {login.identity_header[:60]!r} is no name of a header.")
    networks = tuple(_network(text, where) for text in login.proxy_addresses)
    secret = _secret(login.proxy_secret_file, where) if login.proxy_secret_file else b""
    return Entry("proxy", networks, header.encode(), hosts, secret)


def _network(text: str, where: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise SettingsError(f"{where}: proxy_addresses: {text[:60]!r} is no address or network ({error}).") from error


def _secret(path: str, where: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            secret = file.read(MAX_SECRET_BYTES + 1).strip()
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(f"{where}: proxy_secret_file {path!r} cannot be read: {error}.") from error
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        raise SettingsError(f"{where}: proxy_secret_file {path!r} must hold {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes.")
    return secret


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1 (also as a mapped IPv4 address) or ``localhost``."""
    text = address.strip().removeprefix("[").removesuffix("]")
    if text.lower() == "localhost":
        return True
    parsed = _parsed(text)
    return parsed is not None and bool(parsed.is_loopback)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(text.split("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def require_address(entry: Entry, address: str | None) -> None:
    """End the process (exit code 2) unless the mode allows to listen there: ``local`` on this machine's loopback address only."""
    if entry.mode == "local" and not (address and is_loopback(address)):
        _refuse(address)


def _refuse(address: str | None) -> NoReturn:
    where = f"on {address!r}" if address else "on every address (server.address is not set)"
    print(  # noqa: T201
        f"The dashboard was told to listen {where}. Without a login it listens on 127.0.0.1 only, because its pages can pause training. "
        "Start it with --server.address 127.0.0.1 and reach it through an SSH tunnel (ssh -L 8501:127.0.0.1:8501 HOST), or set mode to "
        "proxy or oidc under [login] in the settings.",
        file=sys.stderr,
        flush=True,
    )
    sys.exit(2)


def host_name(header: str) -> str:
    """Name in a Host header without its port, lower case, without brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].split("]")[0]
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdigit() else text


def may_answer(
    server: str | None, client: str | None, host: str, entry: Entry = LOCAL, headers: Headers = (), path: str = ""
) -> str:  # fmt: skip
    """Why a request must not be answered, as a sentence; "" when it may. None = the server does not know (a Unix socket).

    client: the peer of the connection itself, never what a header says. headers: names in lower case.
    """
    is_ours = (client is None or is_loopback(client)) and host_name(host) in LOCAL_NAMES
    if entry.mode == "local":
        return _why_not_local(server, client, host, headers)
    if entry.is_at(path, HEALTH_PATH) and is_ours:
        return ""
    if entry.is_at(path, TOKEN_PATH):
        return ""
    if entry.mode == "proxy":
        if not _is_proxy(client, entry):
            return "This dashboard answers its proxy only (proxy_addresses under [login] in its settings)."
        told = [value for name, value in headers if name == SECRET_HEADER]
        if entry.secret and not (len(told) == 1 and hmac.compare_digest(told[0], entry.secret)):
            return "This dashboard answers its proxy only: the secret in X-Trainvitals-Proxy is missing or wrong."
        if sum(name == entry.identity_header for name, _ in headers) > 1:
            return "This request names two people: the proxy must overwrite a visitor's own header."
    if host_name(host) not in entry.hosts:
        return "This dashboard answers under the names of its settings only (public_url under [dashboard], hosts under [login])."
    return ""


def _why_not_local(server: str | None, client: str | None, host: str, headers: Headers) -> str:
    if server is not None and not is_loopback(server):
        return "This dashboard answers on 127.0.0.1 only."
    if client is not None and not is_loopback(client):
        return "This dashboard answers requests from its own machine only; use an SSH tunnel."
    if host_name(host) not in LOCAL_NAMES:
        return "This dashboard answers under the names localhost, 127.0.0.1 and [::1] only."
    if any(name in FORWARDING for name, _ in headers):
        return "This dashboard answers no proxy: set mode to proxy under [login] in its settings."
    return ""


def _is_proxy(client: str | None, entry: Entry) -> bool:
    address = None if client is None else _parsed(client)
    return address is not None and any(address.version == network.version and address in network for network in entry.networks)


def named_by_proxy(header: str | None) -> Identity | None:
    """The person whom a proxy names, None for nobody. A name that could not stand in a list of operators is nobody's."""
    name = (header or "").strip()
    return Identity(name, is_proven=True) if name and len(name) <= MAX_NAME and name.isprintable() else None
