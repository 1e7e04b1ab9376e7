"""The secrets that sign what goes through the store: read from files or the environment, never from the settings themselves.

They are read at every use, so that changing one needs no restart. No sentence holds any part of a secret.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainvitals.errors import InputError

KEY_VARIABLE = "TRAINVITALS_REQUEST_KEY"
#: Shorter ones could be guessed: HMAC-SHA256 wants as many bytes as its hash has.
MIN_BYTES = 32
MAX_BYTES = 4096
MAX_KEYS = 8
HOW = "Make one with: openssl rand -hex 32"


def read_keys(key_files: Sequence[str | os.PathLike[str]], environ: Mapping[str, str] | None = None) -> tuple[bytes, ...]:
    """The keys, that of the environment first, then those of the files in their order. The first one signs.

    Raises ``InputError`` when there is none, one is too short, or a file can be read by everyone.
    """
    env = os.environ if environ is None else environ
    keys = [_checked(env[KEY_VARIABLE].encode("utf-8", "surrogateescape"), KEY_VARIABLE)] if env.get(KEY_VARIABLE) else []
    keys += [_checked(_read(Path(path)), str(path)) for path in key_files[:MAX_KEYS]]
    if not keys:
        raise InputError(
            f"There is no key for signed requests: name a file in [requests] key_files, or set {KEY_VARIABLE}. {HOW}"
        )
    return tuple(keys)


def _checked(secret: bytes, where: str) -> bytes:
    key = secret.strip()
    if len(key) < MIN_BYTES:
        raise InputError(f"The key in {where} has {len(key)} bytes; it needs at least {MIN_BYTES}. {HOW}")
    return key


def _read(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"The key file {path} of [requests] cannot be read: {error.strerror or error}.") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"The key file {path} of [requests] is not a regular file.")
        if found.st_mode & stat.S_IRWXO:
            raise InputError(f"Everyone may read or write the key file {path}; run: chmod o-rwx {path}")
        secret = os.read(handle, MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"The key file {path} of [requests] cannot be read: {error.strerror or error}.") from error
    finally:
        os.close(handle)
    if len(secret) > MAX_BYTES:
        raise InputError(
            f"The key file {path} of [requests] is larger than {MAX_BYTES} bytes; it holds one secret and nothing else."
        )
    return secret
