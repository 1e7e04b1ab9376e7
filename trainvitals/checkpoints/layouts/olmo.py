"""OLMo and OLMo-core: ``stepN``, built as ``stepN-tmp`` and renamed; OLMo also ``stepN-unsharded``.

OLMo-core (``train/checkpoint.py``): ``train/rankR.pt`` of each rank, ``model_and_optim/`` (a PyTorch distributed checkpoint) and
``.metadata.json``, which is written last and, when the checkpoint is removed, deleted first. OLMo (``olmo/checkpoint.py``): the same
or a distributed checkpoint with ``train.pt``, ``config.yaml`` beside it and no ``.metadata.json``; unsharded ``model``, ``optim`` and
``train`` files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import parts, state_keys
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.names import final_name

MARKER = ".metadata.json"
SHARDS = "model_and_optim/"
_DIRECTORY = re.compile(r"step(\d{1,18})(?P<unsharded>-unsharded)?(?:-tmp)?\Z", re.ASCII)
_RANK = re.compile(r"train/rank(\d{1,9})\.pt\Z", re.ASCII)
_UNSHARDED = re.compile(r"(?:model|optim|train)\.(?:pt|safetensors)\Z", re.ASCII)


class Olmo(Layout):
    """See the module."""

    name = "olmo"
    directory = _DIRECTORY

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return False
        names = listing.names
        is_core = any(_RANK.match(name) for name in names) and (distributed.is_here(names, SHARDS) or MARKER in names)
        if is_core:
            return True
        if _DIRECTORY.match(listing.name) is None:
            return False
        has_state = "config.yaml" in names and any(_UNSHARDED.match(name) for name in names)
        # Being built or deleted, it holds only some of its files.
        some = any(_RANK.match(name) for name in names) or distributed.is_here(names, SHARDS)
        return has_state or some

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        named = _DIRECTORY.match(listing.name)
        step = int(named[1]) if named else parts.step_from_name(final_name(listing.name))
        names = listing.names
        if any(_UNSHARDED.match(name) and not name.startswith("train.") for name in names):
            return self._unsharded(listing, findings, step, into_files)
        ranks = sorted(int(found[1]) for name in names if (found := _RANK.match(name)))
        is_core = "config.yaml" not in names
        if is_core and MARKER not in names:
            findings.missing.append(
                f"{MARKER} is missing: it is written last and deleted first, so it was not finished or is deleted"
            )
        if not ranks and "train.pt" not in names:
            findings.missing.append("train/rank0.pt is missing: the state of the trainer")
        elif ranks and len(ranks) <= ranks[-1]:
            findings.missing.append(
                f"train/rank*.pt of {ranks[-1] + 1 - len(ranks)} ranks is missing (the highest rank is {ranks[-1]})"
            )
        prefix = SHARDS if any(name.startswith(SHARDS) for name in names) or not distributed.is_here(names) else ""
        shards = distributed.look(listing, findings, into_files=into_files, prefix=prefix)
        keys = _check_files(listing, findings) if into_files else state_keys.StateKeys()
        return Facts(
            step,
            shards.has_optimizer,
            has_rng=keys.has_rng,
            has_data_position=keys.has_data_position,
            world_size=len(ranks) or shards.world_size,
        )

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        prefix = SHARDS if any(name.startswith(SHARDS) for name in listing.names) else ""
        return distributed.ranges(listing, prefix)

    @staticmethod
    def _unsharded(listing: Listing, findings: Findings, step: int | None, into_files: bool) -> Facts:
        stems = {name.rpartition(".")[0] for name in listing.names if _UNSHARDED.match(name)}
        for stem in ("model", "train"):
            if stem not in stems:
                findings.missing.append(f"{stem}.pt is missing")
        if into_files:
            for entry in listing.entries:
                if TEMPORARY_NAME.search(entry.name):
                    continue
                if entry.name.endswith(".safetensors"):
                    parts.check_safetensors(listing, entry, findings)
                elif entry.name.endswith(parts.TORCH_ENDINGS):
                    parts.check_torch(listing, entry, findings)
        has_state = "train" in stems
        return Facts(step, "optim" in stems, has_rng=has_state or None, has_data_position=has_state or None)


def _check_files(listing: Listing, findings: Findings) -> state_keys.StateKeys:
    keys = state_keys.StateKeys()
    for entry in listing.entries:
        if TEMPORARY_NAME.search(entry.name) or entry.name.startswith(SHARDS):
            continue
        if entry.name.endswith(".pt"):
            checked = parts.check_torch(listing, entry, findings)
            if checked is not None and _is_first(entry):
                keys = state_keys.read(checked.top)
        elif entry.name.endswith(".json"):
            parts.check_json(listing, entry.name, findings)
    _check_step(listing, keys, findings)
    return keys


def _is_first(entry: Entry) -> bool:
    return entry.name in ("train/rank0.pt", "train.pt")


def _check_step(listing: Listing, keys: state_keys.StateKeys, findings: Findings) -> None:
    named = _DIRECTORY.match(listing.name)
    if named is not None and keys.step is not None and keys.step != int(named[1]):
        findings.damaged.append(
            f"{printable('train/rank0.pt')} is of step {keys.step}, the directory is named for step {int(named[1])}"
        )
