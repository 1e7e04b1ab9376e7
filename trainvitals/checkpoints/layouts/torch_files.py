"""Files of ``torch.save``: one ``.pt``/``.pth``/``.ckpt``/``.bin`` (nanoGPT, Lightning, …) or a directory that holds some."""

from __future__ import annotations

from trainvitals.checkpoints import parts, state_keys, torch_file
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, NotRegular, Unreadable, Vanished, opened
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import lightning
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
        told: list[state_keys.StateKeys] = []
        if any(entry.name.rpartition("/")[2].startswith("optim") for entry in entries):
            has_optimizer = True
        if into_files:
            for entry in entries:
                checked = parts.check_torch(listing, entry, findings)
                if checked is None:
                    continue
                if lightning.is_by_lightning(checked.top) and len(entries) == 1:
                    return lightning.facts_of(checked.top, entry.name, parts.step_from_name(listing.name), findings)
                keys = state_keys.read(checked.top)
                told.append(keys)
                if checked.names_optimizer is not None:
                    has_optimizer = has_optimizer or checked.names_optimizer
            for entry in listing.entries:
                if entry.name.endswith(".json") and not TEMPORARY_NAME.search(entry.name):
                    parts.read_json(listing, entry.name, findings, allow_nonfinite=True)
        else:
            findings.damaged += [f"{entry.name} is empty (0 bytes)" for entry in entries if not entry.size and not entry.problem]
        named = parts.step_from_name(listing.name)
        # A file of an unknown maker may keep what it has under any key: what is not seen is not known to be absent.
        return Facts(
            named if named is not None else next((keys.step for keys in told if keys.step is not None), None),
            has_optimizer,
            has_rng=any(keys.has_rng for keys in told) or None,
            has_scheduler=any(keys.has_scheduler for keys in told) or None,
            has_data_position=any(keys.has_data_position for keys in told) or None,
        )


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
