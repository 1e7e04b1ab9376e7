"""Structure of a plain tar file (a ``.nemo`` file is one): every header's checksum, every member inside the file, the end block.

Own reader instead of ``tarfile``: nothing is extracted, no name is used as a path, and what is read is bounded by the number of
members (POSIX ustar; GNU and pax members are skipped over by their size like any other).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.checkpoints.files import Reader, printable

BLOCK_BYTES = 512
MAX_MEMBERS = 100_000
_GZIP = b"\x1f\x8b"


class BadTar(Exception):
    """The file breaks a rule of the format. The text says which."""


@dataclass(frozen=True, slots=True)
class Tar:
    """names: of the members, at most 1,000; ``unproven`` says what was not checked."""

    names: tuple[str, ...] = ()
    unproven: str = ""


def check(reader: Reader) -> Tar:
    """Check one file; raises ``BadTar`` (or ``Unreadable`` from the reader)."""
    if reader.read(0, 2) == _GZIP:
        return Tar(unproven="it is compressed with gzip, so its structure cannot be proven without unpacking it")
    names: list[str] = []
    position = 0
    for _ in range(MAX_MEMBERS):
        header = reader.read(position, BLOCK_BYTES)
        if len(header) < BLOCK_BYTES:
            raise BadTar("truncated: it ends without the empty block that closes a tar file")
        if not header.strip(b"\0"):
            return Tar(tuple(names))
        size = _size(header)
        name = header[:100].rstrip(b"\0").decode("utf-8", "backslashreplace")
        position += BLOCK_BYTES + -(-size // BLOCK_BYTES) * BLOCK_BYTES
        if position > reader.size:
            raise BadTar(f"truncated: its member {printable(name)} needs {position - reader.size} bytes more")
        if len(names) < 1000:
            names.append(name)
    return Tar(tuple(names), f"it has more than {MAX_MEMBERS} members")


def _size(header: bytes) -> int:
    told = _octal(header[148:156])
    if told != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise BadTar("a header does not match its checksum: damaged, or no tar file")
    field = header[124:136]
    # GNU and star write sizes of 8 GiB and more in base 256.
    size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
    if size is None or size >= 1 << 63:
        raise BadTar("a header tells no valid size")
    return size


def _octal(field: bytes) -> int | None:
    text = field.strip(b" \0")
    if not text or any(byte not in b"01234567" for byte in text):
        return None
    return int(text, 8)
