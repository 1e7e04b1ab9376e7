"""Plain safetensors: one file, or a directory of them with or without an index."""

from __future__ import annotations

import re

from trainvitals.checkpoints import parts
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import torch_files
from trainvitals.checkpoints.layouts.base import Facts, Layout

_OPTIMIZER_TENSOR = re.compile(r"(?:optimizer|optim)\.|.*\.exp_avg(?:_sq)?\Z|exp_avg")


#: NeMo Automodel makes it when it begins to save the optimizer beside weights of this kind.
_OPTIMIZER_DIRECTORY = re.compile(r"(?:.{0,600}/)?optim(?:izer)?s?", re.DOTALL)


class SafetensorsFiles(Layout):
    """See the module."""

    name = "safetensors"

    def matches(self, listing: Listing) -> bool:
        return any(name.endswith((".safetensors", ".safetensors.index.json")) for name in listing.names)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        names = listing.names
        parts.check_shards(names, findings)
        # verl exports weights, or an adapter, beside the files of its ranks.
        world_size = torch_files.check_ranks(listing.entries, findings)
        for place in sorted(listing.empty):
            if _OPTIMIZER_DIRECTORY.fullmatch(place):
                findings.unproven.append(
                    f"{printable(place)}/ is empty: no optimizer was saved, or the save of it did not finish"
                )
        expected: dict[str, set[str]] = {}
        for name in sorted(names):
            if name.endswith(".safetensors.index.json"):
                expected |= parts.check_index(listing, name, findings)
        has_optimizer: bool | None = any(name.rpartition("/")[2].startswith("optim") for name in names) or None
        if into_files:
            tensors: set[str] = set()
            for entry in listing.entries:
                if TEMPORARY_NAME.search(entry.name):
                    continue
                if entry.name.endswith(".safetensors"):
                    tensors |= parts.check_safetensors(listing, entry, findings, expected.get(entry.name)) or frozenset()
                elif entry.name.endswith(parts.TORCH_ENDINGS):
                    parts.check_torch(listing, entry, findings)
                elif entry.name.endswith(".json") and not entry.name.endswith(".safetensors.index.json"):
                    parts.check_json(listing, entry.name, findings)
            has_optimizer = has_optimizer or any(_OPTIMIZER_TENSOR.match(tensor) for tensor in tensors)
        return Facts(None, has_optimizer, world_size=world_size)
