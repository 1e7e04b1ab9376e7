"""Orbax (MaxText, Flax): ``<step>/`` with one directory per item, arrays in OCDBT; renamed when finished.

``orbax/checkpoint/_src/path/atomicity.py``: built as ``<step>.orbax-checkpoint-tmp`` and renamed, or, where a rename is not atomic,
finished by ``commit_success.txt``. ``_CHECKPOINT_METADATA`` tells when the save began and when it was committed (nanoseconds).
"""

from __future__ import annotations

import re
from typing import Any

from trainvitals.checkpoints import ocdbt, parts
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout
from trainvitals.checkpoints.names import final_name

METADATA = "_CHECKPOINT_METADATA"
_TEMPORARY = ".orbax-checkpoint-tmp"
_PROCESS = re.compile(r"(?P<item>(?:[^/]{1,200}/)?)ocdbt\.process_(?P<process>\d{1,9})/", re.ASCII)
_DATA = re.compile(r"(?:[^/]{1,200}/)?(?:ocdbt\.process_\d{1,9}/)?d/[0-9a-f]{1,64}\Z", re.ASCII)
_JSON = re.compile(
    r"(?:.{0,600}/)?(?:_sharding|array_metadatas/process_\d{1,9}|\.zarray|\.zattrs|\.zgroup|[\w.-]{1,200}\.json)\Z",
    re.ASCII | re.DOTALL,
)
#: What a JsonCheckpointHandler writes, and the others that have no structure to be checked.
_ITEM_JSON = re.compile(r"[^/]{1,200}/metadata\Z", re.ASCII)
_NO_STRUCTURE = frozenset(("commit_success.txt", "orbax.checkpoint"))
#: Chunks of zarr without OCDBT: ``params.w/0.0``, ``params.w/c/0/0``.
_CHUNK = re.compile(r".{1,600}/(?:c/)?\d{1,9}(?:[./]\d{1,9}){0,15}\Z", re.ASCII | re.DOTALL)
#: An item that only the checkpoints on nodes' own disks have (``experimental/emergency/checkpoint_manager.py``).
_LOCAL = "process_metadata/"
_MARKS_OF_AN_ITEM = frozenset(("_METADATA", "_sharding", "array_metadatas", "commit_success.txt", "process_metadata"))
_OPTIMIZER_KEY = re.compile(r"opt_?state|optimizer|optim", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"(?:[\w.-]{0,100}?[_-])?(\d{1,18})\Z", re.ASCII)


class Orbax(Layout):
    """See the module."""

    name = "orbax"
    directory = re.compile(r"\d{1,18}(?:\.orbax-checkpoint-tmp(?:-\d{1,20})?)?\Z", re.ASCII)
    mark = re.compile(rf"(?:{METADATA}|manifest\.ocdbt|commit_success\.txt)\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return False
        if _TEMPORARY in listing.name:
            return True
        return any(
            name in (METADATA, "commit_success.txt") or name.rpartition("/")[2] in ("_METADATA", "manifest.ocdbt")
            for name in listing.names
        )

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        found = _STEP.match(final_name(listing.name))
        names = listing.names
        _check_names(listing, findings)
        document = parts.read_json(listing, METADATA, findings) if METADATA in names else None
        if document is not None:
            _check_commit(document, findings)
        elif METADATA not in names and "commit_success.txt" not in names:
            findings.notes.append(f"holds no {METADATA}: saved by an old version, whose rename is the only sign that it finished")
        keys = _trees(listing, findings) if into_files else None
        if into_files:
            _check_step(_check_files(listing, findings), int(found[1]) if found else None, listing, findings)
        processes = {int(process["process"]) for name in names if (process := _PROCESS.match(name))}
        has_data = any(re.search(r"(?:\A|[/_])(?:iter|dataset|grain|data_iter)", name) for name in names) or None
        return Facts(
            int(found[1]) if found else None,
            None if keys is None else any(_OPTIMIZER_KEY.match(key) for key in keys),
            has_rng=None if keys is None else any("rng" in key.lower() for key in keys),
            has_data_position=has_data,
            world_size=max(processes) + 1 if processes else None,
        )


def _check_names(listing: Listing, findings: Findings) -> None:
    names = listing.names
    for part in sorted({part for name in names for part in name.split("/")[:-1] if _TEMPORARY in part}):
        findings.missing.append(f"{printable(part)} still has its temporary name: the save did not finish")
    is_local = any(name.startswith(_LOCAL) for name in names)
    if is_local:
        findings.unproven.append(
            f"holds what one node keeps on its own disk ({_LOCAL} is there): the parts of the other nodes cannot be looked at here"
        )
    numbers: dict[str, set[int]] = {}
    for name in names:
        if found := _PROCESS.match(name):
            numbers.setdefault(found["item"], set()).add(int(found["process"]))
    for item, processes in sorted(numbers.items()):
        shown = printable(item)
        if f"{item}manifest.ocdbt" not in names:
            findings.missing.append(f"{shown}manifest.ocdbt is missing: it joins what each process wrote, and is written last")
        if len(processes) <= max(processes) and not is_local:
            findings.missing.append(
                f"{shown}ocdbt.process_* of {max(processes) + 1 - len(processes)} processes is missing (the highest is {max(processes)})"
            )
        for process in sorted(processes):
            place = f"{item}ocdbt.process_{process}/"
            if f"{place}manifest.ocdbt" not in names:
                findings.missing.append(f"{printable(place)}manifest.ocdbt is missing")
            if not any(name.startswith(f"{place}d/") for name in names):
                findings.missing.append(f"{printable(place)}d holds no data")
    if not names - {METADATA, "commit_success.txt"}:
        findings.missing.append("holds no item, only marks")
    committed = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == "commit_success.txt"}
    if "" not in committed and any(committed):
        findings.missing.append("commit_success.txt is missing: its items are committed, the checkpoint itself is not")


def _check_commit(document: Any, findings: Findings) -> None:
    if not isinstance(document, dict):
        findings.damaged.append(f"{METADATA} is not a table")
        return
    began, committed = (document.get(f"{kind}_timestamp_nsecs") for kind in ("init", "commit"))
    if "commit_timestamp_nsecs" in document and committed is None:
        findings.missing.append(f"{METADATA} tells no time of the commit: the save did not finish")
    if type(began) is int and type(committed) is int and 0 < began <= committed < 1 << 63:
        findings.notes.append(f"the save took {(committed - began) / 1e9:.1f} s from its begin to its commit")


def _trees(listing: Listing, findings: Findings) -> set[str] | None:
    """First keys of all array trees; None when no tree tells."""
    keys: set[str] = set()
    told = False
    for name in sorted(listing.names):
        if name.rpartition("/")[2] != "_METADATA":
            continue
        document = parts.read_json(listing, name, findings, allow_nonfinite=True)
        if document is None:
            continue
        tree = document.get("tree_metadata") if isinstance(document, dict) else None
        if not isinstance(tree, dict):
            findings.unproven.append(f"{printable(name)} holds no tree_metadata")
            continue
        told = True
        if tree:
            _check_item(listing.names, name.removesuffix("_METADATA"), findings)
        for described in tree.values():
            path = described.get("key_metadata") if isinstance(described, dict) else None
            names = [part.get("key") for part in path if isinstance(part, dict)] if isinstance(path, list) else []
            keys |= {key for key in names if isinstance(key, str)}
    return keys if told else None


def _check_item(names: frozenset[str], place: str, findings: Findings) -> None:
    """An item whose tree names arrays, or values of another kind, holds them somewhere; marks alone are no data."""
    inside = {name.removeprefix(place) for name in names if name.startswith(place)}
    if not any(name.partition("/")[0] not in _MARKS_OF_AN_ITEM for name in inside):
        findings.missing.append(f"{printable(place)} holds none of the data that its _METADATA names")
    if any(_DATA.fullmatch(name) and name.startswith("d/") for name in inside) and "manifest.ocdbt" not in inside:
        findings.missing.append(f"{printable(place)}manifest.ocdbt is missing: without it nothing in d/ is found")


def _check_step(inside: int | None, named: int | None, listing: Listing, findings: Findings) -> None:
    """MaxText (``common/checkpointing.py`` maybe_save_checkpoint) counts the step before it saves: its state of ``100/`` holds 101."""
    if inside is None or named is None or inside in (named, named + 1):
        return
    text = f"step in its state is {inside}, its name says {named}: renamed, copied, or counted in another way"
    # MaxText calls its item so; anybody else may name directories for epochs or count what the optimizer skips.
    is_maxtext = any(name.startswith("items/") for name in listing.names)
    (findings.unproven if is_maxtext else findings.notes).append(text)


def _check_files(listing: Listing, findings: Findings) -> int | None:
    """Structure of each file; returns the step that the arrays tell, where they can be read."""
    has_arrays = has_chunks = False
    unproven: set[str] = set()
    strange: list[str] = []
    look = ocdbt.Look()
    for entry in listing.entries:
        if TEMPORARY_NAME.search(entry.name):
            continue
        if entry.name.rpartition("/")[2] == "manifest.ocdbt":
            has_arrays = True
            parts.check_with(listing, entry, findings, lambda file: ocdbt.check_manifest(file, look), ocdbt.BadOcdbt)
        elif _DATA.match(entry.name) or _CHUNK.match(entry.name):
            has_arrays |= _DATA.match(entry.name) is not None
            left = parts.check_with(listing, entry, findings, lambda file: ocdbt.check_data(file, look), ocdbt.BadOcdbt)
            unproven.add(left or "")
            has_chunks |= _CHUNK.match(entry.name) is not None
        elif _JSON.match(entry.name) or _ITEM_JSON.match(entry.name):
            parts.read_json(listing, entry.name, findings, allow_nonfinite=True, is_long=True)
        elif entry.name.rpartition("/")[2] not in {*_NO_STRUCTURE, METADATA, "_METADATA"}:
            strange.append(entry.name)
    if strange:
        findings.unproven.append(f"the structure of {len(strange)} files is not known here, such as {printable(min(strange))}")
    findings.unproven += [f"a data file {text}" for text in sorted(unproven) if text]
    if has_chunks:
        findings.unproven.append(
            "a missing chunk of an array is read as its fill value: it shows only against a ckpt_manifest.json"
        )
    if has_arrays:
        _check_references(listing, look, is_partly=any(unproven), findings=findings)
    return look.steps.one


def _check_references(listing: Listing, look: ocdbt.Look, *, is_partly: bool, findings: Findings) -> None:
    """The data files that manifests and nodes name by 128-bit numbers of their own, wherever below the item they lie."""
    lacking = sorted(look.names - {name.rpartition("/")[2] for name in listing.names})
    if lacking:
        findings.missing.append(
            f"{len(lacking)} data files that its manifests name are missing, such as {printable(lacking[0], 60)}"
        )
    if is_partly or not look.knows_all:
        findings.unproven.append(
            "which data files it needs is written compressed (OCDBT, zstd): without trainvitals[orbax], a missing one shows only against a "
            "ckpt_manifest.json"
        )
