"""llm.c: ``model_%08d.bin``, ``state_%08d_%05d.bin`` of each rank, and ``DONE_%08d`` after a barrier, all in one directory.

The checkpoint is called by its model file. ``DONE`` is written last and deleted last (``train_gpt2.cu`` write_checkpoint,
delete_checkpoint), so a model or state file that is missing beside it means a deletion.
"""

from __future__ import annotations

import re

from trainvitals.checkpoints import llm_c_header, parts
from trainvitals.checkpoints.files import Entry, Listing, NotRegular, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout

_MODEL = re.compile(r"model_(\d{8,18})\.bin\Z", re.ASCII)
_STATE = re.compile(r"state_\d{8,18}_(\d{5,9})\.bin\Z", re.ASCII)


class LlmC(Layout):
    """See the module."""

    name = "llm_c"
    file = _MODEL

    def matches(self, listing: Listing) -> bool:
        if not listing.is_file or not _MODEL.match(listing.name):
            return False
        if len(listing.entries) > 1:
            return True
        entry = listing.entries[0]
        if entry.problem or entry.size < 4:
            return True
        try:
            with opened(listing.path(entry.name)) as reader:
                return int.from_bytes(reader.read(0, 4), "little") == llm_c_header.MODEL_MAGIC
        except (NotRegular, Unreadable, Vanished):
            return True

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        named = _MODEL.match(listing.name)
        assert named is not None
        step = int(named[1])
        states = {int(found[1]): entry for entry in listing.entries if (found := _STATE.match(entry.name))}
        if f"DONE_{named[1]}" not in listing.names:
            findings.missing.append(f"DONE_{named[1]} is missing: it is written last, so the save did not finish")
        world_size = max(states, default=0) + 1
        if into_files:
            model = next(entry for entry in listing.entries if entry.name == listing.name)
            world_size = _check_files(listing, model, states, step, world_size, findings)
        else:
            for entry in listing.entries:
                if not entry.size and not entry.problem and not entry.name.startswith("DONE_"):
                    findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
        if not states:
            findings.missing.append(f"state_{named[1]}_00000.bin is missing: no rank's optimizer state is there")
        elif lacking := [rank for rank in range(min(world_size, len(states) + 1)) if rank not in states]:
            findings.missing.append(
                f"the state files of {world_size - len(states)} of {world_size} ranks are missing, the first is rank {lacking[0]}"
            )
        has_state = bool(states)
        return Facts(
            step,
            has_state,
            has_rng=has_state,
            has_data_position=has_state,
            has_scheduler=None,
            world_size=world_size if states else None,
        )


def _check_files(listing: Listing, model: Entry, states: dict[int, Entry], step: int, world_size: int, findings: Findings) -> int:
    """The number of ranks, from the headers when they tell it."""
    checked = parts.check_with(listing, model, findings, llm_c_header.check_model, llm_c_header.BadLlmC)
    if checked is not None and checked.unproven:
        findings.unproven.append(f"{printable(model.name)}: {checked.unproven}")
    parameters = checked.parameters if checked is not None else None
    told: int | None = None
    for rank, entry in sorted(states.items()):
        state = parts.check_with(
            listing, entry, findings, lambda reader: llm_c_header.check_state(reader, parameters), llm_c_header.BadLlmC
        )
        if state is None:
            continue
        shown = printable(entry.name)
        if state.unproven:
            findings.unproven.append(f"{shown}: {state.unproven}")
        if state.step != step:
            findings.damaged.append(f"{shown} is of step {state.step}, its name says {step}")
        if state.rank != rank:
            findings.damaged.append(f"{shown} is of rank {state.rank}, its name says {rank}")
        if told is not None and state.world_size != told:
            findings.damaged.append(f"{shown} is of a run with {state.world_size} processes, the others are of one with {told}")
        told = told if told is not None else state.world_size
    if told is not None and told < world_size:
        findings.notes.append(f"state files of ranks beyond {told - 1} were left over by a run with more processes")
    return told if told is not None else world_size
