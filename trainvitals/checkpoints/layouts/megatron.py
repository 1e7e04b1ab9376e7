"""Megatron-Core's distributed formats: ``iter_%07d/{.metadata, __R_C.distcp, metadata.json}``, before 0.19 also ``common.pt``.

``--ckpt-format torch_dist`` writes ``metadata.json`` after the last data (``dist_checkpointing/serialization.py`` save), then
``integrity.json`` when that is on, then the tracker beside the directory. ``torch_dcp`` and ``fsdp_dtensor`` are plain DCP with the
arguments and the iteration as objects in it and no ``metadata.json`` (``training/checkpointing.py`` save_checkpoint).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import dcp_directory, dcp_values, parts, torch_values
from trainvitals.checkpoints.dcp_metadata import DcpMetadata
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.layouts.dcp import ranges_of_shards

MARKER = "metadata.json"
COMMON = "common.pt"
DIRECTORY = re.compile(r"iter_(\d{7,18})\Z", re.ASCII)
RELEASE = "release"
#: Names of Megatron's arguments -> ours.
SIZES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "expert_model_parallel_size": "ep",
    "context_parallel_size": "cp",
    "data_parallel_size": "dp",
}


class Megatron(Layout):
    """See the module."""

    name = "megatron_dist"
    directory = DIRECTORY

    def matches(self, listing: Listing) -> bool:
        names = listing.names
        if listing.is_file or not dcp_directory.holds_shards(names):
            return False
        if DIRECTORY.match(listing.name) is not None or listing.name == RELEASE or COMMON in names:
            return True
        # Others write a file of that name beside their shards, too.
        return MARKER in names and b"sharded_backend" in parts.first_bytes(listing, MARKER, 4096)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        known = dcp_directory.check(listing, findings, into_files=into_files)
        _check_marker(listing, known, findings, into_files)
        named = DIRECTORY.match(listing.name)
        step = int(named[1]) if named else parts.said_step(listing.name)
        arguments: Mapping[str, object] = {}
        common: Mapping[str, object] = {}
        if into_files:
            dcp_directory.check_beside(listing, findings)
            entry = next((entry for entry in listing.entries if entry.name == COMMON), None)
            common = torch_values.table(listing, entry) if entry is not None else dcp_values.common_state(listing, known)
            arguments = torch_values.attributes(common.get("args"))
            iteration = torch_values.count(common.get("iteration"))
            if iteration is not None and step is not None and iteration != step:
                place = COMMON if entry is not None else "its common state"
                findings.damaged.append(f"{place} is of iteration {iteration}, the directory is named for iteration {step}")
            step = iteration if step is None else step
        keys = dcp_directory.key_facts(key for metadata in known for key in metadata.keys) if known else None
        return Facts(
            step,
            keys.has_optimizer if keys else None,
            # The common state is one object, whose inside does not show in the names: what is not named may be in it.
            has_rng=(keys is not None and keys.has_rng) or None,
            has_scheduler=(keys is not None and keys.has_scheduler) or "opt_param_scheduler" in common or None,
            has_data_position=(keys is not None and keys.has_data_position) or "consumed_train_samples" in arguments or None,
            world_size=torch_values.count(arguments.get("world_size"))
            or dcp_directory.world_size(file for metadata in known for file in metadata.files),
            parallel=parallel_sizes(arguments),
        )

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return ranges_of_shards(listing)


def parallel_sizes(arguments: Mapping[str, object]) -> dict[str, int]:
    """Sizes by our names out of Megatron's arguments."""
    found = {ours: torch_values.count(arguments.get(theirs)) for theirs, ours in SIZES.items()}
    return {name: size for name, size in found.items() if size}


def _check_marker(listing: Listing, known: list[DcpMetadata], findings: Findings, into_files: bool) -> None:
    if MARKER in listing.names:
        document = parts.read_json(listing, MARKER, findings)
        backend = document.get("sharded_backend") if isinstance(document, dict) else None
        if document is not None and not isinstance(backend, str):
            findings.damaged.append(f"{MARKER} does not name a sharded_backend")
        elif isinstance(backend, str) and backend != "torch_dist":
            findings.unproven.append(
                f"its format is {printable(backend, 40)}, of which only the files of torch_dist are known here"
            )
        elif isinstance(document, dict) and document.get("common_backend") == "torch" and COMMON not in listing.names:
            findings.missing.append(f"{COMMON} is missing, {MARKER} says that arguments and iteration are in it")
        return
    if not known:
        if dcp_directory.METADATA in listing.names and into_files:
            findings.unproven.append(f"whether {MARKER} belongs to it could not be found out")
        return
    if any(key == "args" or key.startswith(("args.", "model.", "model_module.")) for metadata in known for key in metadata.keys):
        findings.notes.append(f"written with --ckpt-format torch_dcp or fsdp_dtensor, which write no {MARKER}")
    else:
        findings.missing.append(f"{MARKER} is missing: it is written after all other files, so the save was not finalised")
