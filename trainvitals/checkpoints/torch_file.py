"""Structure of one file written by ``torch.save``: the zip, its pickle's opcodes, and a tensor storage for each that it names.

Like ``torch.load`` it cannot see a flipped bit in tensor data; that is what the content level is for.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from trainvitals.checkpoints import pickle_scan, zip_directory
from trainvitals.checkpoints.files import Reader, printable


class BadTorchFile(Exception):
    """The file is damaged. The text says how."""


@dataclass
class TorchFile:
    """``is_legacy``: written by the format before torch 1.6, a row of pickles without a directory: recognised, not proven.

    top: keys and plain values of the object in the file, empty when it is no dictionary or was not looked at.
    """

    is_legacy: bool = False
    names_optimizer: bool | None = None
    unproven: list[str] = field(default_factory=list)
    top: pickle_scan.Table = field(default_factory=pickle_scan.Table)


#: A legacy file opens with pickle protocol 2 and torch's magic number as a long of ten bytes.
LEGACY_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"


def recognised(start: bytes) -> bool:
    """Whether a file with these first bytes is (or was) a torch file."""
    return start.startswith((b"PK\x03\x04", LEGACY_START))


def check(reader: Reader, *, trusts_any_class: bool = False) -> TorchFile:
    """Check one file; raises ``BadTorchFile`` (or ``Unreadable`` from the reader).

    ``trusts_any_class``: do not report unexpected class names (``training_args.bin`` pickles the trainer's own classes).
    """
    if reader.size == 0:
        raise BadTorchFile("is empty (0 bytes)")
    start = reader.read(0, len(LEGACY_START))
    if start == LEGACY_START:
        return TorchFile(
            is_legacy=True, unproven=["is in torch's legacy format, whose structure cannot be proven without loading it"]
        )
    if not start.startswith(b"PK\x03\x04"):
        raise BadTorchFile("starts neither as a zip nor as a legacy torch file")
    result = TorchFile()
    try:
        members = zip_directory.members(reader)
    except zip_directory.BadZip as error:
        raise BadTorchFile(str(error)) from error
    except zip_directory.ZipTooLarge as error:
        result.unproven.append(str(error))
        return result
    pickles = [member for name, member in members.items() if name.lower().endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) > 1 or any(not member.name.endswith("/data.pkl") for member in pickles):
        raise BadTorchFile("holds another data.pkl than the one that torch writes")
    if len(pickles) != 1:
        result.unproven.append("is a zip without torch's data.pkl")
        return result
    pickle = pickles[0]
    if pickle.method != zip_directory.STORED or pickle.bytes > pickle_scan.MAX_PICKLE_BYTES:
        result.unproven.append("its data.pkl is compressed or too long to be looked at")
        return result
    raw = reader.read(pickle.offset, pickle.bytes)
    # torch can be told to write no checksums; then every field is 0, which is no corruption.
    has_checksums = any(member.crc32 for member in members.values())
    if has_checksums and zlib.crc32(raw) != pickle.crc32:
        raise BadTorchFile("its data.pkl does not match its checksum")
    try:
        scan = pickle_scan.scan(raw)
    except pickle_scan.BadPickle as error:
        raise BadTorchFile(f"its data.pkl is no valid pickle: {error}") from error
    except pickle_scan.PickleTooLong as error:
        result.unproven.append(f"its data.pkl was not looked at: {error}")
        return result
    if scan.dangerous:
        raise BadTorchFile(
            f"its pickle would call {_names(scan.dangerous)}, which no trainer writes: do not load it with weights_only=False"
        )
    if scan.unexpected and not trusts_any_class:
        result.unproven.append(f"its pickle needs {_names(scan.unexpected)}, which is not on the list of known classes")
    prefix = pickle.name.removesuffix("data.pkl")
    for key, needed in scan.storages.items():
        storage = members.get(f"{prefix}data/{key}")
        if storage is None:
            raise BadTorchFile(f"tensor storage {printable(key)} is missing in it")
        if needed is not None and storage.bytes < needed:
            raise BadTorchFile(f"tensor storage {printable(key)} is {storage.bytes} bytes, its tensors need {needed}")
    result.names_optimizer = scan.names_optimizer
    result.top = scan.top
    return result


def _names(names: set[str]) -> str:
    shown = sorted(printable(name, 80) for name in names)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
