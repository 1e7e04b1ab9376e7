"""Accelerate's ``save_state``: ``checkpoint_<i>/`` or any name, also with FSDP or DeepSpeed below it.

``accelerate/checkpointing.py`` save_accelerator_state: model, ``optimizer.bin``, ``scheduler.bin``, ``sampler.bin``, ``scaler.pt`` and last,
by each rank, ``random_states_R.pkl`` (a file of torch.save in spite of its name). ``utils/fsdp_utils.py``: with sharded state dicts
``pytorch_model_fsdp_<i>/`` and ``optimizer_<i>/`` are PyTorch distributed checkpoints. With DeepSpeed ``pytorch_model/`` is one of its.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import parts, torch_file
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import embedded, grid
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range

RANDOM_STATES = re.compile(r"random_states_(\d{1,7})\.pkl\Z", re.ASCII)
_WEIGHTS = re.compile(
    r"(?:model|pytorch_model|pytorch_model_fsdp)(?:_\d{1,4})?(?:_rank\d{1,7})?(?:-\d{5}-of-\d{5})?\.(?:bin|safetensors)\Z",
    re.ASCII,
)
#: Where a script saves the model itself, by a hook of ``save_state``: ``unet/diffusion_pytorch_model.safetensors``, LoRA weights.
_OF_A_HOOK = re.compile(
    r".{0,300}(?:model|weights|adapter|lora)[^/]{0,60}\.(?:safetensors|bin|pt)\Z", re.ASCII | re.DOTALL | re.IGNORECASE
)
_OPTIMIZER = re.compile(r"optimizer(?:_\d{1,4})?(?:_rank\d{1,7})?\.bin\Z", re.ASCII)
_OF_RANK = re.compile(r"(?P<stem>(?:pytorch_model_fsdp|optimizer)(?:_\d{1,4})?)_rank(?P<rank>\d{1,7})\.bin\Z", re.ASCII)
_STATE = re.compile(r"(?P<kind>scheduler|sampler|dl_state_dict)(?:_\d{1,4})?\.bin\Z", re.ASCII)
_STEP = re.compile(r"(?:step|checkpoint|ckpt)[-_]?(\d{1,18})\Z", re.ASCII | re.IGNORECASE)


class Accelerate(Layout):
    """See the module."""

    name = "accelerate"
    name_tells_step = False
    directory = re.compile(r"checkpoint_\d{1,18}\Z", re.ASCII)
    mark = RANDOM_STATES

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return False
        names = listing.names
        if any(RANDOM_STATES.match(name) for name in names) or any(
            embedded.is_fsdp(prefix) for prefix in embedded.prefixes(names)
        ):
            return True
        return self.directory.match(listing.name) is not None and any(_OPTIMIZER.match(name) for name in names)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        names = listing.names
        inner = embedded.look(listing, findings, into_files=into_files)
        ranks = {int(found[1]) for name in names if (found := RANDOM_STATES.match(name))}
        if not ranks:
            findings.missing.append("random_states_0.pkl is missing: it is written last, so the save did not finish")
        rows = _rows(names)
        world_size = max(len(ranks), inner.world_size or 0, *(max(row) + 1 for row in rows.values()))
        count, first = grid.lacking(ranks, world_size)
        if ranks and count:
            findings.missing.append(f"random_states of {count} ranks are missing, the first is random_states_{first}.pkl")
        for stem, row in sorted(rows.items()):
            count, first = grid.lacking(row, world_size)
            if count:
                findings.missing.append(f"{stem} of {count} ranks is missing, the first is {stem}_rank{first}.bin")
        if not inner.has_model and not any(_WEIGHTS.match(name) or _OF_A_HOOK.match(name) for name in names):
            findings.missing.append("no model weights")
        parts.check_shards(names, findings)
        if into_files:
            _check_files(listing, findings)
        else:
            findings.damaged += [
                f"{printable(entry.name)} is empty (0 bytes)"
                for entry in listing.entries
                if not entry.size and not entry.problem and not TEMPORARY_NAME.search(entry.name) and "/" not in entry.name
            ]
        kinds = {found["kind"] for name in names if (found := _STATE.match(name))}
        # Its own checkpoint_<i> counts saves, not steps.
        named = None if self.directory.match(listing.name) else _STEP.search(listing.name)
        return Facts(
            int(named[1]) if named else None,
            inner.has_optimizer or any(_OPTIMIZER.match(name) for name in names),
            has_rng=bool(ranks),
            has_scheduler="scheduler" in kinds or inner.has_scheduler,
            has_data_position=bool(kinds & {"sampler", "dl_state_dict"}),
            world_size=world_size or None,
            parallel=inner.parallel,
        )

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return embedded.ranges(listing)


def _rows(names: frozenset[str]) -> dict[str, set[int]]:
    """``pytorch_model_fsdp_0_rank3.bin``: with local state dicts each rank writes its own part."""
    rows: dict[str, set[int]] = {}
    for name in names:
        if found := _OF_RANK.match(name):
            rows.setdefault(found["stem"], set()).add(int(found["rank"]))
    return rows


def _check_files(listing: Listing, findings: Findings) -> None:
    inside = tuple(embedded.prefixes(listing.names))
    for entry in listing.entries:
        name = entry.name
        if name.startswith(inside) or TEMPORARY_NAME.search(name):
            continue
        if name.endswith(".safetensors"):
            parts.check_safetensors(listing, entry, findings)
        elif name.endswith(parts.TORCH_ENDINGS):
            parts.check_torch(listing, entry, findings)
        elif name.endswith(".pkl"):
            parts.check_with(listing, entry, findings, torch_file.check, torch_file.BadTorchFile)
        elif name.endswith(".index.json") and "/" not in name:
            parts.check_index(listing, name, findings)
        elif name.endswith(".json"):
            parts.check_json(listing, name, findings)
