"""The one door to a SQLite file: opening, sharing between threads, forks, replaced files, and errors as sentences.

Connections are kept in a small pool, each lent to one thread at a time. A forked child forgets its parent's connections
(closing them there could check-point the file under the parent); a file that was replaced is opened anew.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainvitals.errors import StoreError, StoreMissing, StoreUnavailable

#: SQLite's WAL needs memory shared between all processes, which these cannot give (sqlite.org/wal.html).
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.ceph", "fuse.ceph-fuse", "beegfs", "afs",
        "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "wekafs", "pvfs2",
        "orangefs", "ocfs2", "gfs2", "panfs", "pnfs",
    }
)  # fmt: skip
_IDLE_CONNECTIONS = 4
WAL_RETRY_S = 0.01
_IN_CHILD_OF: list[sqlite3.Connection] = []  # keeps a parent's connections from being closed in a forked child

#: Primary result codes after which the same call may work later: the data must be kept.
_MAY_WORK_LATER = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_IOERR: "cannot be read or written (input/output error; is the disk full or failing?)",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened (check that it and its directory exist and are yours to read and write)",
    sqlite3.SQLITE_READONLY: "is not writable for this user",
    sqlite3.SQLITE_PERM: "is not accessible for this user",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process",
    sqlite3.SQLITE_NOMEM: "could not be used: out of memory",
    sqlite3.SQLITE_CORRUPT: "is damaged; move it away (a new one is made) or put a backup in its place",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; move it away (a new one is made) or name another file in store",
    sqlite3.SQLITE_SCHEMA: "changed while it was read",
}


def file_system_type(path: str, mountinfo: str) -> str:
    """The file system's type that holds an absolute ``path``, from the text of ``/proc/self/mountinfo`` (proc(5))."""
    best, found = "", ""
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        parts = left.split()
        if not separator or len(parts) < 5 or not right:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), parts[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, right.split()[0]
    return found


def refuse_network_file_system(path: Path) -> None:
    """Raise ``StoreError`` when the file would lie on a file system that several hosts share."""
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no Linux: nothing to read, and nothing we could know
        return
    kind = file_system_type(os.path.realpath(path), mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"The store {path} lies on a network file system ({kind}), where SQLite loses data; "
            "name a file on a local disk of one host in store."
        )


def create_file(path: Path) -> bool:
    """Make the file (0660) and its directory (2770, so that a shared group keeps both) unless they exist; whether the file was made."""
    try:
        if not path.parent.is_dir():
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.parent.mkdir()
                path.parent.chmod(0o2770)
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o660)
            try:
                os.fchmod(descriptor, 0o660)  # the umask must not take the group's rights
            finally:
                os.close(descriptor)
            return True
    except OSError as error:
        raise StoreUnavailable(f"The store {path} cannot be created: {error.strerror or error}.") from error
    return False


class Connections:
    """A pool on one file. ``prepare`` is called once on each new connection (pragmas are set already)."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        busy_timeout_s: float,
        prepare: Callable[[sqlite3.Connection], None],
        what: str = "store",
    ) -> None:
        self.path = path
        self._what = what  # how sentences call the file
        self.read_only = read_only
        self._busy_timeout_s = busy_timeout_s
        self._prepare = prepare
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._identity: tuple[int, int] | None = None
        self._is_closed = False
        # Grows whenever the file behind the path may be another one: what was remembered of an older one is void.
        self._generation = 0
        #: How often a file took the place of another one that was in use.
        self.replaced = 0
        self._opened: tuple[int, int] | None = None
        self._is_made = False

    @contextmanager
    def lend(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A connection for one thread, and its generation; SQLite errors leave as ``StoreUnavailable`` or ``StoreError``."""
        connection: sqlite3.Connection | None = None
        try:
            generation, connection = self._take()
            yield connection, generation
        except sqlite3.Error as error:
            self._discard(connection)
            connection = None
            raise self._sentence(error) from error
        except BaseException:
            if connection is not None and connection.in_transaction:
                self._discard(connection)
                connection = None
            raise
        finally:
            if connection is not None:
                self._give_back(connection, generation)

    def close(self) -> None:
        """Close all; a later call raises ``StoreError``."""
        with self._lock:
            self._after_fork()
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> tuple[int, sqlite3.Connection]:
        if os.getpid() != self._pid:  # another thread may have held the parent's lock at the fork
            self._lock = threading.Lock()
        with self._lock:
            self._after_fork()
            if self._is_closed:
                raise StoreError(f"The {self._what} {self.path} was closed and cannot be used any more.")
            identity = self._file_identity()
            if identity != self._identity or identity is None:
                stale, self._idle = self._idle, []
                self._identity = identity
                self._generation += 1
                for connection in stale:
                    connection.close()
            generation = self._generation
            if self._idle:
                return generation, self._idle.pop()
        connection = self._open()
        with self._lock:
            if self._identity is None:
                self._identity = self._file_identity()
            # A new file may get the number of the deleted one.
            self.replaced += self._opened is not None and (self._is_made or self._opened != self._identity)
            self._opened, self._is_made = self._identity, False
        return generation, connection

    def _after_fork(self) -> None:
        if os.getpid() != self._pid:
            _IN_CHILD_OF.extend(self._idle)
            self._idle = []
            self._pid = os.getpid()
            self._generation += 1

    def _is_missing(self) -> bool:
        try:
            self.path.stat()
        except FileNotFoundError:
            return True
        except OSError as error:
            raise StoreUnavailable(f"The store {self.path} cannot be read: {error.strerror or error}.") from error
        return False

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _open(self) -> sqlite3.Connection:
        if self.read_only:
            if self._is_missing():
                raise StoreMissing(
                    str(self.path),
                    f"There is no store at {self.path} yet; start `python -m trainvitals watch`, or check store in the settings.",
                )
        else:
            refuse_network_file_system(self.path)
            self._is_made = create_file(self.path) or self._is_made
        mode = "ro" if self.read_only else "rw"
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if not self.read_only:
                self._to_wal(connection)
                connection.execute("PRAGMA synchronous=NORMAL")
            # Python hands out text as str; a damaged byte must not make a whole query fail.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _to_wal(self, connection: sqlite3.Connection) -> None:
        """Several programs may meet on a new file: the change to WAL answers "locked" at once, whatever the busy timeout says."""
        waiting, pause = time.monotonic() + self._busy_timeout_s, threading.Event()
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= waiting:
                    raise
                pause.wait(WAL_RETRY_S)
            else:
                return

    def _give_back(self, connection: sqlite3.Connection, generation: int) -> None:
        with self._lock:
            if not self._is_closed and generation == self._generation and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: sqlite3.Connection | None) -> None:
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for each in [*idle, *([connection] if connection is not None else [])]:
            each.close()

    def _sentence(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        why = _MAY_WORK_LATER.get(code & 0xFF) if code is not None else None
        if why is not None:
            return StoreUnavailable(f"The {self._what} {self.path} {why}.")
        return StoreError(f"The {self._what} {self.path} refused: {error}.")
