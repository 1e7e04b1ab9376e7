"""A PyTorch distributed checkpoint (DCP) that is one part of another trainer's checkpoint, at its root or in a directory below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Range

METADATA = ".metadata"


def is_here(names: frozenset[str], prefix: str = "") -> bool:
    """Whether files of DCP lie below ``prefix`` ("" or a path with ``/`` at its end)."""
    return any(
        name.startswith(prefix) and "/" not in name[len(prefix) :] and (name.endswith(".distcp") or name == prefix + METADATA)
        for name in names
    )


def look(listing: Listing, findings: Findings, *, into_files: bool, prefix: str = "") -> Facts:
    """As ``Layout.look`` for the part below ``prefix``; sentences name the directory."""
    part = below(listing, prefix)
    found = Findings()
    facts = _look(part, found, into_files)
    place = f"{printable(prefix.rstrip('/'))}: " if prefix else ""
    for kind in ("missing", "damaged", "unproven", "unreadable", "notes"):
        getattr(findings, kind).extend(place + text for text in getattr(found, kind))
    findings.vanished |= found.vanished
    return facts


def ranges(listing: Listing, prefix: str = "") -> Mapping[str, tuple[Range, ...]]:
    """As ``Layout.ranges``, with the names of the whole listing."""
    return {prefix + name: found for name, found in _ranges(below(listing, prefix)).items()}


def below(listing: Listing, prefix: str) -> Listing:
    """The part of a listing below ``prefix``, as if it had been listed by itself."""
    if not prefix:
        return listing
    entries = tuple(replace(entry, name=entry.name[len(prefix) :]) for entry in listing.entries if entry.name.startswith(prefix))
    return Listing(listing.path(prefix.rstrip("/")), False, entries)


def _look(part: Listing, findings: Findings, into_files: bool) -> Facts:
    shards = [name for name in part.names if name.endswith(".distcp")]
    if METADATA not in part.names:
        findings.missing.append(f"{METADATA} is missing: it is written last, so the save did not finish")
    elif not shards:
        findings.missing.append("no shards (*.distcp) beside .metadata")
    if into_files:
        findings.unproven.append("is a PyTorch distributed checkpoint, which this version cannot prove")
    return Facts(None, None)


def _ranges(part: Listing) -> Mapping[str, tuple[Range, ...]]:
    return {}
