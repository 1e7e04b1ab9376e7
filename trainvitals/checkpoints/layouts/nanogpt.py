"""nanoGPT and scripts after it: one ``ckpt.pt``, written over in place; ``iter_num`` is the step (``train.py`` of karpathy/nanoGPT)."""

from __future__ import annotations

import re

from trainvitals.checkpoints import parts, state_keys
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout


class NanoGpt(Layout):
    """See the module."""

    name = "nanogpt"
    file = re.compile(r"ckpt\.pt\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        return listing.is_file and self.file.match(listing.name) is not None

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        entry = listing.entries[0]
        if not into_files:
            if not entry.size and not entry.problem:
                findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
            return Facts(None, None)
        checked = parts.check_torch(listing, entry, findings)
        if checked is None or not checked.top.keys:
            return Facts(None, checked.names_optimizer or None if checked is not None else None)
        if "model" not in checked.top.keys:
            findings.notes.append(f"{printable(entry.name)} has no key model, as nanoGPT's has")
        keys = state_keys.read(checked.top)
        return Facts(
            keys.step,
            keys.has_optimizer,
            has_rng=keys.has_rng,
            has_scheduler=keys.has_scheduler,
            has_data_position=keys.has_data_position,
        )
