"""Structure of a zip file as torch writes it: end record, central directory, and every local header inside the file.

Own reader instead of ``zipfile``: nothing is decompressed (so no zip bomb), sizes are bounded before anything is read, and
bytes after the end record or members on top of each other are faults, where ``zipfile`` is lenient.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.checkpoints.files import Reader, printable

MAX_DIRECTORY_BYTES = 32 * 1024 * 1024
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX32 = 0xFFFFFFFF
#: Bytes of the zip64 end record that its own length leaves out.
_BEFORE_LENGTH64 = 12
STORED = 0
_DEFLATED = 8
#: Flags that miniz 3.0.2 (``mz_zip_reader_read_central_dir``, ``mz_zip_file_stat_internal``) refuses: encrypted in three ways; a patch.
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_PATCH = 0x0020
#: Bit of the external attributes; torch writes none at all.
_IS_DIRECTORY = 0x10
_SPLIT = "it claims to be one part of a split zip archive"


class BadZip(Exception):
    """The file breaks a rule of the zip format. The text says which."""


class ZipTooLarge(Exception):
    """The directory is larger than what is read here: nothing is wrong, nothing is proven."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: ``offset`` of its data in the file, sizes in bytes."""

    name: str
    method: int
    crc32: int
    compressed_bytes: int
    bytes: int
    offset: int


def members(reader: Reader) -> Mapping[str, Member]:
    """All members by name, checked; raises ``BadZip``, ``ZipTooLarge`` (or ``Unreadable`` from the reader)."""
    count, directory_bytes, directory_offset = _end_record(reader)
    if directory_bytes > MAX_DIRECTORY_BYTES:
        raise ZipTooLarge(
            f"its zip directory of {directory_bytes} bytes is longer than what is read here ({MAX_DIRECTORY_BYTES})"
        )
    raw = reader.read(directory_offset, directory_bytes)
    found: dict[str, Member] = {}
    lowered: set[str] = set()
    spans: list[tuple[int, int, str]] = []
    position = 0
    for _ in range(count):
        position, name, member, header_offset = _central(raw, position)
        # miniz, which torch reads with, takes names that differ in case for the same one. (Code of TorchScript is never read here.)
        if name in found or (name.lower() in lowered and "/code/" not in name.lower()):
            raise BadZip(f"its zip directory names {printable(name)} twice")
        lowered.add(name.lower())
        checked = _with_data_offset(reader, member, header_offset, directory_offset)
        found[name] = checked
        spans.append((header_offset, checked.offset + checked.compressed_bytes, name))
    if position != len(raw):
        raise BadZip(f"its zip directory holds {len(raw) - position} bytes too many")
    end = 0
    for header_offset, member_end, name in sorted(spans):
        if header_offset < end:
            raise BadZip(f"zip member {printable(name)} lies on top of another")
        end = member_end
    return found


def _end_record(reader: Reader) -> tuple[int, int, int]:
    """(members, directory bytes, directory offset)"""
    tail_offset = max(0, reader.size - _END.size - 0xFFFF)
    tail = reader.read(tail_offset, reader.size - tail_offset)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise BadZip("truncated: it has no zip end record (end-of-central-directory)")
    _, disk, directory_disk, here, count, directory_bytes, directory_offset, comment = _END.unpack_from(tail, at)
    end_offset = tail_offset + at
    if end_offset + _END.size + comment != reader.size:
        raise BadZip("bytes follow its zip end record, or its comment is cut short")
    if disk or directory_disk or here != count:
        raise BadZip(_SPLIT)
    directory_end = end_offset
    if _MAX32 in (directory_bytes, directory_offset) or count == 0xFFFF or _has_locator(reader, end_offset):
        count, directory_bytes, directory_offset, directory_end = _end_record64(reader, end_offset)
    if directory_offset + directory_bytes != directory_end:
        raise BadZip("its zip directory is not where the end record says")
    return count, directory_bytes, directory_offset


def _has_locator(reader: Reader, end_offset: int) -> bool:
    return end_offset >= _LOCATOR64.size and reader.read(end_offset - _LOCATOR64.size, 4) == b"PK\x06\x07"


def _end_record64(reader: Reader, end_offset: int) -> tuple[int, int, int, int]:
    if not _has_locator(reader, end_offset):
        raise BadZip("its zip64 locator is missing")
    locator_offset = end_offset - _LOCATOR64.size
    _, record_disk, offset64, disks = _LOCATOR64.unpack(reader.read(locator_offset, _LOCATOR64.size))
    raw = reader.read(offset64, _END64.size) if offset64 <= locator_offset else b""
    if len(raw) != _END64.size or not raw.startswith(b"PK\x06\x06"):
        raise BadZip("its zip64 end record is not where the locator says")
    _, following, _, _, disk, directory_disk, here, count, directory_bytes, directory_offset = _END64.unpack(raw)
    if record_disk or disks != 1 or disk or directory_disk or here != count:
        raise BadZip(_SPLIT)
    if offset64 + _BEFORE_LENGTH64 + following != locator_offset:
        raise BadZip("its zip64 end record has another length than it says")
    return count, directory_bytes, directory_offset, offset64


def _central(raw: bytes, position: int) -> tuple[int, str, Member, int]:
    if position + _CENTRAL.size > len(raw):
        raise BadZip("its zip directory is cut short")
    (
        signature, _, _, flags, method, _, _, crc32, compressed, size, name_length, extra_length, comment_length,
        disk, _, attributes, header_offset,
    ) = _CENTRAL.unpack_from(raw, position)  # fmt: skip
    if signature != b"PK\x01\x02":
        raise BadZip("its zip directory is damaged")
    if flags & _ENCRYPTED:
        raise BadZip("it holds an encrypted zip member")
    if flags & _PATCH or method not in (STORED, _DEFLATED):
        raise BadZip("it holds a zip member of a kind that torch cannot read")
    if disk:
        raise BadZip(_SPLIT)
    name_at = position + _CENTRAL.size
    extra_at = name_at + name_length
    following = extra_at + extra_length + comment_length
    if following > len(raw):
        raise BadZip("its zip directory is cut short")
    name = raw[name_at:extra_at].decode("utf-8", "surrogateescape")
    if (attributes & _IS_DIRECTORY and not name.endswith("/")) or (name.endswith("/") and size):
        # miniz, which torch reads with, then gives memory that nobody wrote, without an error.
        raise BadZip(f"its zip directory calls the file {printable(name)} a directory")
    if _MAX32 in (size, compressed, header_offset):
        size, compressed, header_offset = _zip64(raw[extra_at : extra_at + extra_length], size, compressed, header_offset)
    return following, name, Member(name, method, crc32, compressed, size, 0), header_offset


def _zip64(extra: bytes, *values: int) -> tuple[int, int, int]:
    """The 64-bit values stand in the extra field 1, in this order, only for those that are all ones in the record."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        body = extra[position + 4 : position + 4 + length]
        if kind == 1:
            result = []
            for value in values:
                if value == _MAX32 and len(body) >= 8:
                    value = int.from_bytes(body[:8], "little")
                    body = body[8:]
                result.append(value)
            return result[0], result[1], result[2]
        position += 4 + length
    return values[0], values[1], values[2]


def _with_data_offset(reader: Reader, member: Member, header_offset: int, directory_offset: int) -> Member:
    shown = printable(member.name)
    encoded = member.name.encode("utf-8", "surrogateescape")
    raw = reader.read(header_offset, _LOCAL.size + len(encoded)) if header_offset < directory_offset else b""
    if len(raw) != _LOCAL.size + len(encoded) or not raw.startswith(b"PK\x03\x04"):
        raise BadZip(f"zip member {shown} has no header where the directory says")
    (method,) = struct.unpack_from("<H", raw, 8)
    name_length, extra_length = struct.unpack_from("<2H", raw, 26)
    if name_length != len(encoded) or raw[_LOCAL.size :] != encoded:
        raise BadZip(f"zip member {shown} has another name in its own header")
    if method != member.method:
        raise BadZip(f"zip member {shown} is compressed in another way by its own header")
    offset = header_offset + _LOCAL.size + name_length + extra_length
    if offset + member.compressed_bytes > directory_offset:
        raise BadZip(f"zip member {shown} runs into the zip directory")
    if member.method == STORED and member.compressed_bytes != member.bytes:
        raise BadZip(f"zip member {shown} is stored with two different sizes")
    return Member(member.name, member.method, member.crc32, member.compressed_bytes, member.bytes, offset)
