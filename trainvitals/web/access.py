"""Who may reach the dashboard: this machine only. There is no login yet, and the pages hold a pause button.

Two doors: ``require_loopback`` refuses to start on any other address, ``may_answer`` refuses single requests (a proxy or a
second socket could still bring them in; a foreign Host name means DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import sys
from typing import NoReturn

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1 (also as a mapped IPv4 address) or ``localhost``."""
    text = address.strip().removeprefix("[").removesuffix("]")
    if text.lower() == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(text.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def require_loopback(address: str | None) -> None:
    """End the process (exit code 2) unless the server is told to listen on this machine's loopback address."""
    if address and is_loopback(address):
        return
    _refuse(address)


def _refuse(address: str | None) -> NoReturn:
    where = f"on {address!r}" if address else "on every address (server.address is not set)"
    print(  # noqa: T201
        f"The dashboard was told to listen {where}. It has no login yet and can pause training, so it listens on 127.0.0.1 only. "
        "Start it with --server.address 127.0.0.1 and reach it through an SSH tunnel: ssh -L 8501:127.0.0.1:8501 HOST.",
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


def may_answer(server: str | None, client: str | None, host: str) -> str:
    """Why a request must not be answered, as a sentence; "" when it may. None = the server does not know (a Unix socket)."""
    if server is not None and not is_loopback(server):
        return "This dashboard answers on 127.0.0.1 only."
    if client is not None and not is_loopback(client):
        return "This dashboard answers requests from its own machine only; use an SSH tunnel."
    if host_name(host) not in LOCAL_NAMES:
        return "This dashboard answers under the names localhost, 127.0.0.1 and [::1] only."
    return ""
