"""MosaicML Composer: ``ep{E}-ba{B}-rank{R}.pt`` (one per rank that saves), or a directory ``ep{E}-ba{B}`` when it is sharded.

``composer/callbacks/checkpoint_saver.py`` and ``utils/checkpoint.py``: files are written in place, without a temporary name, and the
link ``latest-rank{R}.pt`` is moved afterwards. The state holds {"state": {"model", "optimizers", "schedulers", "timestamp", ...}, "rng"}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.checkpoints import parts, state_keys
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.pickle_scan import Table

_BATCH = re.compile(r"ep\d{1,9}-ba(\d{1,18})(?!\d)", re.ASCII)
_RANK = re.compile(r"-rank(\d{1,9})\.pt\Z", re.ASCII)


class Composer(Layout):
    """See the module."""

    name = "composer"
    directory = re.compile(r"ep\d{1,9}-ba\d{1,18}(?:-rank\d{1,9})?\Z", re.ASCII)
    file = re.compile(r"ep\d{1,9}-ba\d{1,18}-rank\d{1,9}\.pt\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return self.file.match(listing.name) is not None
        names = listing.names
        return self.directory.match(listing.name) is not None and (not names or distributed.is_here(names))

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        found = _BATCH.match(listing.name)
        step = int(found[1]) if found else None
        if not listing.is_file:
            facts = distributed.look(listing, findings, into_files=into_files, named=step)
            return Facts(
                step,
                facts.has_optimizer,
                has_rng=facts.has_rng,
                has_scheduler=facts.has_scheduler,
                has_data_position=facts.has_data_position,
                world_size=facts.world_size,
            )
        ranks = sorted(int(rank[1]) for entry in listing.entries if (rank := _RANK.search(entry.name)))
        _check_ranks(ranks, findings)
        facts = Facts(step, None)
        for entry in listing.entries:
            if not into_files:
                if not entry.size and not entry.problem:
                    findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
                continue
            checked = parts.check_torch(listing, entry, findings)
            if checked is None:
                continue
            _check_step(checked.top, entry.name, step, findings)
            if entry.name == listing.name:
                facts = _facts(checked.top, step)
        # One file alone is the usual save by rank 0 of any number of ranks.
        return facts if len(ranks) < 2 else _with_ranks(facts, len(ranks))

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return {} if listing.is_file else distributed.ranges(listing)


def _check_step(top: Table, name: str, step: int | None, findings: Findings) -> None:
    """``state.timestamp`` holds the batch that Composer put into the name (``core/state.py``, by the class of the clock: Timestamp)."""
    state = top.keys.get("state")
    clock = state.keys.get("timestamp") if isinstance(state, Table) else None
    inner = clock.keys.get("Timestamp", clock) if isinstance(clock, Table) else None
    batch = inner.keys.get("batch") if isinstance(inner, Table) else None
    if type(batch) is int and step is not None and batch != step:
        findings.unproven.append(f"{printable(name)} is of batch {batch}, its name says {step}: renamed, or of another save")


def _check_ranks(ranks: list[int], findings: Findings) -> None:
    lacking = ranks[-1] + 1 - len(ranks) if ranks else 0
    if lacking > 0 and len(ranks) > 1:
        findings.missing.append(f"the files of {lacking} ranks are missing (the highest rank is {ranks[-1]})")


def _facts(top: Table, step: int | None) -> Facts:
    state = top.keys.get("state")
    if not isinstance(state, Table):
        return Facts(step, state_keys.read(top).has_optimizer)
    keys = state_keys.read(state)
    return Facts(
        step,
        keys.has_optimizer,
        has_rng="rng" in top.keys or bool(keys.has_rng),
        has_scheduler=keys.has_scheduler,
        has_data_position=keys.has_data_position,
    )


def _with_ranks(facts: Facts, ranks: int) -> Facts:
    return Facts(
        facts.step,
        facts.has_optimizer,
        has_rng=facts.has_rng,
        has_scheduler=facts.has_scheduler,
        has_data_position=facts.has_data_position,
        world_size=ranks,
    )
