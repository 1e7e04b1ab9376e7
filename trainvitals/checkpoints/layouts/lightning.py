"""PyTorch Lightning: ``epoch=E-step=S.ckpt``, ``last.ckpt``, ``hpc_ckpt_N.ckpt``, and a directory when the strategy is sharded.

A file is written to a temporary place and moved (``fabric/utilities/cloud_io.py`` _atomic_save), so its name is whole or absent. A
sharded one is a directory with a PyTorch distributed checkpoint (``.metadata``, ``*.distcp``) and ``meta.pt``, which rank 0 writes
last (``strategies/model_parallel.py``, ``fsdp.py`` save_checkpoint). Keys: ``checkpoint_connector.py`` dump_checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainvitals.checkpoints import parts, state_keys
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.layouts.deepspeed import DeepSpeed
from trainvitals.checkpoints.pickle_scan import Table

SHARDED_META = "meta.pt"
DEEPSPEED_TAG = "checkpoint/"
_NAMED_STEP = re.compile(r"(?:\A|[-_])(?:global_)?step=(\d{1,18})(?!\d)", re.ASCII)
_NAME = r"(?:.{0,300}?(?:epoch|step)=\d{1,18}.{0,300}|last(?:-v\d{1,9})?|hpc_ckpt_\d{1,9})\.ckpt\Z"


class Lightning(Layout):
    """See the module."""

    name = "lightning"
    directory = re.compile(_NAME, re.ASCII | re.DOTALL)
    file = re.compile(_NAME, re.ASCII | re.DOTALL)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return self.file.match(listing.name) is not None
        names = listing.names
        if SHARDED_META in names:
            return distributed.METADATA in names or any(name.endswith(".distcp") for name in names)
        return self.directory.match(listing.name) is not None and (
            not names or distributed.is_here(names) or _is_by_deepspeed(listing)
        )

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        return self._file(listing, findings, into_files) if listing.is_file else self._sharded(listing, findings, into_files)

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return {} if listing.is_file else distributed.ranges(listing)

    def _file(self, listing: Listing, findings: Findings, into_files: bool) -> Facts:
        entry = listing.entries[0]
        named = step_in_name(listing.name)
        if not into_files:
            if not entry.size and not entry.problem:
                findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
            return Facts(named, None)
        checked = parts.check_torch(listing, entry, findings)
        return facts_of(checked.top if checked is not None else Table(), entry.name, named, findings)

    def _sharded(self, listing: Listing, findings: Findings, into_files: bool) -> Facts:
        named = step_in_name(listing.name)
        if _is_by_deepspeed(listing):
            return _deepspeed(listing, findings, named, into_files)
        shards = distributed.look(listing, findings, into_files=into_files)
        meta = next((entry for entry in listing.entries if entry.name == SHARDED_META), None)
        facts = Facts(named, None)
        if meta is None:
            findings.missing.append(f"{SHARDED_META} is missing: it is written last, so the save did not finish")
        elif into_files:
            checked = parts.check_torch(listing, meta, findings)
            if checked is not None:
                facts = facts_of(checked.top, SHARDED_META, named, findings, is_weights_elsewhere=True)
        return Facts(
            facts.step if facts.step is not None else named,
            shards.has_optimizer if shards.has_optimizer is not None else facts.has_optimizer,
            has_rng=facts.has_rng,
            has_scheduler=facts.has_scheduler,
            has_data_position=facts.has_data_position,
            world_size=shards.world_size,
        )


def _is_by_deepspeed(listing: Listing) -> bool:
    """``DeepSpeedStrategy`` lets DeepSpeed save into the directory, under the tag ``checkpoint``."""
    return DeepSpeed().matches(distributed.below(listing, DEEPSPEED_TAG))


def _deepspeed(listing: Listing, findings: Findings, named: int | None, into_files: bool) -> Facts:
    found = Findings()
    facts = DeepSpeed().look(distributed.below(listing, DEEPSPEED_TAG), found, into_files=into_files)
    distributed.take(findings, found, DEEPSPEED_TAG)
    if "latest" not in listing.names:
        findings.missing.append("latest is missing: DeepSpeed writes it last, so the save did not finish")
    return replace(facts, step=named if named is not None else facts.step)


def step_in_name(name: str) -> int | None:
    """``epoch=1-step=500.ckpt`` -> 500. ``hpc_ckpt_3`` and ``last`` say no step: the 3 counts the saves before a job's end."""
    found = _NAMED_STEP.search(name)
    return int(found[1]) if found else None


def is_by_lightning(top: Table) -> bool:
    """Whether the keys of a state are those that Lightning's Trainer writes."""
    return "pytorch-lightning_version" in top.keys


def facts_of(top: Table, name: str, named: int | None, findings: Findings, *, is_weights_elsewhere: bool = False) -> Facts:
    """What Lightning's own keys say; nothing when they are not there."""
    if not is_by_lightning(top):
        if top.keys:
            findings.notes.append(f"{printable(name)} lacks the keys that Lightning writes (global_step, state_dict, loops)")
        return Facts(named, state_keys.read(top).has_optimizer)
    if not is_weights_elsewhere and not ({"state_dict", "state"} & top.keys.keys()):
        findings.damaged.append(f"{printable(name)} holds no state_dict, so no model weights")
    keys = state_keys.read(top)
    if named is not None and keys.step is not None and keys.step != named:
        # A user may log a metric called "step", and Lightning then puts that into the name: no proof of damage.
        findings.unproven.append(
            f"{printable(name)} is of step {keys.step}, its name says {named}: renamed, or a metric named step was logged"
        )
    return Facts(
        keys.step if keys.step is not None else named,
        keys.has_optimizer,
        has_rng=keys.has_rng,
        has_scheduler=keys.has_scheduler,
        has_data_position=keys.has_data_position,
    )
