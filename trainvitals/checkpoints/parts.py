"""Check one file of a checkpoint and file the outcome under its meaning; shared by all layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from trainvitals import manifest
from trainvitals.checkpoints import json_file, json_stream, safetensors_header, torch_file
from trainvitals.checkpoints.files import (
    Entry,
    Listing,
    NotRegular,
    Reader,
    Unreadable,
    Vanished,
    fault,
    opened,
    printable,
    reason,
)
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.names import final_name

#: Longer JSON files are not parsed (a trainer_state.json of a million log lines is about 150 MB).
MAX_JSON_BYTES = 24 * 1024 * 1024
#: ... but for those of which the abridged document is enough: from here on they are read piece by piece.
STREAMED_FROM_BYTES = 4 * 1024 * 1024
MAX_STREAMED_BYTES = 1024 * 1024 * 1024
Checked = TypeVar("Checked")
TORCH_ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar", ".pt.tar")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.safetensors|\.bin)\Z")
#: What torch's ``HuggingFaceStorageWriter`` writes when nobody joins the ranks' parts (``_hf_utils.py``, SHARDED_FILE_NAME).
_OF_RANK = re.compile(r"(?P<place>(?:.{0,600}/)?)shard-(?P<rank>\d{5})-(?P<name>[^/]{1,300})\Z", re.ASCII | re.DOTALL)
#: Where torchtitan keeps them (``components/checkpoint.py``), to join them into the directory above: that is what is loaded.
_JOINED = "sharded/"
_STEP = re.compile(
    r"(?:global[-_]?step|step|iteration|iter|checkpoint|ckpt|(?<![a-z])ba)s?[-_=]{0,2}(\d{1,18})(?!\d)", re.IGNORECASE
)
_SAID_STEP = re.compile(r"(?:global[-_]?step|step|iteration|iter|(?<![a-z])ba)s?[-_=]{0,2}(\d{1,18})(?!\d)", re.IGNORECASE)
_TRAINERS_JSON = re.compile(
    r"[\w.-]{0,60}(?:config|params|args|state|index|metadata|map|meta|scheduler|progress)\.json|(?:[\w.-]{0,60}tokens?|tokenizer|vocab)\.json",
    re.IGNORECASE,
)
#: A long number alone that is no date (lerobot; a short one often counts epochs), and fairseq's ``checkpoint_EPOCH_UPDATES.pt``.
_ONLY_A_STEP = re.compile(
    r"(?!20\d\d[01]\d[0-3]\d\Z)(\d{5,18})\Z|checkpoint_\d{1,6}_(\d{1,18})(?:-(?:model_part-\d{1,6}-)?shard\d{1,6})?\Z", re.ASCII
)
_LAST_NUMBER = re.compile(r"[-_=](\d{1,18})\Z")
#: What ends a name and is a number of something else: an epoch, a date, a save before the end of a job (Lightning).
_NO_STEP = re.compile(r"(?:(?<![a-z])ep(?:och)?s?[-_=]{0,2}\d{1,18}|\d{4}[-_]\d\d[-_]\d\d|hpc_ckpt_\d{1,9})\Z", re.IGNORECASE)


def step_from_name(name: str) -> int | None:
    """``checkpoint-500``, ``epoch=1-step=500.ckpt``, ``iter_0000500``, ``ep1-ba500-rank0.pt``, ``model_500.pt`` -> 500."""
    stem = _stem(name)
    if whole := _ONLY_A_STEP.match(stem):
        return int(whole[1] or whole[2])
    found = _STEP.findall(stem)
    if found:
        return int(found[-1])
    last = _LAST_NUMBER.search(stem)
    return int(last[1]) if last else None


def likely_step(name: str) -> int | None:
    """As ``step_from_name``, but None for an epoch and a date: ``epoch_3.pt``, ``2026-01-05``."""
    stem = _stem(name)
    return None if not _SAID_STEP.search(stem) and _NO_STEP.search(stem) else step_from_name(name)


def said_step(name: str) -> int | None:
    """The number that a name itself calls a step or an iteration: not that of ``epoch_3.pt``, ``ckpt-3.pt``."""
    found = _SAID_STEP.findall(_stem(name))
    return int(found[-1]) if found else None


def _stem(name: str) -> str:
    for ending in (*TORCH_ENDINGS, ".safetensors"):
        name = name.removesuffix(ending)
    return re.sub(r"-\d{5}-of-\d{5}\Z", "", name)


def check_names(listing: Listing, findings: Findings, is_without_state: Callable[[str], bool] = lambda name: False) -> None:
    """What a listing alone shows, whatever the layout. is_without_state: whether a file of this name may be missing."""
    for entry in listing.entries:
        if entry.problem:
            is_told_only = is_without_state(entry.name) and not manifest.is_own_name(entry.name.rpartition("/")[2])
            found = findings.notes if is_told_only else findings.missing
            found.append(f"{printable(entry.name)} {entry.problem}")
    if not listing.is_file and final_name(listing.name) != listing.name:
        findings.missing.append("still has the name that it is given while it is saved: the save goes on, or it did not finish")
    findings.unreadable += [f"cannot be read: {text}" for text in listing.unreadable]
    findings.vanished |= listing.vanished > 0
    if listing.is_cut:
        findings.unproven.append("more files or deeper directories than are looked at")


def check_shards(names: frozenset[str], findings: Findings) -> None:
    """``model-00001-of-00003.safetensors``: every number of the row must be there."""
    rows: dict[tuple[str, str, str], set[int]] = {}
    own: set[str] = set()
    for name in names:
        if of_rank := _OF_RANK.match(name):
            # Each rank writes only the files of which it holds a tensor: the row is that of all ranks together.
            if not of_rank["place"].endswith(_JOINED):
                own.add(of_rank["place"] + of_rank["rank"])
            name = of_rank["place"] + of_rank["name"]
        found = _SHARD.match(name)
        if found:
            rows.setdefault((found["stem"], found["count"], found["ending"]), set()).add(int(found["number"]))
    if own:
        findings.unproven.append(
            f"each rank wrote files of its own (shard-*-model-*, {len(own)} ranks are there), and nothing tells how many ranks there were"
        )
    for (stem, count, ending), numbers in sorted(rows.items()):
        # Bounded: the count comes from a name that anybody can write.
        lacking = int(count) - len(numbers)
        if lacking > 0:
            first = next(number for number in range(1, int(count) + 1) if number not in numbers)
            findings.missing.append(
                f"{lacking} of {int(count)} shards are missing, the first is {printable(f'{stem}-{first:05d}-of-{count}{ending}')}"
            )


def check_index(listing: Listing, name: str, findings: Findings) -> dict[str, set[str]]:
    """``*.index.json``: every file of its weight_map must be there, in its own directory. Returns file -> tensors."""
    document = read_json(listing, name, findings)
    if document is None:
        return {}
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
        findings.damaged.append(f"{printable(name)}: its weight_map is not a table of tensor -> file")
        return {}
    place = name[: name.rfind("/") + 1]
    files: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        files.setdefault(file, set()).add(tensor)
    for file in sorted(files):
        if "/" in file or file in ("", ".", ".."):
            findings.damaged.append(f"{printable(name)}: its weight_map names a file outside the checkpoint: {printable(file)}")
            del files[file]
        elif place + file not in listing.names:
            findings.missing.append(f"{printable(place + file)} is missing, {printable(name)} needs it")
    return {place + file: tensors for file, tensors in files.items()}


def check_safetensors(
    listing: Listing, entry: Entry, findings: Findings, expected: set[str] | None = None
) -> frozenset[str] | None:
    """Header and size; ``expected``: tensors that an index says are in it. Returns the names of its tensors."""
    shown = printable(entry.name)
    with_errors = _Filed(findings, shown)
    header = with_errors.run(listing, entry, safetensors_header.check)
    if header is None:
        return None
    if header.unproven:
        findings.unproven.append(f"{shown}: {header.unproven}")
    if header.tensors and not header.holds_elements:
        findings.unproven.append(f"{shown} holds no tensor with anything in it (with ZeRO-3: weights that were not gathered)")
    lacking = (expected or set()) - header.tensors if header.tensors is not None else set()
    if lacking:
        findings.damaged.append(f"{shown}: {len(lacking)} tensors of the index are not in it, such as {printable(min(lacking))}")
    tensors: frozenset[str] | None = header.tensors
    return tensors


def first_bytes(listing: Listing, name: str, count: int) -> bytes:
    """Of a small file of the checkpoint; empty when it is not there or cannot be read."""
    try:
        with opened(listing.path(name)) as reader:
            return reader.read(0, count)
    except (NotRegular, Unreadable, Vanished):
        return b""


def opens_like_torch(listing: Listing, entry: Entry) -> bool:
    """Whether a file begins as one of torch; what cannot be opened does not."""
    try:
        with opened(listing.path(entry.name)) as reader:
            return torch_file.recognised(reader.read(0, len(torch_file.LEGACY_START)))
    except (NotRegular, Unreadable, Vanished):
        return False


def check_torch(listing: Listing, entry: Entry, findings: Findings) -> torch_file.TorchFile | None:
    """Zip, opcodes, storages. ``training_args.bin`` may hold any class: it is the user's own settings object."""
    shown = printable(entry.name)

    def check(reader: Reader) -> torch_file.TorchFile:
        return torch_file.check(reader, trusts_any_class=entry.name.rpartition("/")[2] == "training_args.bin")

    result: torch_file.TorchFile | None = _Filed(findings, shown).run(listing, entry, check)
    if result is not None:
        findings.unproven += [f"{shown} {text}" if text.startswith("is ") else f"{shown}: {text}" for text in result.unproven]
    return result


def check_with(
    listing: Listing, entry: Entry, findings: Findings, check: Callable[[Reader], Checked], bad: type[Exception]
) -> Checked | None:
    """Run a check of a layout's own on the opened file; ``bad`` is what it raises for damage. None = it came to no result."""
    result: Checked | None = _Filed(findings, printable(entry.name), (bad,)).run(listing, entry, check)
    return result


def read_json(listing: Listing, name: str, findings: Findings, *, allow_nonfinite: bool = False, is_long: bool = False) -> Any:
    """The parsed document, None when there is none (the outcome is filed). Manifests are read by ``writer_hashes``.

    is_long: of a long one the abridged object of ``json_stream`` is enough.
    """
    if manifest.is_own_name(name.rpartition("/")[2]):
        return None
    entry = next((entry for entry in listing.entries if entry.name == name), None)
    if entry is None or entry.problem:
        return None
    limit = MAX_STREAMED_BYTES if is_long else MAX_JSON_BYTES
    if entry.size > limit:
        findings.unproven.append(f"{printable(name)}: longer than what is parsed here ({limit} bytes)")
        return None

    def parse(reader: Reader) -> Any:
        if is_long and reader.size > STREAMED_FROM_BYTES:
            return json_stream.read(reader)
        return json_file.parse(reader.read(0, min(reader.size, MAX_JSON_BYTES)), allow_nonfinite=allow_nonfinite)

    return _Filed(findings, printable(name)).run(listing, entry, parse)


def check_json(listing: Listing, name: str, findings: Findings) -> None:
    """A JSON file of which nothing is needed here: under a name that trainers write it must be whole, any other is told only."""
    here = Findings()
    read_json(listing, name, here, allow_nonfinite=True, is_long=True)
    if not _TRAINERS_JSON.fullmatch(name.rpartition("/")[2]):
        # Anybody's: with comments, one object a line, empty.
        here.notes += here.damaged
        here.damaged.clear()
    findings.add(here)


def _what_it_is(path: str) -> str:
    """What lies there instead, as far as the first bytes tell: it says what to do."""
    try:
        with opened(path) as reader:
            start = reader.read(0, 64)
    except (NotRegular, Unreadable, Vanished):
        return ""
    if start.startswith(b"version https://git-lfs.github.com/"):
        return " (it is a pointer of Git LFS: fetch the file itself, with git lfs pull)"
    if start.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        return " (it is a page or an error message of a server: copy the file again)"
    if start.startswith(b"\x1f\x8b"):
        return " (it is compressed with gzip)"
    return " (it begins with zeros: a copy or a write that did not finish)" if start and not any(start) else ""


class _Filed:
    """Runs a check on an opened file and files each way it can fail."""

    def __init__(self, findings: Findings, shown: str, also_bad: tuple[type[Exception], ...] = ()) -> None:
        self._findings = findings
        self._shown = shown
        self._bad: tuple[type[Exception], ...] = (
            safetensors_header.BadSafetensors,
            torch_file.BadTorchFile,
            json_file.BadJson,
            *also_bad,
        )

    def run(self, listing: Listing, entry: Entry, check: Any) -> Any:
        if entry.problem:
            return None
        if entry.size == 0:
            self._findings.damaged.append(f"{self._shown} is empty (0 bytes)")
            return None
        try:
            with opened(listing.path(entry.name)) as reader:
                return check(reader)
        except self._bad as error:
            self._findings.damaged.append(f"{self._shown}: {error}{_what_it_is(listing.path(entry.name))}")
        except Vanished:
            self._findings.vanished = True
        except NotRegular:
            self._findings.missing.append(f"{self._shown} is not a regular file; not opened")
        except (Unreadable, OSError) as error:
            text = str(error) if isinstance(error, Unreadable) else reason(error)
            self._findings.unreadable.append(f"{self._shown} cannot be read: {printable(text)}")
        except Exception as error:  # noqa: BLE001 (one file that was made to break its check must not hide the others)
            self._findings.unreadable.append(f"{self._shown} cannot be judged: {fault(error)}")
        return None
