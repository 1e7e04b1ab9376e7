"""A PyTorch distributed checkpoint (DCP) that is one part of another trainer's checkpoint, at its root or in a directory below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import dcp
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
    facts = dcp.look_at_shards(part, found, into_files=into_files)
    place = f"{printable(prefix.rstrip('/'))}: " if prefix else ""
    for kind in ("missing", "damaged", "unproven", "unreadable", "notes"):
        getattr(findings, kind).extend(place + text for text in getattr(found, kind))
    findings.vanished |= found.vanished
    return facts


def ranges(listing: Listing, prefix: str = "") -> Mapping[str, tuple[Range, ...]]:
    """As ``Layout.ranges``, with the names of the whole listing."""
    return {prefix + name: found for name, found in dcp.ranges_of_shards(below(listing, prefix)).items()}


def below(listing: Listing, prefix: str) -> Listing:
    """The part of a listing below ``prefix``, as if it had been listed by itself."""
    if not prefix:
        return listing
    entries = tuple(replace(entry, name=entry.name[len(prefix) :]) for entry in listing.entries if entry.name.startswith(prefix))
    return Listing(listing.path(prefix.rstrip("/")), False, entries)
