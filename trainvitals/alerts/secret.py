"""Secrets of targets: read when they are needed, never shown. They stand in files or in the environment."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

from trainvitals.errors import SettingsError
from trainvitals.masking import MASK, mask_text
from trainvitals.settings import Settings, target_variable

MAX_SECRET_BYTES = 16_384
#: Shorter parts of a secret address are no secrets ("v1", "hook"), and masking them would make errors unreadable.
_SHORTEST_PART = 8


class Secret:
    """A text that no ``repr``, ``str``, format or pickle shows; ``reveal`` is the only way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Put it into nothing but what is sent."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a message to one target needs: the address, and its secrets, the newest first."""

    url: Secret
    secrets: tuple[Secret, ...] = ()
    proxy: Secret = Secret("")  # noqa: RUF009 (immutable)

    def mask(self, text: str) -> str:
        """``text`` without any of these, and without what has the shape of a token."""
        forms = {form for part in self._parts() for form in _forms(part)}
        for form in sorted(forms, key=len, reverse=True):
            text = re.sub(re.escape(form), MASK, text, flags=re.IGNORECASE)
        return mask_text(text)

    def _parts(self) -> Iterable[str]:
        for secret in (*self.secrets, self.url, self.proxy):
            whole = secret.reveal()
            if whole:
                yield whole
        for secret in (self.url, self.proxy):
            _, _, behind = secret.reveal().partition("://")
            yield from (part for part in _split(behind.partition("/")[2]) if len(part) >= _SHORTEST_PART)
            user, at, _ = behind.partition("/")[0].rpartition("@")
            if at:
                yield from (part for part in user.split(":") if part)


def _forms(part: str) -> Iterable[str]:
    """As a receiver may say it: quoted for an address, in part or in whole, in JSON, or twice of them."""
    plain = unquote(part)
    for form in {part, plain}:
        wholly = "".join(
            c if c.isalnum() and c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "replace")) for c in form
        )
        quoted = {
            form,
            quote(form, errors="replace"),
            quote(form, safe="", errors="replace"),
            wholly,
            quote_plus(form, errors="replace"),
        }
        yield from quoted | {quote(one, safe="", errors="replace") for one in quoted}
        yield from (
            json.dumps(form)[1:-1],
            json.dumps(form, ensure_ascii=False)[1:-1],
            form.replace("/", "\\/"),
            html.escape(form),
        )


def _split(text: str) -> list[str]:
    for mark in "?&=#":
        text = text.replace(mark, "/")
    return text.split("/")


def credentials(settings: Settings, name: str, environ: Mapping[str, str] | None = None) -> Credentials:
    """Those of one target, read now, so that a replaced file counts from the next message on.

    The environment wins over files. Raises ``SettingsError`` that says which file or setting is wrong, without its content.
    """
    environment = os.environ if environ is None else environ
    target = settings.alert_targets[name]
    url = environment.get(target_variable(name, "url"), "").strip() or target.url
    if not url and target.url_file:
        url = read_secret(settings.resolve(target.url_file), f"url_file of the target {name!r}")
    listed = environment.get(target_variable(name, "secret"), "")
    if listed:
        secrets = tuple(Secret(part.strip()) for part in listed.split(",") if part.strip())
    else:
        secrets = tuple(
            Secret(read_secret(settings.resolve(file), f"secret file of the target {name!r}")) for file in target.secret_files
        )
    return Credentials(Secret(url), secrets, Secret(target.proxy))


def read_secret(path: Path, what: str) -> str:
    """One line of text. Raises ``SettingsError`` naming the file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"The {what}, {path}, cannot be read: {error.strerror or error}.") from error
    text = content.decode("utf-8", "replace").strip()
    if len(content) > MAX_SECRET_BYTES or not text or not text.isprintable():
        raise SettingsError(f"The {what}, {path}, must hold one line of text and nothing else.")
    return text
