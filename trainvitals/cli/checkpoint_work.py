"""What ``checkpoint verify`` keeps between two looks and between nodes: hashes of earlier looks, records of shares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from trainvitals.checkpoints import files, hash_record, hash_store, quick_check
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished
from trainvitals.checkpoints.findings import many
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.verification import verify
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, VerificationLevel

_SHARE = re.compile(r"(\d{1,6})/(\d{1,6})\Z", re.ASCII)
_NAME_OF_A_SHARE = re.compile(r"(?P<checkpoint>[0-9a-f]{32})\.share-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})\.", re.ASCII)
#: So many missing shares are named.
SHOWN_SHARES = 5


@dataclass
class Kept:
    """``store``: hashes of earlier looks. ``shares``: records of other nodes. ``share``: (k, n), (1, 1) = all files."""

    store: HashStore
    directory: str | None
    shares: list[HashRecord]
    share: tuple[int, int]
    mb_per_s: float
    troubles: list[str] = field(default_factory=list)
    merged: tuple[str, ...] = ()

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
        merged = tuple(merge)
        shared = hash_store.read_all(merged)
        return Kept(HashStore(None if share is not None else directory), directory, shared, part, mb_per_s, merged=merged)

    def told_of_shares(self, seen: Listing, shares: Iterable[HashRecord]) -> str:
        """A sentence about what --merge did not have of a checkpoint and was read here, "" when it had all."""
        present = {entry.name: entry for entry in seen.entries}
        looked_at: set[str] = set()
        changed: set[str] = set()
        for record in shares:
            for name, one in record.files.items():
                if name in present:
                    (looked_at if one.is_of(present[name]) else changed).add(name)
        if not looked_at and not changed:
            return "no record of --merge is of this checkpoint: all its files were read here"
        numbers, count = self._shares_there(seen.name)
        lacking = [number for number in range(1, count + 1) if number not in numbers]
        if lacking:
            shown = ", ".join(f"{number}/{count}" for number in lacking[:SHOWN_SHARES])
            more = f" and {len(lacking) - SHOWN_SHARES} more" if len(lacking) > SHOWN_SHARES else ""
            return f"--merge has no record of share {shown}{more}: {'its' if len(lacking) == 1 else 'their'} files were read here"
        anew = changed - looked_at
        return f"{many(len(anew), 'file')} changed after a share had looked: read here" if anew else ""

    def _shares_there(self, name: str) -> tuple[set[int], int]:
        """Numbers of the shares of a checkpoint among the merged records, and how many there should be."""
        own = hash_store.name_of(name).partition(".")[0]
        numbers: set[int] = set()
        count = 0
        for path in self.merged:
            names = os.listdir(path) if os.path.isdir(path) else [os.path.basename(path)]  # noqa: PTH112, PTH119, PTH208
            for found in filter(None, map(_NAME_OF_A_SHARE.match, names[: hash_store.MAX_MERGED])):
                if found["checkpoint"] == own:
                    numbers.add(int(found["number"]))
                    count = max(count, min(int(found["count"]), hash_store.MAX_MERGED))
        return numbers, count

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
    if level not in (VerificationLevel.CONTENT, VerificationLevel.LOAD) or (kept.directory is None and not kept.merged):
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
    told = kept.told_of_shares(seen, shares) if kept.merged else ""
    return replace(inspection.report, reasons=(*inspection.report.reasons, told)) if told else inspection.report


def quick(path: str, kept: Kept) -> CheckpointReport:
    """One checkpoint before a resume; raises ``InputError``."""
    path = os.path.abspath(path)  # noqa: PTH100
    report = quick_check.quick_check(path, kept.store.load(path), SystemClock())
    if kept.store.text and kept.store.text not in kept.troubles:
        kept.troubles.append(kept.store.text)
    return report
