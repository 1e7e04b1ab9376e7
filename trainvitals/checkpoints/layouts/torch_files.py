"""Files of ``torch.save``: one ``.pt``/``.pth``/``.ckpt``/``.bin`` (nanoGPT, Lightning, …) or a directory that holds some."""

from __future__ import annotations

from trainvitals.checkpoints import parts, torch_file
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, NotRegular, Unreadable, Vanished, opened
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout


class TorchFiles(Layout):
    """See the module."""

    name = "torch"

    def matches(self, listing: Listing) -> bool:
        candidates = _torch_entries(listing)
        # Many programs write .bin: alone it counts only when it opens like a torch file (or is too short to tell).
        return any(not entry.name.endswith(".bin") or _opens_like_torch(listing, entry) for entry in candidates)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        entries = _torch_entries(listing)
        has_optimizer: bool | None = None
        if any(entry.name.rpartition("/")[2].startswith("optim") for entry in entries):
            has_optimizer = True
        if into_files:
            for entry in entries:
                checked = parts.check_torch(listing, entry, findings)
                if checked is not None and checked.names_optimizer is not None:
                    has_optimizer = has_optimizer or checked.names_optimizer
            for entry in listing.entries:
                if entry.name.endswith(".json") and not TEMPORARY_NAME.search(entry.name):
                    parts.read_json(listing, entry.name, findings, allow_nonfinite=True)
        else:
            findings.damaged += [f"{entry.name} is empty (0 bytes)" for entry in entries if not entry.size and not entry.problem]
        return Facts(parts.step_from_name(listing.name), has_optimizer)


def _torch_entries(listing: Listing) -> list[Entry]:
    return [
        entry for entry in listing.entries if entry.name.endswith(parts.TORCH_ENDINGS) and not TEMPORARY_NAME.search(entry.name)
    ]


def _opens_like_torch(listing: Listing, entry: Entry) -> bool:
    if entry.problem or entry.size < 4:
        return True
    try:
        with opened(listing.path(entry.name)) as reader:
            return torch_file.recognised(reader.read(0, 14))
    except (NotRegular, Unreadable, Vanished):
        return True
