"""PyTorch distributed checkpoint (DCP) as a checkpoint of its own: ``step-N/{.metadata, __R_C.distcp}``, also torchtitan's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import dcp_directory, dcp_values, parts
from trainvitals.checkpoints.dcp_metadata import DcpMetadata
from trainvitals.checkpoints.files import Listing
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range


class Dcp(Layout):
    """See the module; what is checked is in ``dcp_directory``."""

    name = "dcp"
    directory = re.compile(r"step-\d{1,18}\Z", re.ASCII)
    mark = re.compile(r"(?:__\d{1,9})?\.metadata\Z|__\d{1,9}_\d{1,9}\.distcp\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        return not listing.is_file and dcp_directory.holds_shards(listing.names)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        if into_files:
            dcp_directory.check_beside(listing, findings)
        return look_at_shards(listing, findings, into_files=into_files, named=parts.said_step(listing.name))

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return ranges_of_shards(listing)


def look_at_shards(listing: Listing, findings: Findings, *, into_files: bool, named: int | None = None) -> Facts:
    """As ``Layout.look``, of the files of DCP alone: other trainers' checkpoints hold them too. named: step that a name tells."""
    known = dcp_directory.check(listing, findings, into_files=into_files)
    if not known:
        return Facts(None, None)
    keys = dcp_directory.key_facts(key for metadata in known for key in metadata.keys)
    if into_files and named is not None:
        _check_step(listing, known, named, findings)
    return Facts(
        None,
        keys.has_optimizer,
        has_rng=keys.has_rng,
        has_scheduler=keys.has_scheduler,
        has_data_position=keys.has_data_position,
        world_size=dcp_directory.world_size(file for metadata in known for file in metadata.files),
    )


def _check_step(listing: Listing, known: list[DcpMetadata], named: int, findings: Findings) -> None:
    found = dcp_values.step(listing, known)
    if found is not None and found[0] != named:
        findings.unproven.append(
            f"{found[1]} in it is {found[0]}, its name says {named}: renamed, or shards of another save lie in it"
        )


def ranges_of_shards(listing: Listing) -> Mapping[str, tuple[Range, ...]]:
    """As ``Layout.ranges``, of the files of DCP alone."""
    return {
        file: tuple(Range(offset, length) for offset, length in entries)
        for file, entries in dcp_directory.ranges(listing).items()
    }
