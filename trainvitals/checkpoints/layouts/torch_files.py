"""Files of ``torch.save``: one ``.pt``/``.pth``/``.ckpt``/``.bin`` (nanoGPT, Lightning, …) or a directory that holds some."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.checkpoints import parts, state_keys, torch_file
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, NotRegular, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import lightning
from trainvitals.checkpoints.layouts.base import Facts, Layout

_RANK = re.compile(r"(?P<stem>.{0,300}?)world_size_(?P<size>\d{1,9})_rank_(?P<rank>\d{1,9})\.pt\Z", re.ASCII | re.DOTALL)


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
        world_size = check_ranks(entries, findings)
        if into_files:
            for entry in entries:
                checked = parts.check_torch(listing, entry, findings)
                if checked is None:
                    continue
                if lightning.is_by_lightning(checked.top) and len(entries) == 1:
                    return lightning.facts_of(checked.top, entry.name, parts.said_step(listing.name), findings)
                keys = state_keys.read(checked.top)
                told.append(keys)
                if checked.names_optimizer is not None:
                    has_optimizer = has_optimizer or checked.names_optimizer
            for entry in listing.entries:
                if entry.name.endswith(".json") and not TEMPORARY_NAME.search(entry.name):
                    parts.check_json(listing, entry.name, findings)
        else:
            findings.damaged += [f"{entry.name} is empty (0 bytes)" for entry in entries if not entry.size and not entry.problem]
        named = parts.said_step(listing.name)
        inside = next((keys.step for keys in told if keys.step is not None), None)
        if named is not None and inside is not None and named != inside:
            findings.notes.append(
                f"its state holds step {inside}, its name says {named}: renamed, copied, or counted in another way"
            )
        # A file of an unknown maker may keep what it has under any key: what is not seen is not known to be absent.
        return Facts(
            inside if named is None else None,
            has_optimizer,
            has_rng=any(keys.has_rng for keys in told) or None,
            has_scheduler=any(keys.has_scheduler for keys in told) or None,
            has_data_position=any(keys.has_data_position for keys in told) or None,
            world_size=world_size,
        )


def check_ranks(entries: Iterable[Entry], findings: Findings) -> int | None:
    """``model_world_size_8_rank_0.pt`` (verl, ``fsdp_checkpoint_manager.py``): the names tell how many there must be."""
    ranks: dict[tuple[str, int], set[int]] = {}
    for entry in entries:
        if found := _RANK.match(entry.name):
            ranks.setdefault((found["stem"], int(found["size"])), set()).add(int(found["rank"]))
    for stem in sorted({stem for stem, _ in ranks}):
        sizes = sorted(size for other, size in ranks if other == stem)
        if len(sizes) > 1:
            shown = " and of ".join(f"{size}" for size in sizes)
            findings.notes.append(
                f"{printable(stem)}* of {shown} ranks lie side by side: files of two saves with different numbers of ranks"
            )
    for (stem, size), there in sorted(ranks.items()):
        # Bounded: the size comes from a name that anybody can write.
        lacking = next((rank for rank in range(min(size, len(there) + 1)) if rank not in there), None)
        if lacking is not None:
            findings.missing.append(
                f"files of {size - len(there)} of {size} ranks are missing, the first is "
                f"{printable(f'{stem}world_size_{size}_rank_{lacking}.pt')}"
            )
    return max((size for _, size in ranks), default=None)


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
