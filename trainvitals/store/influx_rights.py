"""Who we are to an InfluxDB server. Secrets come from the environment or from files only, read at first use and again when refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainvitals.errors import StoreUnavailable

TOKEN_VARIABLE = "TRAINVITALS_INFLUXDB_TOKEN"  # noqa: S105 (the variable's name)
PASSWORD_VARIABLE = "TRAINVITALS_INFLUXDB_PASSWORD"  # noqa: S105


class Rights:
    """A token (2.x, 3, Cloud), or a user and a password (1.x with ``auth-enabled``), or nothing.

    The environment wins over the file. Raises ``StoreUnavailable`` while a file cannot be read: it may be put back.
    """

    def __init__(
        self, token_file: str = "", user: str = "", password_file: str = "", environ: Mapping[str, str] | None = None
    ) -> None:
        self._token_file, self._user, self._password_file = token_file, user, password_file
        self._environ = os.environ if environ is None else environ

    @property
    def is_basic(self) -> bool:
        """User and password rather than a token."""
        return bool(self._user)

    @property
    def words(self) -> str:
        """What is offered, for a sentence."""
        if self._user:
            return f"user {self._user!r}"
        if TOKEN_VARIABLE in self._environ:
            return f"the token in {TOKEN_VARIABLE}"
        return f"the token in {self._token_file}" if self._token_file else "a request without a token"

    @property
    def remedy(self) -> str:
        if self._user:
            return "check the user's rights and the password file."
        if TOKEN_VARIABLE in self._environ:
            return "an environment variable cannot be changed from outside: use [influxdb] token_file where tokens are rotated."
        if self._token_file:
            return "write a token with the right permissions into that file."
        return f"name one in [influxdb] token_file or in {TOKEN_VARIABLE}."

    def header_secret(self) -> str:
        """The token, ``user:password``, or nothing; read anew at each call of this."""
        if self._user:
            return f"{self._user}:{self._environ.get(PASSWORD_VARIABLE) or _read(self._password_file, 'password_file')}"
        token = (self._environ.get(TOKEN_VARIABLE) or "").strip() or _read(self._token_file, "token_file")
        if not (token.isascii() and token.isprintable()):
            # Sent, it would be refused by an exception that repeats it.
            raise StoreUnavailable(
                f"{self.words[0].upper()}{self.words[1:]} is no token: it holds line breaks or characters that no token has; "
                "write the token there and nothing else."
            )
        return token


def _read(path: str, key: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnavailable(f"[influxdb] {key} {path} cannot be read ({error}); put it back or name another file.") from error
