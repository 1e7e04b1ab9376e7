"""Where a message may go: the address is looked up once, each result is checked, and exactly what was checked is connected to.

A name that answers with a public address when it is checked and with a private one when it is used (DNS rebinding) has no
second look-up to do so. Targets come from the settings only; this fence is for a settings file that was written carelessly.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_URL = 4_096
_CARRIES_IPV4 = tuple(
    ipaddress.IPv6Network(one)
    for one in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")  # RFC 6052, 8215 (its usual /96), 2765, 4291
)
#: Special ones that Python 3.11 takes for public: IETF protocol assignments (RFC 6890), old relays of 6to4 (RFC 7526).
_NOT_PUBLIC = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")
#: A metadata service beside those of link-local addresses (Oracle).
_METADATA = ipaddress.IPv4Address("192.0.0.192")
#: The resolver cannot be interrupted; look-ups that hang are left behind, but not without end.
_MAX_HANGING_LOOKUPS = 8
_hanging = threading.BoundedSemaphore(_MAX_HANGING_LOOKUPS)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int, float], Sequence[str]]


class AddressError(Exception):
    """The address cannot be used; the sentence holds no path, no query and no password. ``is_final``: not by waiting either."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address taken apart. path: with the query, as it stands in the request line. user: of a proxy, ``name:password``."""

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.scheme}://{self.host}:{self.port})"

    @property
    def authority(self) -> str:
        """What stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def endpoint(url: str, what: str, *, with_user: bool = False) -> Endpoint:
    """Take an address apart. ``what`` names it in the ``AddressError`` for one that is none."""
    if not url:
        raise AddressError(f"{what} is missing; give url or url_file.", is_final=True)
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressError(f"{what} holds characters that no address has, or more than {MAX_URL}.", is_final=True)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressError(f"{what} is no address.", is_final=True) from None  # the error repeats the address
    if parts.scheme not in ("https", "http") or not host:
        raise AddressError(f"{what} must begin with https:// and name a host.", is_final=True)
    user = parts.netloc.rpartition("@")[0]
    if user and not with_user:
        raise AddressError(f"{what} holds a user and a password, which are not sent; use a secret of the target.", is_final=True)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path, user)


def trouble(address: IpAddress, *, allow_private: bool) -> str:
    """Why this address is not connected to, "" when it is. Addresses that carry another one are judged by that as well."""
    for each in _judged(address):
        if each.is_link_local or each.is_multicast or each.is_unspecified or each == _METADATA:
            return "is a link-local, multicast or unspecified address, as cloud metadata services have"
        is_public = each.is_global and not any(each in network for network in _NOT_PUBLIC) and each not in _SITE_LOCAL
        if not is_public and not allow_private:
            return "is not public; set allow_private for a receiver in your own network"
    return ""


def _judged(address: IpAddress) -> list[IpAddress]:
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    if any(address in network for network in _CARRIES_IPV4) and not address.is_loopback and not address.is_unspecified:
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


def allowed_addresses(
    where: Endpoint, timeout_s: float, *, allow_private: bool, resolve: Resolve | None = None
) -> list[IpAddress]:
    """The addresses of ``where`` that may be connected to, at least one, in the resolver's order. Raises ``AddressError``."""
    found = (resolve or look_up)(where.host, where.port, timeout_s)
    addresses = []
    why = ""
    for text in found:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        reason = trouble(address, allow_private=allow_private)
        if not reason and where.scheme == "http" and not (address.is_loopback and allow_private):
            reason = (
                "is reached by http, which everybody on the way can read; use https (http is for this machine with allow_private)"
            )
        if reason:
            why = why or f"{address} {reason}"
        else:
            addresses.append(address)
    if not addresses:
        raise AddressError(f"{where.host} is not connected to: {why or 'it has no address'}.", is_final=bool(why))
    return addresses


def look_up(host: str, port: int, timeout_s: float) -> Sequence[str]:
    """The addresses of a host within ``timeout_s``. Raises ``AddressError`` when there are none or the resolver hangs."""
    try:
        return [str(ipaddress.ip_address(host.partition("%")[0]))]
    except ValueError:
        pass
    if not _hanging.acquire(blocking=False):
        raise AddressError(f"{host} is not looked up: {_MAX_HANGING_LOOKUPS} look-ups hang already.", is_final=False)
    answer: list[str] = []
    failure: list[str] = []

    def ask() -> None:
        try:
            answer.extend(str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failure.append(getattr(error, "strerror", None) or "it is no host name")
        finally:
            _hanging.release()

    thread = threading.Thread(target=ask, name=f"look-up of {host[:80]}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise AddressError(f"{host} was not looked up within {timeout_s:.0f} s.", is_final=False)
    if failure:
        raise AddressError(f"{host} has no address: {failure[0]}.", is_final=False)
    return answer
