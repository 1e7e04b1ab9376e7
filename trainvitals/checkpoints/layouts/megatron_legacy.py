"""Megatron-LM ``--ckpt-format torch``: ``iter_%07d/mp_rank_TT[_PPP][_EEE]/{model_optim_rng.pt, distrib_optim.pt, …}``.

Names: ``training/checkpointing.py`` get_checkpoint_name: PPP only when pipeline parallelism is on, EEE only when expert parallelism is;
with one suffix the name alone does not tell which, the arguments inside do. Files grow in place and no file says that the save has
finished (only the tracker beside the directory does), so the full grid of ranks is the mark. With expert parallelism not every pair of
tensor and expert rank exists; each tensor rank has equally many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.checkpoints import parts, torch_values
from trainvitals.checkpoints.dcp_directory import holds_shards
from trainvitals.checkpoints.files import TEMPORARY_NAME, Entry, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import grid
from trainvitals.checkpoints.layouts.base import Facts, Layout
from trainvitals.checkpoints.layouts.megatron import DIRECTORY, parallel_sizes
from trainvitals.checkpoints.torch_file import TorchFile

MODEL = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
_RANK = re.compile(
    r"mp_rank_(?P<tensor>\d{2,5})(?:_(?P<first>\d{3,6}))?(?:_(?P<second>\d{3,6}))?/(?P<file>[^/]{1,80})\Z", re.ASCII
)
_LAYER_WISE = re.compile(r"layer_wise_optimizer_(\d{1,6})\.pt\Z", re.ASCII)


@dataclass
class _Ranks:
    """files: directory of one rank -> names in it. places: directory -> (tensor, first suffix, second suffix), -1 = no such."""

    files: dict[str, set[str]] = field(default_factory=dict)
    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)


class MegatronLegacy(Layout):
    """See the module."""

    name = "megatron"
    directory = DIRECTORY

    def matches(self, listing: Listing) -> bool:
        if listing.is_file or holds_shards(listing.names):
            return False
        return any((found := _RANK.match(name)) and _is_ours(found["file"]) for name in listing.names)

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        ranks = _Ranks()
        for name in sorted(listing.names):
            if found := _RANK.match(name):
                directory = name.rpartition("/")[0]
                ranks.files.setdefault(directory, set()).add(found["file"])
                first, second = found["first"], found["second"]
                ranks.places[directory] = (int(found["tensor"]), int(first) if first else -1, int(second) if second else -1)
        named = DIRECTORY.match(listing.name)
        step = int(named[1]) if named else parts.said_step(listing.name)
        arguments: Mapping[str, object] = {}
        inside: list[TorchFile] = []
        if into_files:
            inside, arguments = _look_into(listing, step, findings)
        else:
            findings.damaged += [
                f"{printable(entry.name)} is empty (0 bytes)" for entry in listing.entries if not entry.size and not entry.problem
            ]
        sizes = parallel_sizes(arguments)
        _check_grid(ranks, sizes, findings)
        has_optimizer: bool | None = _check_optimizer(ranks, findings)
        tops = [checked.top.keys for checked in inside if checked.top.keys]
        if not has_optimizer:
            has_optimizer = any(top.get("optimizer") is not None for top in tops) if tops else None
        return Facts(
            step,
            has_optimizer,
            has_rng=any("rng_state" in top for top in tops) if tops else None,
            has_scheduler=any("opt_param_scheduler" in top or "lr_scheduler" in top for top in tops) if tops else None,
            has_data_position="consumed_train_samples" in arguments or None,
            world_size=torch_values.count(arguments.get("world_size")),
            parallel=sizes or _sizes_of_names(ranks),
        )


def _is_ours(file: str) -> bool:
    return file in (MODEL, OPTIMIZER) or _LAYER_WISE.match(file) is not None


def _sizes_of_names(ranks: _Ranks) -> dict[str, int]:
    places = ranks.places.values()
    sizes = {"tp": max((tensor for tensor, _, _ in places), default=-1) + 1}
    if all(second >= 0 for _, _, second in places):
        sizes |= {"pp": max(first for _, first, _ in places) + 1, "ep": max(second for *_, second in places) + 1}
    return sizes


def _check_grid(ranks: _Ranks, sizes: Mapping[str, int], findings: Findings) -> None:
    without = sorted(directory for directory, files in ranks.files.items() if MODEL not in files)
    if without:
        findings.missing.append(f"{printable(without[0])}/{MODEL} is missing" + _more(len(without)))
    if len({(first >= 0, second >= 0) for _, first, second in ranks.places.values()}) > 1:
        findings.missing.append("its mp_rank directories are named in two ways: two saves with different parallelism lie in it")
        return
    places = list(ranks.places.values())
    # One suffix is the pipeline rank or, without a pipeline, the expert rank: only the arguments tell.
    has_two = any(second >= 0 for *_, second in places)
    is_unclear = not has_two and not sizes and any(first >= 0 for _, first, _ in places)
    is_expert = has_two or is_unclear or (sizes.get("ep", 1) > 1 and sizes.get("pp", 1) == 1)
    kind = "pipeline or expert" if is_unclear else "expert"
    if not is_expert:
        count, (tensor, pipeline) = grid.lacking_pairs(
            {(tensor, max(first, 0)) for tensor, first, _ in places}, sizes.get("tp"), sizes.get("pp")
        )
        if count:
            suffix = f"_{pipeline:03d}" if places[0][1] >= 0 else ""
            findings.missing.append(f"the files of {count} ranks are missing, the first is mp_rank_{tensor:02d}{suffix}/{MODEL}")
        return
    pairs = Counter((tensor, first if second >= 0 else 0) for tensor, first, second in places)
    count, (tensor, pipeline) = grid.lacking_pairs(pairs.keys(), sizes.get("tp"), sizes.get("pp"))
    if count:
        findings.missing.append(f"all files of {count} tensor and pipeline ranks are missing, the first is tensor rank {tensor}")
    most = max(pairs.values())
    fewer = sorted(pair for pair, number in pairs.items() if number < most)
    if fewer:
        findings.missing.append(
            f"the files of {most - pairs[fewer[0]]} {kind} ranks of tensor rank {fewer[0][0]}, pipeline rank {fewer[0][1]} are missing"
        )
    count, expert = grid.lacking({second if second >= 0 else first for _, first, second in places}, sizes.get("ep"))
    if count:
        findings.missing.append(f"the files of {count} {kind} ranks are missing, the first is {expert}")


def _check_optimizer(ranks: _Ranks, findings: Findings) -> bool:
    having = {directory for directory, files in ranks.files.items() if OPTIMIZER in files}
    if having and len(having) < len(ranks.files):
        lost = sorted(ranks.files.keys() - having)
        text = f"{printable(lost[0])}/{OPTIMIZER} is missing, others have it" + _more(len(lost))
        # Which ranks of an expert grid write it depends on how dense and expert parallelism overlap.
        is_expert = any(second >= 0 for *_, second in ranks.places.values())
        (findings.unproven if is_expert else findings.missing).append(text)
    numbers = {
        directory: {int(found[1]) for file in files if (found := _LAYER_WISE.match(file))}
        for directory, files in ranks.files.items()
    }
    most = max((max(found, default=-1) + 1 for found in numbers.values()), default=0)
    for directory, there in sorted(numbers.items()):
        count, first = grid.lacking(there, most)
        if count:
            findings.missing.append(f"{printable(directory)}/layer_wise_optimizer_{first}.pt is missing" + _more(count))
            break
    return bool(having) or most > 0


def _look_into(listing: Listing, step: int | None, findings: Findings) -> tuple[list[TorchFile], Mapping[str, object]]:
    """What the model files are, and the arguments in the first."""
    inside: list[TorchFile] = []
    arguments: Mapping[str, object] = {}
    iterations: dict[int, str] = {}
    for entry in listing.entries:
        if not entry.name.endswith(parts.TORCH_ENDINGS) or TEMPORARY_NAME.search(entry.name):
            continue
        checked = parts.check_torch(listing, entry, findings)
        if checked is None or not entry.name.endswith(f"/{MODEL}"):
            continue
        inside.append(checked)
        arguments = arguments or _arguments(listing, entry)
        iteration = checked.top.keys.get("iteration")
        if type(iteration) is int:
            iterations.setdefault(iteration, entry.name)
    if len(iterations) > 1:
        (first, name), (second, other) = sorted(iterations.items())[:2]
        findings.damaged.append(f"{printable(name)} is of iteration {first}, {printable(other)} of iteration {second}")
    elif iterations and step is not None and step not in iterations:
        (inner,) = iterations
        findings.damaged.append(f"its files are of iteration {inner}, the directory is named for iteration {step}")
    return inside, arguments


def _arguments(listing: Listing, entry: Entry) -> Mapping[str, object]:
    return torch_values.attributes(torch_values.table(listing, entry).get("args"))


def _more(count: int) -> str:
    return f" (and {count - 1} more like it)" if count > 1 else ""
