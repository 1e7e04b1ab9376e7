"""Checks one directory that PyTorch DCP wrote, wherever it lies: a checkpoint of its own or a part of another trainer's.

Facts behind the rules (checkpoint research, A1 and A2): ``.metadata`` is renamed into place after all writers reported; a save
into an existing directory leaves the old ``.metadata`` beside shards that are rewritten in place, and ``dcp.load`` then loads
new bytes under old metadata without a word. So: every file at the exact size that ``.metadata`` implies, and ``.metadata``
newer than every shard. A wrong order of times alone is no damage (a copy without ``-t`` breaks it too): it is unproven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainvitals.checkpoints import dcp_cache, parts, zip_directory
from trainvitals.checkpoints.dcp_metadata import BadMetadata, DcpMetadata, PickleTooLarge
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, Reader, Window, printable
from trainvitals.checkpoints.findings import Findings

METADATA = ".metadata"
#: ``.metadata``, or one of each rank (``__3.metadata``) when the writers do not report to a coordinator.
METADATA_NAME = re.compile(r"(?:__(?P<rank>\d{1,9}))?\.metadata\Z", re.ASCII)
SHARD_NAME = re.compile(r"__(?P<rank>\d{1,9})_(?P<number>\d{1,9})\.distcp\Z", re.ASCII)
#: At presence a longer one is not parsed: each change in the directory would cost it again (1 MiB: about 0.1 s).
LONG_METADATA_BYTES = 1 << 20
#: Clocks of the machines that write shards differ by less; an old ``.metadata`` is older by a save interval.
CLOCK_TOLERANCE_NS = 1_000_000_000
#: Entries of all shards whose first and last bytes are looked at: about 1 s.
MAX_ENTRIES_LOOKED_AT = 100_000

_OPTIMIZER = re.compile(
    r"(?:^|[./])(?:optim|optimizers?|optimizer_states?(?:_dict)?)(?:[./_]|\Z)|\.(?:exp_avg|momentum_buffer)\Z"
)
_RNG = re.compile(r"(?:^|[./])(?:\w{0,40}_)?(?:rng|rng_states?|random_states?)(?:[./]|\Z)")
_SCHEDULER = re.compile(r"(?:^|[./])(?:lr_|opt_param_)?schedulers?(?:[./]|\Z)")
_DATA = re.compile(r"(?:^|[./])(?:\w{0,40}_)?(?:dataloaders?|data_loaders?|data_iterator|dataset_state|sampler)(?:[./]|\Z)")


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What the names in a state dict tell."""

    has_optimizer: bool
    has_rng: bool
    has_scheduler: bool
    has_data_position: bool


def key_facts(keys: Iterable[str]) -> KeyFacts:
    """From fully qualified names such as ``optimizer.state.layers.0.weight.exp_avg`` or ``rng_state/shard_0.0_1.1``."""
    found = [False, False, False, False]
    patterns = (_OPTIMIZER, _RNG, _SCHEDULER, _DATA)
    for key in keys:
        for number, pattern in enumerate(patterns):
            found[number] = found[number] or pattern.search(key) is not None
    return KeyFacts(*found)


def holds_shards(names: Iterable[str]) -> bool:
    """Whether a directory with these names (without a path) is one that DCP wrote or writes."""
    return any(METADATA_NAME.match(name) or SHARD_NAME.match(name) for name in names)


def world_size(files: Iterable[str]) -> int | None:
    """Ranks that wrote, from ``__RANK_NUMBER.distcp``; None when some rank below the highest wrote nothing."""
    ranks = {int(found["rank"]) for name in files if (found := SHARD_NAME.match(name))}
    return len(ranks) if ranks and len(ranks) == max(ranks) + 1 else None


def check(listing: Listing, findings: Findings, *, into_files: bool) -> list[DcpMetadata]:
    """Check the files right in the directory; what each ``.metadata`` says (one, or one of each rank), empty when unknown."""
    entries = {entry.name: entry for entry in listing.entries if "/" not in entry.name}
    names = sorted(name for name in entries if METADATA_NAME.match(name))
    shards = sorted(name for name in entries if SHARD_NAME.match(name))
    if not names:
        findings.missing.append(f"{METADATA} is missing: it is written last, so the save did not finish")
        empty = [name for name in shards if entries[name].size == 0]
        if empty:
            findings.missing.append(f"{len(empty)} of {len(shards)} shards are empty (0 bytes), the first is {empty[0]}")
        return []
    # A directory with both kinds was written twice; the one of the coordinator is the one that is loaded.
    names = [METADATA] if METADATA in entries else names
    if METADATA not in entries:
        _check_ranks(names, shards, findings)
    leftover = sorted(name for name in entries if name.endswith(".metadata.tmp"))
    findings.notes += [f"{printable(name)} is there: a save into this directory runs or broke off" for name in leftover[:3]]
    known: list[DcpMetadata] = []
    for name in names:
        metadata = _read(listing, entries[name], findings, into_files=into_files)
        if metadata is not None:
            known.append(metadata)
            _check_files(metadata, entries, findings)
            _check_keys(metadata, name, findings)
    named = {file for metadata in known for file in metadata.files}
    _check_times(names, [name for name in shards if name in named or len(known) < len(names)], entries, findings)
    if len(known) == len(names):
        extra = [name for name in shards if name not in named]
        if extra:
            findings.notes.append(
                f"{len(extra)} shards belong to no tensor of {METADATA}, such as {extra[0]}: left over by another save"
            )
    if into_files:
        for metadata in known:
            _look_into(listing, metadata, entries, findings)
    return known


def ranges(listing: Listing) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """File name -> offset and length of each of its entries, which are zips of their own; empty when that is not known."""
    entries = {entry.name: entry for entry in listing.entries}
    names = [METADATA] if METADATA in entries else sorted(name for name in entries if METADATA_NAME.match(name))
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for name in names:
        metadata = _read(listing, entries[name], Findings(), into_files=True)
        if metadata is not None and not metadata.is_transformed:
            found |= {file: metadata.entries(file) for file in metadata.files}
    return found


def check_beside(listing: Listing, findings: Findings) -> None:
    """Structure of the other files right in the directory (``common.pt``, ``config.json``, …)."""
    for entry in listing.entries:
        name = entry.name
        if "/" in name or TEMPORARY_NAME.search(name) or METADATA_NAME.match(name) or SHARD_NAME.match(name):
            continue
        if name.endswith(parts.TORCH_ENDINGS):
            parts.check_torch(listing, entry, findings)
        elif name.endswith(".safetensors"):
            parts.check_safetensors(listing, entry, findings)
        elif name.endswith(".json"):
            parts.read_json(listing, name, findings, allow_nonfinite=True, is_long=True)


def _check_ranks(names: list[str], shards: list[str], findings: Findings) -> None:
    ranks = {int(found["rank"]) for name in names if (found := METADATA_NAME.match(name))}
    highest = max(ranks | {int(found["rank"]) for name in shards if (found := SHARD_NAME.match(name))})
    lacking = highest + 1 - len(ranks)
    if lacking > 0:
        findings.missing.append(f"{lacking} ranks have not written their {METADATA} (the highest rank is {highest})")


def _check_times(names: list[str], shards: list[str], entries: Mapping[str, Entry], findings: Findings) -> None:
    written_ns = max(entries[name].modified_at_ns for name in names)
    newer = [name for name in shards if entries[name].modified_at_ns > written_ns + CLOCK_TOLERANCE_NS]
    if newer:
        findings.unproven.append(
            f"{len(newer)} of {len(shards)} shards are newer than {METADATA}, the first is {newer[0]}: either a save over an "
            "older one did not finish (it would load mixed content), or a copy did not keep the times; only hashes can tell"
        )


def _read(listing: Listing, entry: Entry, findings: Findings, *, into_files: bool) -> DcpMetadata | None:
    shown = printable(entry.name)
    if not into_files and entry.size > LONG_METADATA_BYTES:
        return None

    metadata = parts.check_with(listing, entry, findings, dcp_cache.REMEMBERED.read, BadMetadata)
    if isinstance(metadata, PickleTooLarge):
        findings.unproven.append(f"{shown} was not looked at: {metadata}")
        return None
    if metadata is not None and metadata.unexpected:
        findings.unproven.append(
            f"{shown} names {printable(metadata.unexpected[0], 80)}, which is not on the list of known classes"
        )
    return metadata


def _check_files(metadata: DcpMetadata, entries: Mapping[str, Entry], findings: Findings) -> None:
    missing = sorted(file for file in metadata.files if file not in entries)
    if missing:
        findings.missing.append(
            f"{len(missing)} of {len(metadata.files)} shards are missing, the first is {printable(missing[0])}"
        )
    for file in sorted(metadata.files):
        entry = entries.get(file)
        if entry is None or entry.problem:
            continue
        needed = metadata.size_of(file)
        shown = printable(file)
        if entry.size == 0 and needed:
            findings.damaged.append(f"{shown} is empty (0 bytes), {METADATA} says {needed} bytes")
        elif entry.size < needed:
            findings.damaged.append(f"{shown} is truncated: {entry.size} bytes, {METADATA} says {needed}")
        elif entry.size > needed:
            findings.damaged.append(
                f"{shown} has {entry.size - needed} bytes too many: {entry.size} bytes, {METADATA} says {needed}"
            )


def _check_keys(metadata: DcpMetadata, shown: str, findings: Findings) -> None:
    lost = metadata.not_stored()
    if lost:
        findings.damaged.append(f"{shown}: no file holds {len(lost)} of its tensors, such as {printable(lost[0], 80)}")
    partly = metadata.partly_stored()
    if partly:
        findings.unproven.append(
            f"{shown}: the files hold only a part of {len(partly)} tensors, such as {printable(partly[0], 80)}"
        )


def _look_into(listing: Listing, metadata: DcpMetadata, entries: Mapping[str, Entry], findings: Findings) -> None:
    """Each entry is a torch zip: its first and last bytes, and of the last entry of each file the whole directory."""
    if metadata.is_transformed:
        findings.unproven.append("its shards passed through a stream extension, so their structure cannot be looked at")
        return
    left = MAX_ENTRIES_LOOKED_AT
    strange: list[str] = []
    fine = 0
    for file in sorted(metadata.files):
        entry = entries.get(file)
        if entry is None or entry.size == 0 or entry.size != metadata.size_of(file) or left <= 0:
            continue
        places = metadata.entries(file)[:left]
        left -= len(places)

        def look(reader: Reader, places: tuple[tuple[int, int], ...] = places) -> list[int]:
            bad = [offset for offset, length in places if length and not _is_framed(reader, offset, length)]
            if not bad:
                zip_directory.members(Window(reader, *places[-1]))
            return bad

        bad = parts.check_with(listing, entry, findings, look, zip_directory.BadZip)
        if bad is not None:
            strange += [
                f"{printable(file)}: the entry at byte {offset} does not begin and end as torch writes it" for offset in bad
            ]
            fine += len(places) - len(bad)
    if left <= 0:
        findings.notes.append(f"of its entries the first {MAX_ENTRIES_LOOKED_AT} were looked into")
    if strange and not fine:
        findings.unproven.append("its shards are not in the format of torch.save, so their structure cannot be looked at")
    else:
        findings.damaged += strange


def _is_framed(reader: Reader, offset: int, length: int) -> bool:
    return reader.read(offset, 4) == b"PK\x03\x04" and reader.read(offset + length - 22, 4) == b"PK\x05\x06"
