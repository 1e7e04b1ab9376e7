"""What ``checkpoint verify`` keeps between two looks and between nodes: hashes of earlier looks, records of shares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainvitals.checkpoints import files, hash_record, hash_store, quick_check
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.verification import verify
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, VerificationLevel

_SHARE = re.compile(r"(\d{1,6})/(\d{1,6})\Z", re.ASCII)


@dataclass
class Kept:
    """``store``: hashes of earlier looks. ``shares``: records of other nodes. ``share``: (k, n), (1, 1) = all files."""

    store: HashStore
    directory: str | None
    shares: list[HashRecord]
    share: tuple[int, int]
    mb_per_s: float
    troubles: list[str] = field(default_factory=list)

    @staticmethod
    def of(directory: str | None, merge: Iterable[str], share: str | None, mb_per_s: float) -> Kept:
        """From the arguments of the command; raises ``InputError``."""
        if mb_per_s < 0:
            raise InputError("--mb-per-s must not be negative.")
        part = (1, 1)
        if share is not None:
            found = _SHARE.match(share)
            part = (int(found[1]), int(found[2])) if found else (0, 0)
            if not 1 <= part[0] <= part[1]:
                raise InputError(f"--share takes K/N with 1 <= K <= N, not {share!r}.")
            if directory is None:
                raise InputError(
                    "--share needs --record DIR: a directory on the shared file system, for the hashes of this part."
                )
        shared = hash_store.read_all(merge)
        return Kept(HashStore(None if share is not None else directory), directory, shared, part, mb_per_s)

    def keep_share(self, seen: Listing, record: HashRecord) -> None:
        """Write the hashes of one share; raises ``InputError``."""
        name = hash_store.name_of(seen.name).replace(".", f".share-{self.share[0]}-of-{self.share[1]}.", 1)
        try:
            os.makedirs(self.directory or "", exist_ok=True)  # noqa: PTH103
            hash_store.write(os.path.join(self.directory or "", name), record)  # noqa: PTH118
        except OSError as error:
            raise InputError(f"Cannot write the record {name} in {self.directory}: {files.reason(error)}.") from error


def look(path: str, level: VerificationLevel, kept: Kept) -> CheckpointReport:
    """One checkpoint at one level; raises ``InputError``."""
    clock = SystemClock()
    work = Work(clock, Pace(clock, kept.mb_per_s), share=kept.share)
    if level not in (VerificationLevel.CONTENT, VerificationLevel.LOAD) or (kept.directory is None and not kept.shares):
        return verify(path, level, work)[0].report
    path = os.path.abspath(path)  # noqa: PTH100 - hashes are kept by it
    try:
        seen = files.listing(path)
    except (Vanished, Unreadable) as error:
        raise InputError(f"Cannot read the checkpoint {files.printable(str(error))}.") from error
    is_whole = kept.share == (1, 1)
    before = kept.store.load(path) if is_whole else HashRecord(path)
    work.read_since_ns = clock.time_ns()
    shares = hash_store.of_checkpoint(kept.shares, seen.name)
    work.record = hash_record.with_shares(before, shares, seen.entries, work.read_since_ns)
    work.keeps_hashes = True
    work.keep = kept.store.save
    inspection, record = verify(path, level, work)
    if not is_whole:
        kept.keep_share(seen, record)
    if kept.store.text and kept.store.text not in kept.troubles:
        kept.troubles.append(kept.store.text)
    return inspection.report


def quick(path: str, kept: Kept) -> CheckpointReport:
    """One checkpoint before a resume; raises ``InputError``."""
    path = os.path.abspath(path)  # noqa: PTH100
    report = quick_check.quick_check(path, kept.store.load(path), SystemClock())
    if kept.store.text and kept.store.text not in kept.troubles:
        kept.troubles.append(kept.store.text)
    return report
