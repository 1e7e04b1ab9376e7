"""NVIDIA NeMo: Lightning's names with a metric, a marker ``<name>-unfinished`` while saved or deleted, directories of Megatron-Core.

``nemo/utils/callbacks/nemo_model_checkpoint.py`` sets the marker before a save and before a deletion and takes it away after it.
NeMo 2 lays ``weights/`` (a distributed checkpoint) and ``context/`` into the directory; ``.nemo`` is a tar file of weights and config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import parts, tar_file
from trainvitals.checkpoints.files import Entry, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed, lightning
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.layouts.megatron import COMMON, MARKER, Megatron

#: ``megatron_gpt--val_loss=2.51-step=500-consumed_samples=16000.0-last``: exp_manager's default joins name and metric by two dashes.
_NAME = r"(?=.{1,300}?--).{0,300}?-(?:step|epoch|val_loss|train_loss|reduced_train_loss)=\d.{0,300}|.{0,300}?consumed_samples=\d.{0,300}"
_LAST = re.compile(r"-last(?:-v\d{1,9})?(?:-EMA)?(?:\.ckpt)?\Z", re.ASCII)
WEIGHTS = "weights/"


class NeMo(Layout):
    """See the module."""

    name = "nemo"
    directory = re.compile(rf"(?:{_NAME})\Z", re.ASCII | re.DOTALL)
    file = re.compile(rf"(?:(?:{_NAME})\.ckpt|.{{1,300}}\.nemo)\Z", re.ASCII | re.DOTALL)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return bool(self.file.match(listing.name) or (listing.marker and listing.name.endswith(".ckpt")))
        names = listing.names
        has_weights = distributed.is_here(names, WEIGHTS)
        if has_weights and any(name.startswith("context/") for name in names):
            return True
        is_named = bool(self.directory.match(listing.name) or listing.marker)
        return is_named and (not names or has_weights or distributed.is_here(names))

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        if listing.marker:
            findings.missing.append(
                f"{printable(listing.marker)} lies beside it: NeMo is saving or deleting it, or stopped while it did"
            )
        named = lightning.step_in_name(listing.name)
        if not listing.is_file:
            return self._directory(listing, findings, named, into_files)
        entry = listing.entries[0]
        if not entry.size and not entry.problem:
            findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
        if not into_files or not entry.size:
            return Facts(named, False if entry.name.endswith(".nemo") else None)
        if entry.name.endswith(".nemo"):
            _check_tar(listing, entry, findings)
            return Facts(named, False)
        checked = parts.check_torch(listing, entry, findings)
        if checked is None:
            return Facts(named, None)
        return lightning.facts_of(checked.top, entry.name, named, findings)

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return {} if listing.is_file else distributed.ranges(listing, _prefix(listing))

    @staticmethod
    def _directory(listing: Listing, findings: Findings, named: int | None, into_files: bool) -> Facts:
        prefix = _prefix(listing)
        found = Findings()
        facts = Megatron().look(distributed.below(listing, prefix), found, into_files=into_files)
        # NeMo names its tensors as torch_dcp does, but saves with Megatron-Core, which writes the two.
        part = {name[len(prefix) :] for name in listing.names if name.startswith(prefix)}
        if COMMON in part and MARKER not in part and not found.missing:
            found.missing.append(f"{MARKER} is missing: it is written after all other files, so the save was not finalised")
        distributed.take(findings, found, prefix)
        if into_files:
            for entry in listing.entries:
                if entry.name.startswith("context/") and entry.name.endswith(".json"):
                    parts.read_json(listing, entry.name, findings, allow_nonfinite=True, is_long=True)
        return Facts(
            named,
            facts.has_optimizer,
            # What is not among its tensors may lie in the common state or the context.
            has_rng=facts.has_rng or None,
            has_scheduler=facts.has_scheduler or None,
            has_data_position=facts.has_data_position or None,
            world_size=facts.world_size,
            parallel=facts.parallel,
        )


def is_last(name: str) -> bool:
    """Whether NeMo would take it for the newest one by its name (``-last``)."""
    return _LAST.search(name) is not None


def _prefix(listing: Listing) -> str:
    return WEIGHTS if any(name.startswith(WEIGHTS) for name in listing.names) else ""


def _check_tar(listing: Listing, entry: Entry, findings: Findings) -> None:
    tar = parts.check_with(listing, entry, findings, tar_file.check, tar_file.BadTar)
    if tar is None:
        return
    if tar.unproven:
        findings.unproven.append(f"{printable(entry.name)}: {tar.unproven}")
    findings.notes.append("holds the weights and the configuration for use, not the state of training")
