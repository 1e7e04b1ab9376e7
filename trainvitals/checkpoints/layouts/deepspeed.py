"""DeepSpeed: ``global_stepN/{mp_rank_MM_model_states.pt, [bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt, …}``, each rank its own.

Names: ``runtime/engine.py`` (_get_ckpt_name, _get_zero_ckpt_name, _get_expert_ckpt_name, _get_optimizer_ckpt_name) and
``runtime/pipe/module.py`` (layer files). ``latest`` beside the directory is written before the last rank is done, so it proves nothing:
the grid of ranks does. ``utils/zero_to_fp32.py`` refuses when ``partition_count`` differs from the number of optimizer files; ZeRO-3 needs
the model states of every rank (deepspeedai/DeepSpeed issue 7546). A layer without parameters may have no file; which have some stands in
``param_shapes`` of the model states, as ``LAYER.name``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.checkpoints import parts, torch_values
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import grid
from trainvitals.checkpoints.layouts.base import Facts, Layout

DIRECTORY = re.compile(r"global_?step(\d{1,18})\Z", re.ASCII)
_MODEL = re.compile(r"mp_rank_(?P<model>\d{1,6})_model_states\.pt\Z", re.ASCII)
_MODEL_PART = re.compile(r"zero_pp_rank_(?P<data>\d{1,7})_mp_rank_(?P<model>\d{1,6})_model_states\.pt\Z", re.ASCII)
#: Old versions have no underscore before ``optim_states``.
_OPTIMIZER = re.compile(
    r"(?:bf16_|fp16_)?zero_pp_rank_(?P<data>\d{1,7})_mp_rank_(?P<model>\d{1,6})_?optim_states\.pt\Z", re.ASCII
)
_EXPERT_OPTIMIZER = re.compile(r"expp_rank_(?P<data>\d{1,7})_mp_rank_(?P<model>\d{1,6})_optim_states\.pt\Z", re.ASCII)
_EXPERT = re.compile(
    r"(?:layer_(?P<layer>-?\d{1,7})_)?expert_(?P<data>\d{1,7})_mp_rank_(?P<model>\d{1,6})_model_states\.pt\Z", re.ASCII
)
#: Without tensor parallelism the part in the middle is left out.
_LAYER = re.compile(r"layer_(?P<layer>\d{1,7})(?:-model_(?P<model>\d{1,6}))?-model_states\.pt\Z", re.ASCII)
_OF_A_LAYER = re.compile(r"(\d{1,7})\.", re.ASCII)
#: Model states that are asked which layers they hold: one of each stage of the pipeline.
MAX_STAGES = 1_000
_ALL = (_MODEL, _MODEL_PART, _OPTIMIZER, _EXPERT_OPTIMIZER, _EXPERT, _LAYER)


@dataclass
class _Files:
    """Ranks seen in the names of each kind of file: (data or expert rank, model rank)."""

    model: set[int] = field(default_factory=set)
    model_parts: set[tuple[int, int]] = field(default_factory=set)
    optimizer: set[tuple[int, int]] = field(default_factory=set)
    expert_optimizer: set[tuple[int, int]] = field(default_factory=set)
    experts: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    layers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class DeepSpeed(Layout):
    """See the module."""

    name = "deepspeed"
    directory = DIRECTORY
    mark = re.compile("|".join(f"(?:{re.sub(r'[?]P<[a-z]+>', '?:', pattern.pattern)})" for pattern in _ALL), re.ASCII)

    def matches(self, listing: Listing) -> bool:
        return not listing.is_file and any(self.mark.match(name) for name in listing.names)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        files = _sorted(listing.names)
        named = DIRECTORY.match(listing.name)
        step = int(named[1]) if named else parts.said_step(listing.name)
        top: Mapping[str, object] = {}
        partitions = None
        if into_files:
            top, step = _look_into(listing, step, findings)
            partitions = _partition_count(listing)
            if files.layers or ("module" in top and top["module"] is None):
                _check_layers(listing, files, findings)
        else:
            findings.damaged += [
                f"{printable(entry.name)} is empty (0 bytes)" for entry in listing.entries if not entry.size and not entry.problem
            ]
        model_ranks = torch_values.count(top.get("mp_world_size"))
        _check(files, partitions, model_ranks, findings)
        _note_sizes(listing, findings)
        data_ranks = torch_values.count(top.get("dp_world_size")) or len(
            {data for data, _ in files.optimizer | files.model_parts}
        )
        width = model_ranks or len(files.model | {model for _, model in files.optimizer | files.model_parts})
        has_optimizer: bool | None = bool(files.optimizer or files.expert_optimizer)
        if not has_optimizer and "optimizer" in top and top["optimizer"] is None:
            # With ZeRO (and bf16) it is in files of their own, written after this one (``engine.py`` save_checkpoint).
            findings.unproven.append(
                "the optimizer is in no file (*_optim_states.pt): there was none, it was deleted, or the save did not finish"
            )
        if not has_optimizer:
            has_optimizer = top.get("optimizer") is not None if top else None
        return Facts(
            step,
            has_optimizer,
            has_rng=any("rng" in key for key in top) if top else None,
            has_scheduler=top.get("lr_scheduler") is not None if top else None,
            has_data_position=(top.get("data_sampler") is not None or "consumed_train_samples" in top or None) if top else None,
            world_size=data_ranks * width if data_ranks and width else None,
            parallel={name: size for name, size in (("dp", data_ranks), ("mp", width)) if size},
        )


def _sorted(names: frozenset[str]) -> _Files:
    files = _Files()
    for name in names:
        if found := _MODEL.match(name):
            files.model.add(int(found["model"]))
        elif found := _MODEL_PART.match(name):
            files.model_parts.add((int(found["data"]), int(found["model"])))
        elif found := _OPTIMIZER.match(name):
            files.optimizer.add((int(found["data"]), int(found["model"])))
        elif found := _EXPERT_OPTIMIZER.match(name):
            files.expert_optimizer.add((int(found["data"]), int(found["model"])))
        elif found := _EXPERT.match(name):
            files.experts[found["layer"] or ""].add((int(found["data"]), int(found["model"])))
        elif found := _LAYER.match(name):
            files.layers[found["layer"]].add(int(found["model"] or 0))
    return files


def _check(files: _Files, partitions: int | None, model_ranks: int | None, findings: Findings) -> None:
    if not files.model and not files.model_parts:
        findings.missing.append("its model states (*_model_states.pt) are missing")
    if files.model and not files.model_parts:
        count, first = grid.lacking(files.model, model_ranks)
        if count:
            findings.missing.append(
                f"the model states of {count} ranks are missing, the first is mp_rank_{first:02d}_model_states.pt"
            )
    beyond = sorted(data for data, _ in files.optimizer if partitions is not None and data >= partitions)
    if beyond:
        findings.unproven.append(
            f"it holds optimizer files of rank {beyond[-1]}, although {partitions} ranks share the optimizer: files of two saves are mixed"
        )
    for seen, kind, expected in (
        (files.optimizer, "optim_states", partitions),
        (files.model_parts, "model_states", max((data for data, _ in files.optimizer), default=-1) + 1),
    ):
        if not seen:
            continue
        count, (data, model) = grid.lacking_pairs(seen, expected, model_ranks)
        if count:
            findings.missing.append(
                f"the {kind} of {count} ranks are missing, the first is zero_pp_rank_{data}_mp_rank_{model:02d}_{kind}.pt"
            )
    if files.expert_optimizer:
        count, (expert, model) = grid.lacking_pairs(files.expert_optimizer)
        if count:
            findings.missing.append(
                f"the optim_states of {count} expert ranks are missing, the first is expp_rank_{expert}_mp_rank_{model:02d}_optim_states.pt"
            )
    for layer, seen in sorted(files.experts.items()):
        count, (expert, model) = grid.lacking_pairs(seen)
        if count:
            place = f"layer_{layer}_" if layer else ""
            findings.missing.append(
                f"{count} experts are missing, the first is {place}expert_{expert}_mp_rank_{model:02d}_model_states.pt"
            )
    highest = max((max(ranks) for ranks in files.layers.values()), default=-1)
    for layer, ranks in sorted(files.layers.items()):
        count, first = grid.lacking(ranks, highest + 1)
        if count:
            findings.missing.append(f"layer_{layer}-model_{first:02d}-model_states.pt is missing")


def _check_layers(listing: Listing, files: _Files, findings: Findings) -> None:
    """Each layer of a pipeline that has parameters has a file of its own (or one of each tensor rank)."""
    there = {int(layer) for layer in files.layers}
    lacking: set[int] = set()
    states = [entry for entry in listing.entries if _MODEL.match(entry.name)]
    for entry in states[:MAX_STAGES]:
        groups = torch_values.table(listing, entry).get("param_shapes")
        for group in groups if type(groups) is list else []:
            needed = {int(found[1]) for name in torch_values.attributes(group) if (found := _OF_A_LAYER.match(name))}
            lacking |= needed - there
    if lacking:
        findings.missing.append(
            f"the files of {len(lacking)} layers are missing, the first is layer_{min(lacking):02d}-model_states.pt"
        )


def _look_into(listing: Listing, step: int | None, findings: Findings) -> tuple[Mapping[str, object], int | None]:
    """Keys and plain values of the first model state, and the step that all of them say."""
    first: Mapping[str, object] = {}
    steps: dict[int, str] = {}
    for entry in listing.entries:
        if not entry.name.endswith(".pt") or TEMPORARY_NAME.search(entry.name) or "/" in entry.name:
            continue
        checked = parts.check_torch(listing, entry, findings)
        if checked is None or not (_MODEL.match(entry.name) or _MODEL_PART.match(entry.name)):
            continue
        first = first or checked.top.keys
        inner = torch_values.count(checked.top.keys.get("global_steps"))
        if inner is not None:
            steps.setdefault(inner, entry.name)
    if len(steps) > 1:
        (low, name), (high, other) = sorted(steps.items())[:2]
        findings.damaged.append(f"{printable(name)} is of step {low}, {printable(other)} of step {high}: two saves are mixed")
    elif steps and step is not None and step not in steps:
        # The name is the caller's tag, which may count something else.
        findings.unproven.append(f"its files are of step {next(iter(steps))}, the directory is named for step {step}")
    elif steps and step is None:
        return first, next(iter(steps))
    return first, step


def _partition_count(listing: Listing) -> int | None:
    """Data-parallel ranks that hold a part of the optimizer, as one of their files says."""
    entry = next((entry for entry in listing.entries if _OPTIMIZER.match(entry.name) and entry.size), None)
    if entry is None:
        return None
    state = torch_values.attributes(torch_values.table(listing, entry).get("optimizer_state_dict"))
    count = state.get("partition_count")
    # One number for each parameter group (ZeRO-1 and 2) or one for all (ZeRO-3).
    numbers = [torch_values.count(number) for number in (count if type(count) is list else [count])]
    return max((number for number in numbers if number is not None), default=None)


def _note_sizes(listing: Listing, findings: Findings) -> None:
    """Ranks hold equal parts, so one far smaller file is worth a look (facebookresearch/metaseq issue 53); padding makes it no proof."""
    for pattern in (_OPTIMIZER, _MODEL_PART):
        entries = [entry for entry in listing.entries if pattern.match(entry.name) and entry.size]
        if len(entries) < 4:
            continue
        usual = sorted(entry.size for entry in entries)[len(entries) // 2]
        small = [entry for entry in entries if entry.size < usual // 2]
        if small and len(small) <= len(entries) // 8 + 1:
            findings.notes.append(_smaller(small[0], usual))


def _smaller(entry: Entry, usual: int) -> str:
    return f"{printable(entry.name)} has {entry.size} bytes, most files of its kind {usual}"
