"""The directory of kept hash records: bounded, written atomically, one file for each checkpoint."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from trainvitals.checkpoints import hash_record
from trainvitals.checkpoints.files import NotRegular, Unreadable, Vanished, opened, printable, reason
from trainvitals.checkpoints.hash_record import BadRecord, HashRecord
from trainvitals.errors import InputError

#: Where a watchdog keeps them, below its run directory.
DIRECTORY = "checkpoint_hashes"
#: Checkpoints whose records are kept; those not written for longest go first.
MAX_RECORDS = 500
MAX_MERGED = 10_000
_ENDING = ".hashes.json"


class HashStore:
    """``errors`` counts records that could not be read or written; ``text`` is the newest such sentence.

    ``directory`` None keeps nothing. ``shares``: directory in which other nodes leave what they hashed, None = none do.
    """

    def __init__(self, directory: str | None, shares: str | None = None) -> None:
        self._directory = directory
        self._shares = shares
        self.errors = 0
        self.text = ""

    def load(self, path: str) -> HashRecord:
        """The record of the checkpoint at ``path``; an empty one when there is none or it cannot be used."""
        if self._directory is None:
            return HashRecord(path)
        try:
            record = read(self._file(path))
        except Vanished:
            return HashRecord(path)
        except BadRecord as error:
            self._trouble(f"The kept hashes of {printable(path)} cannot be used: {error}. They are taken anew.")
            return HashRecord(path)
        # Two paths may share a file name only by an attack on the hash of their names.
        return record if record.path == path else HashRecord(path)

    def save(self, record: HashRecord) -> None:
        """Keep it in place of the one before."""
        if self._directory is None:
            return
        try:
            os.makedirs(self._directory, exist_ok=True)  # noqa: PTH103 - as the other names of this room: they may hold any byte
            write(self._file(record.path), record)
            self._prune()
        except OSError as error:
            self._trouble(
                f"The hashes of {printable(record.path)} cannot be kept: {reason(error)}. They are taken again next time."
            )

    def forget(self, path: str) -> None:
        """The checkpoint is gone."""
        if self._directory is not None:
            with suppress(OSError):  # a record too many is pruned later
                os.unlink(self._file(path))  # noqa: PTH108

    def _file(self, path: str) -> str:
        return os.path.join(self._directory or "", name_of(path))  # noqa: PTH118

    def shared(self, name: str) -> list[HashRecord]:
        """What other nodes hashed of the checkpoint of this name; what cannot be used is counted."""
        if self._shares is None or not os.path.isdir(self._shares):  # noqa: PTH112
            return []
        try:
            if os.stat(self._shares).st_mode & stat.S_IWOTH:  # noqa: PTH116
                # Who may leave a share there says of a file that it is proven.
                self._trouble(
                    f"Everyone may write to {printable(self._shares)}, so no hash in it is believed; run: chmod o-w {printable(self._shares)}."
                )
                return []
            # Only those that are called after it: the directory may hold the shares of a year.
            prefix = name_of(name).partition(".")[0]
            names = sorted(file for file in os.listdir(self._shares) if file.startswith(prefix))  # noqa: PTH208
            return of_checkpoint(read_all(os.path.join(self._shares, file) for file in names[:MAX_MERGED]), name)  # noqa: PTH118
        except OSError as error:
            self._trouble(f"Cannot read the shares in {printable(self._shares)}: {reason(error)}.")
            return []
        except InputError as error:
            self._trouble(str(error))
            return []

    def _prune(self) -> None:
        with os.scandir(self._directory) as found:
            files = [(entry.stat().st_mtime_ns, entry.path) for entry in found if _ENDING in entry.name]
        for _, path in sorted(files)[: max(0, len(files) - MAX_RECORDS)]:
            os.unlink(path)  # noqa: PTH108

    def _trouble(self, text: str) -> None:
        self.errors += 1
        self.text = text


def name_of(path: str) -> str:
    """File name of the record of a checkpoint."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32] + _ENDING


def of_checkpoint(records: Iterable[HashRecord], name: str) -> list[HashRecord]:
    """Those of the checkpoint of this name: nodes may see it under different paths."""
    return [record for record in records if os.path.basename(record.path) == name]  # noqa: PTH119


def read(path: str) -> HashRecord:
    """One record; raises ``Vanished`` or ``BadRecord``."""
    try:
        with opened(path) as reader:
            if reader.size > hash_record.MAX_BYTES:
                raise BadRecord(f"longer than {hash_record.MAX_BYTES} bytes")
            return hash_record.parse(reader.read(0, reader.size))
    except (Unreadable, NotRegular) as error:
        raise BadRecord(f"it cannot be read ({printable(str(error))})") from error


def write(path: str, record: HashRecord) -> None:
    """Write one record so that a reader sees the old or the new one, never half; raises ``OSError``."""
    temporary = f"{path}.tmp.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(hash_record.dump(record))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def read_all(paths: Iterable[str]) -> list[HashRecord]:
    """Records at ``paths``, each a file or a directory of ``*.json``; raises ``InputError`` for one that cannot be used."""
    records: list[HashRecord] = []
    for path in paths:
        try:
            is_directory = stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116
            names = sorted(os.listdir(path)) if is_directory else [""]  # noqa: PTH208
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot read the record {printable(path)}: {reason(error)}.") from error
        for name in [name for name in names if not is_directory or name.endswith(".json")][:MAX_MERGED]:
            file = os.path.join(path, name) if name else path  # noqa: PTH118
            try:
                records.append(read(file))
            except (BadRecord, Vanished) as error:
                raise InputError(f"{printable(file)} is no record of hashes: {printable(str(error))}.") from error
    return records
