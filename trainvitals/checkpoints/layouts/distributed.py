"""A PyTorch distributed checkpoint (DCP) that is one part of another trainer's checkpoint, at its root or in a directory below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainvitals.checkpoints import dcp_directory
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import dcp
from trainvitals.checkpoints.layouts.base import Facts, Range

METADATA = ".metadata"


def is_here(names: frozenset[str], prefix: str = "") -> bool:
    """Whether files of DCP lie right below ``prefix`` ("" or a path with ``/`` at its end)."""
    return dcp_directory.holds_shards(
        name[len(prefix) :] for name in names if name.startswith(prefix) and "/" not in name[len(prefix) :]
    )


def look(listing: Listing, findings: Findings, *, into_files: bool, prefix: str = "", named: int | None = None) -> Facts:
    """As ``Layout.look`` for the part below ``prefix``; ``named``: the step that it should be of, where a number in it tells."""
    found = Findings()
    facts = dcp.look_at_shards(below(listing, prefix), found, into_files=into_files, named=named)
    take(findings, found, prefix)
    return facts


def take(findings: Findings, found: Findings, prefix: str) -> None:
    """Put what was found in the part below ``prefix`` to the rest; sentences name the directory."""
    place = f"{printable(prefix)} " if prefix else ""
    for kind in ("missing", "damaged", "unproven", "unreadable", "notes"):
        getattr(findings, kind).extend(place + text for text in getattr(found, kind))
    findings.vanished |= found.vanished


def ranges(listing: Listing, prefix: str = "") -> Mapping[str, tuple[Range, ...]]:
    """As ``Layout.ranges``, with the names of the whole listing."""
    return {prefix + name: found for name, found in dcp.ranges_of_shards(below(listing, prefix)).items()}


def below(listing: Listing, prefix: str) -> Listing:
    """The part of a listing below ``prefix``, as if it had been listed by itself."""
    if not prefix:
        return listing
    entries = tuple(replace(entry, name=entry.name[len(prefix) :]) for entry in listing.entries if entry.name.startswith(prefix))
    return Listing(listing.path(prefix.rstrip("/")), False, entries)
