"""Several PyTorch distributed checkpoints in directories of one step: ``model/`` and ``optim/``, each saved by a call of its own.

NeMo Automodel (``components/checkpoint/checkpointing.py`` save_model, save_optimizer): ``epoch_E_step_S/{model,optim}/``, weights also
as safetensors of each rank. NeMo-RL (``utils/checkpoint.py`` get_resume_paths): ``step_N/policy/{weights,optimizer}/``, or Megatron-Core's
``policy/weights/iter_0000000/``. verl with Megatron-Core: ``global_step_N/actor/{model,optimizer,extra}/dist_ckpt/``, older ones
``actor/dist_ckpt/`` (see ``verl_contents``). Forks of torchtitan with semi-synchronous replicas: ``step-N/ft-replica-R/``, each whole.
Each part has its own ``.metadata``, and nothing is written after the last of them (but verl's document): the worst part is
the whole's verdict. Automodel makes ``optim/`` when it begins to save the optimizer: an empty one is a save that broke off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainvitals.checkpoints import dcp_directory, parts
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed, verl_contents
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.layouts.megatron import Megatron
from trainvitals.checkpoints.layouts.safetensors_files import SafetensorsFiles

_OPTIMIZER = re.compile(r"(?:[a-z]{1,20}[-_])?optim(?:izer)?s?(?:[-_](?:states?|dict))?", re.ASCII)
_PART = re.compile(
    rf"(?:[a-z]{{1,20}}[-_])?(?:model|weights?|ema)s?(?:[-_](?:states?|dict|weights|ema))?|dist_ckpt|ft-replica-\d{{1,6}}|iter_\d{{7}}|{_OPTIMIZER.pattern}",
    re.ASCII,
)
_RANK = re.compile(r"(?P<stem>.{0,300}?_(?:dp_)?rank_)(?P<rank>\d{1,9})\.pt\Z", re.ASCII | re.DOTALL)
_RNG = re.compile(r"(?:.{0,300}/)?rng/[^/]{1,200}\.pt\Z", re.DOTALL)
_DATA = re.compile(r"(?:.{0,300}/)?(?:dataloader/[^/]{1,200}|(?:train_)?dataloader|data)\.pt\Z", re.DOTALL)


class DcpParts(Layout):
    """See the module."""

    name = "dcp_parts"
    directory = re.compile(r"epoch_\d{1,9}_step_\d{1,18}\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        places = [] if listing.is_file else _places(listing)
        if not places or "" in places or not any(_PART.fullmatch(place.rstrip("/").rpartition("/")[2]) for place in places):
            return False
        # A run's directory holds checkpoints, not parts of one.
        return all(parts.said_step(place.partition("/")[0]) is None for place in places)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        told: list[Facts] = []
        combined: set[str] = set()
        named = parts.said_step(listing.name)
        places = _places(listing)
        for place in places:
            part = distributed.below(listing, place)
            if Megatron().matches(part):
                found = Findings()
                told.append(Megatron().look(part, found, into_files=into_files))
                distributed.take(findings, found, place)
            else:
                told.append(distributed.look(listing, findings, into_files=into_files, prefix=place, named=named))
                if into_files:
                    found = Findings()
                    dcp_directory.check_beside(part, found)
                    distributed.take(findings, found, place)
            if told[-1].has_optimizer and place.endswith("model/dist_ckpt/"):
                combined.add(place.removesuffix("model/dist_ckpt/"))
        verl_contents.check(listing, findings, combined, into_files=into_files)
        _check_empty(listing, findings)
        beside = replace(listing, entries=tuple(entry for entry in listing.entries if _directory(entry.name) not in places))
        _check_beside(beside, findings, into_files)
        names = beside.names
        ranks = _check_ranks(names, findings)
        optimizer = _together(facts.has_optimizer for facts in told)
        if not any(_OPTIMIZER.fullmatch(place.rstrip("/").rpartition("/")[2]) for place in places) and optimizer is False:
            findings.notes.append("none of its parts holds an optimizer: weights alone, or the save broke off between its parts")
        return Facts(
            None,
            optimizer,
            has_rng=_together([any(_RNG.match(name) for name in names) or None, *(facts.has_rng for facts in told)]),
            has_scheduler=_together(facts.has_scheduler for facts in told),
            has_data_position=_together(
                [any(_DATA.match(name) for name in names) or None, *(facts.has_data_position for facts in told)]
            ),
            world_size=max((facts.world_size for facts in told if facts.world_size is not None), default=ranks),
            parallel=next((facts.parallel for facts in told if facts.parallel), {}),
        )

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        found: dict[str, tuple[Range, ...]] = {}
        for place in _places(listing):
            found |= distributed.ranges(listing, place)
        return found


def _check_empty(listing: Listing, findings: Findings) -> None:
    of_verl = tuple(verl_contents.roles(listing))
    for place in sorted(listing.empty):
        if _PART.fullmatch(place.rpartition("/")[2]) and not place.startswith(of_verl):
            findings.missing.append(f"{printable(place)}/ is empty: the save of that part did not finish")


def _directory(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _places(listing: Listing) -> list[str]:
    """Directories that DCP wrote, "" or with ``/`` at the end."""
    return sorted({_directory(name) for name in listing.names if dcp_directory.holds_shards([name.rpartition("/")[2]])})


def _together(said: Iterable[bool | None]) -> bool | None:
    """True when any part has it; False only when each part tells that it has not."""
    every = list(said)
    known = {one for one in every if one is not None}
    return True if True in known else False if False in known and None not in every else None


def _check_beside(listing: Listing, findings: Findings, into_files: bool) -> None:
    for place in sorted({_directory(name) for name in listing.names}):
        part = distributed.below(listing, place)
        part = replace(part, entries=tuple(entry for entry in part.entries if "/" not in entry.name))
        found = Findings()
        if SafetensorsFiles().matches(part):
            SafetensorsFiles().look(part, found, into_files=into_files)
        elif into_files:
            _check_files(part, found)
        distributed.take(findings, found, place)


def _check_files(listing: Listing, findings: Findings) -> None:
    for entry in listing.entries:
        if TEMPORARY_NAME.search(entry.name):
            continue
        if entry.name.endswith(parts.TORCH_ENDINGS):
            parts.check_torch(listing, entry, findings)
        elif entry.name.endswith(".json"):
            parts.check_json(listing, entry.name, findings)


def _check_ranks(names: frozenset[str], findings: Findings) -> int | None:
    """``rng/rng_dp_rank_0.pt``: no rank below the highest may be missing. Returns how many there are."""
    rows: dict[str, set[int]] = {}
    for name in names:
        if found := _RANK.match(name):
            rows.setdefault(found["stem"], set()).add(int(found["rank"]))
    for stem, ranks in sorted(rows.items()):
        lacking = max(ranks) + 1 - len(ranks)
        if lacking:
            findings.missing.append(f"{printable(stem)}*.pt of {lacking} ranks is missing (the highest rank is {max(ranks)})")
    return max((max(ranks) + 1 for ranks in rows.values()), default=None)
