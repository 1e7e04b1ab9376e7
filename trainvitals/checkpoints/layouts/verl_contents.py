"""What verl with Megatron-Core says about its own save: ``ckpt_contents.json``, which it writes last.

Read in ``verl/utils/checkpoint/megatron_checkpoint_manager.py`` (save_checkpoint, _build_checkpoint_manifest; layout schema 2): of each role
``actor/{model,optimizer,extra}/dist_ckpt/``, weights also in ``model/huggingface/``. All these directories are made before anything is
written, and what a run does not save stays empty: only this document tells an optimizer that was not wanted from one that is lost.
Before schema 2 there was one ``actor/dist_ckpt/`` and no document.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from trainvitals.checkpoints import parts
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings

NAME = "ckpt_contents.json"
#: Its own table has nine.
MAX_CONTENTS = 100
_OF_ROLE = re.compile(r"(?P<role>(?:[^/]{1,100}/)?)(?:model|optimizer|extra)/dist_ckpt(?:/|\Z)", re.DOTALL)
_PATHS = ("path", "peft_adapter_path")


def roles(listing: Listing) -> list[str]:
    """Directories that verl saved one role into, each with its ``/``; "" when it is the checkpoint itself."""
    return sorted({found["role"] for name in (*listing.names, *listing.empty) if (found := _OF_ROLE.match(name))})


def check(listing: Listing, findings: Findings, combined: Collection[str], *, into_files: bool) -> None:
    """combined: roles whose one ``model/dist_ckpt/`` holds the optimizer, too (Megatron-FSDP); the document lists it all the same."""
    for role in roles(listing):
        name = role + NAME
        if name not in listing.names:
            findings.missing.append(f"{printable(name)} is missing: verl writes it last, so the save did not finish")
        elif into_files:
            document = parts.read_json(listing, name, findings)
            if document is not None:
                _check(listing, role, document, role in combined, findings)


def _check(listing: Listing, role: str, document: Any, is_combined: bool, findings: Findings) -> None:
    contents = document.get("contents") if isinstance(document, dict) else None
    if not isinstance(contents, dict) or not all(isinstance(entry, dict) for entry in contents.values()):
        findings.damaged.append(f"{printable(role + NAME)} holds no table of contents")
        return
    named = parts.said_step(listing.name)
    step = document.get("global_step")
    if type(step) is int and named is not None and step != named:
        findings.unproven.append(
            f"{printable(role + NAME)} says step {step}, the directory is named for step {named}: renamed, or another save's"
        )
    for what, entry in list(contents.items())[:MAX_CONTENTS]:
        if is_combined and entry.get("format") == "megatron_dist_checkpoint":
            continue
        for path in (entry[key] for key in _PATHS if isinstance(entry.get(key), str)):
            whole = role + path.rstrip("/")
            if whole not in listing.names and not any(file.startswith(whole + "/") for file in listing.names):
                findings.missing.append(
                    f"{printable(whole)} is not there, {printable(role + NAME)} says that it holds {printable(what, 60)}"
                )
