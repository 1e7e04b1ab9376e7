"""Hugging Face Trainer: ``checkpoint-N/``, written file by file in place, ``trainer_state.json`` last.

Order seen by polling transformers 5.24: config, weights (through ``.tmpXXXX``), training_args.bin, optimizer.pt, scheduler.pt,
rng_state.pth, trainer_state.json. There is no staging directory, so the last file is the only mark of completeness.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from trainvitals.checkpoints import parts
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import embedded, grid
from trainvitals.checkpoints.layouts.base import Facts, Layout, Range
from trainvitals.checkpoints.names import final_name

MARKER = "trainer_state.json"
POINTER = "latest"
MAX_POINTER_BYTES = 1024
_TAG = re.compile(r"(global_step\d{1,18})/[^/]{1,200}_?(?:model|optim)_states\.pt\Z", re.ASCII)
#: It holds the whole log history; above this it is parsed only when the structure is looked at, once per checkpoint.
LONG_MARKER_BYTES = 1 << 20
_DIRECTORY = re.compile(r"checkpoint-(\d{1,18})\Z")
_WEIGHTS = re.compile(
    r"(?:model|pytorch_model|adapter_model)(?:-\d{5}-of-\d{5})?\.(?:safetensors|bin)\Z"
    r"|(?:pytorch_model_fsdp_\d+|global_step\d+)/.|pytorch_model_fsdp\.bin\Z"
)
_OPTIMIZER = re.compile(r"optimizer\.(?:pt|bin)\Z|optimizer_\d+/.|global_step\d+/.*optim_states\.pt\Z")
#: Accelerate's ``save_state`` under a name of the Trainer's, as the scripts of diffusers call it; the Trainer writes no such file.
_BY_ACCELERATE = frozenset(("random_states_0.pkl", "random_states_1.pkl"))
_RNG = re.compile(r"rng_state_(\d{1,9})\.pth\Z")
#: What the Trainer writes beside weights and training state. A directory that is only named like its own may be anybody's.
_BESIDE = re.compile(
    r"(?:config|generation_config|adapter_config|tokenizer|tokenizer_config|special_tokens_map|vocab|added_tokens)\.json"
    r"|training_args\.bin|scheduler\.pt|scaler\.pt|rng_state\.pth|latest\Z"
)
_INDEX = re.compile(r"[\w.-]+\.(?:safetensors|bin)\.index\.json\Z")


class HuggingFace(Layout):
    """See the module."""

    name = "huggingface"
    directory = _DIRECTORY
    mark = re.compile(r"trainer_state\.json\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return False
        # Under another name and without its marker it is still known by what only the Trainer writes side by side.
        names = listing.names
        if MARKER not in names and not _BY_ACCELERATE.isdisjoint(names):
            return False
        if MARKER in names or names >= {"scheduler.pt", "training_args.bin"}:
            return True
        return _DIRECTORY.match(final_name(listing.name)) is not None and (not names or any(_is_known(name) for name in names))

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        names = listing.names
        named_step = _DIRECTORY.match(final_name(listing.name))
        step = int(named_step[1]) if named_step else None
        has_optimizer = any(_OPTIMIZER.match(name) for name in names)
        inner = embedded.look(listing, findings, into_files=into_files)
        _check_names(listing, has_optimizer, inner.world_size, findings)
        loss = None
        is_long = any(entry.name == MARKER and entry.size > LONG_MARKER_BYTES for entry in listing.entries)
        state = None
        if into_files or not is_long:
            state = parts.read_json(listing, MARKER, findings, allow_nonfinite=True, is_long=True)
        if state is not None:
            step, loss = _state(state, step, findings)
        if into_files:
            _check_files(listing, findings)
        ranks = _ranks(names)
        return Facts(
            step,
            has_optimizer,
            loss,
            has_rng=bool(ranks) or "rng_state.pth" in names,
            has_scheduler="scheduler.pt" in names or inner.has_scheduler or False,
            # The Trainer skips the batches that were used up: global_step is its data position.
            has_data_position=MARKER in names,
            world_size=len(ranks) or inner.world_size,
            parallel=inner.parallel,
        )

    def is_without_state(self, name: str) -> bool:
        is_state = name == MARKER or _is_known(name) or name.endswith((".safetensors", *parts.TORCH_ENDINGS)) or "/" in name
        return super().is_without_state(name) or not is_state

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        return embedded.ranges(listing)


def _is_known(name: str) -> bool:
    return any(pattern.match(name) for pattern in (_WEIGHTS, _OPTIMIZER, _RNG, _INDEX, _BESIDE))


def _ranks(names: frozenset[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := _RNG.match(name))}


def _check_names(listing: Listing, has_optimizer: bool, world_size: int | None, findings: Findings) -> None:
    names = listing.names
    if MARKER not in names:
        findings.missing.append(f"{MARKER} is missing: it is written last, so the save did not finish")
    if not any(_WEIGHTS.match(name) for name in names):
        findings.missing.append("no model weights (model.safetensors, pytorch_model.bin, their shards or those of an adapter)")
    parts.check_shards(names, findings)
    _check_rows(names, findings)
    _check_pointer(listing, findings)
    ranks = _ranks(names)
    count, first = grid.lacking(ranks, world_size)
    if ranks and count:
        highest = f"the highest rank is {max(ranks)}" if world_size is None else f"{world_size} ranks wrote it"
        findings.missing.append(f"rng_state of {count} ranks is missing, the first is rng_state_{first}.pth ({highest})")
    # With save_only_model the Trainer leaves out all of these together; one alone has lost the others.
    together = {
        "the optimizer state": has_optimizer,
        "scheduler.pt": "scheduler.pt" in names or any(name.startswith("global_step") for name in names),
        "the rng state": bool(ranks) or "rng_state.pth" in names,
    }
    if any(together.values()):
        findings.missing += [
            f"{what} is missing, although the rest of the training state is there"
            for what, there in together.items()
            if not there
        ]
    else:
        findings.notes.append("holds model weights only: a run that continues from it starts with a fresh optimizer")
    for entry in listing.entries:
        if TEMPORARY_NAME.search(entry.name):
            findings.notes.append(f"{printable(entry.name)} was left over by a save")


def _check_rows(names: frozenset[str], findings: Findings) -> None:
    """Weights in several files are found by their index only, and one file of all weights is taken before any index."""
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        counts = {found[1] for name in names if (found := re.match(rf"{stem}-\d{{5}}-of-(\d{{5}}){re.escape(ending)}\Z", name))}
        if not counts:
            continue
        index = f"{stem}{ending}.index.json"
        if index not in names and max(counts) > "00001":
            findings.missing.append(f"{index} is missing: without it the shards are not found")
        if f"{stem}{ending}" in names:
            findings.unproven.append(
                f"{stem}{ending} lies beside shards of weights: one of them was left over by another save, and a load takes {stem}{ending}"
            )
        elif len(counts) > 1:
            shown = " and of ".join(f"{int(count)}" for count in sorted(counts))
            findings.notes.append(
                f"rows of {shown} {stem} shards lie side by side: one was left over by another save; {index} tells which"
            )


def _check_pointer(listing: Listing, findings: Findings) -> None:
    """The Trainer lets DeepSpeed load what ``latest`` in its checkpoint names (``integrations/deepspeed.py`` deepspeed_load_checkpoint)."""
    names = listing.names
    tags = sorted({found[1] for name in names if (found := _TAG.match(name))})
    if not tags:
        return
    if POINTER not in names:
        findings.unproven.append(f"{POINTER} is missing: DeepSpeed writes it last, and by itself loads nothing without it")
        return
    raw = parts.first_bytes(listing, POINTER, MAX_POINTER_BYTES)
    named = raw.decode("utf-8", "backslashreplace").strip() if raw else None
    if named is not None and named not in tags:
        findings.missing.append(
            f"{POINTER} names {printable(named, 60) or 'nothing'}, which is not in it: DeepSpeed loads nothing"
        )


def _state(state: Any, step: int | None, findings: Findings) -> tuple[int | None, float | None]:
    global_step = state.get("global_step") if isinstance(state, dict) else None
    if type(global_step) is not int or not 0 <= global_step < 1 << 63:
        findings.damaged.append(f"{MARKER} holds no global_step")
        return step, None
    if step is not None and step != global_step:
        findings.damaged.append(f"{MARKER} is of step {global_step}, the directory is named for step {step}")
    history = state.get("log_history")
    logged = history[-20:] if isinstance(history, list) else []
    for record in reversed(logged):
        loss = record.get("loss") if isinstance(record, dict) else None
        if isinstance(loss, (int, float)) and not isinstance(loss, bool):
            return step if step is not None else global_step, float(loss) if abs(loss) < 1e300 and math.isfinite(loss) else None
    return step if step is not None else global_step, None


def _check_files(listing: Listing, findings: Findings) -> None:
    expected: dict[str, set[str]] = {}
    inside = tuple(embedded.prefixes(listing.names))
    for name in sorted(listing.names):
        if _INDEX.match(name):
            expected |= parts.check_index(listing, name, findings)
    for entry in listing.entries:
        name = entry.name
        if TEMPORARY_NAME.search(name) or name == MARKER or _INDEX.match(name) or name.startswith(inside):
            continue
        here = Findings()
        if name.endswith(".safetensors"):
            parts.check_safetensors(listing, entry, here, expected.get(name))
        elif name.endswith(parts.TORCH_ENDINGS):
            parts.check_torch(listing, entry, here)
        elif name.endswith(".json"):
            parts.read_json(listing, name, here, allow_nonfinite=True, is_long=True)
        is_state = _is_known(name) or name in expected or name.endswith(".safetensors")
        if not is_state and not (name.endswith(parts.TORCH_ENDINGS) and parts.opens_like_torch(listing, entry)):
            # A file that the Trainer does not write may be of any kind (openvino_model.bin, JSON with comments): nothing resumes from it.
            # One of torch is somebody's state, or was made to be loaded.
            here.notes += here.damaged
            here.damaged.clear()
        findings.add(here)
