"""Reads what trainers look at when they decide where to go on: names, small pointer files and links of one directory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.checkpoints.files import NotRegular, Unreadable, Vanished, opened, printable, reason

MAX_NAMES = 200_000
#: Longer than any name of a checkpoint; more of a pointer file is not read.
MAX_POINTER_BYTES = 4096
MEGATRON = "latest_checkpointed_iteration.txt"
DEEPSPEED = "latest"
DEEPSPEED_UNIVERSAL = "latest_universal"
COMPOSER = "latest-rank0.pt"
COMPOSER_REMOTE = "latest-rank0.pt.symlink"
#: NeMo Automodel: a link, or where the file system has none a file of this name with ``.txt``.
AUTOMODEL = "LATEST"
AUTOMODEL_TEXT = "LATEST.txt"
POINTERS = (AUTOMODEL_TEXT, MEGATRON, DEEPSPEED, DEEPSPEED_UNIVERSAL, COMPOSER_REMOTE)
#: Files that torchtitan and OLMo-core ask for before they take a directory.
PROBES = (".metadata", "model.safetensors.index.json", "train/rank0.pt", "model_and_optim/.metadata", ".metadata.json")
_PROBED = re.compile(r"step-?(\d{1,18})\Z", re.ASCII)
MAX_PROBED = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """One directory. links: name -> target as it is written there. texts: pointer file -> its text; unreadable: pointer file -> why.

    probed: ``name/file`` of the ``PROBES`` that are there. broken: links that lead nowhere, or to themselves.
    """

    directory: str
    directories: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    probed: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        return self.directories | self.files | frozenset(self.links)


def look(directory: str) -> Seen | None:
    """None when the directory cannot be listed; whoever scans it says so already."""
    directories: set[str] = set()
    files: set[str] = set()
    links: dict[str, str] = {}
    broken: set[str] = set()
    try:
        with os.scandir(directory) as found:
            for child, _ in zip(found, range(MAX_NAMES), strict=False):
                if child.is_symlink():
                    links[child.name] = _target(child.path)
                    if not os.path.exists(child.path):  # noqa: PTH110
                        broken.add(child.name)
                elif child.is_dir(follow_symlinks=False):
                    directories.add(child.name)
                elif child.is_file(follow_symlinks=False):
                    files.add(child.name)
    except (OSError, ValueError):
        return None
    texts: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for name in POINTERS:
        if name in files:
            _read(directory, name, texts, unreadable)
    probed = _probe(directory, directories)
    return Seen(directory, frozenset(directories), frozenset(files), links, texts, unreadable, probed, frozenset(broken))


def _probe(directory: str, names: set[str]) -> frozenset[str]:
    """From the highest step down to the first that some trainer would take: each probe may be a question to a network file system."""
    steps = sorted(((int(found[1]), name) for name in names if (found := _PROBED.match(name))), reverse=True)
    probed: set[str] = set()
    for _, name in steps[:MAX_PROBED]:
        there = {probe for probe in PROBES if _is_file(os.path.join(directory, name, probe))}  # noqa: PTH118
        probed |= {f"{name}/{probe}" for probe in there}
        if there & set(PROBES[:2]) or there >= set(PROBES[2:]):
            break
    return frozenset(probed)


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        # Replaced between the two calls: a trainer that reads it now meets the same gap.
        return ""


def _read(directory: str, name: str, texts: dict[str, str], unreadable: dict[str, str]) -> None:
    try:
        with opened(os.path.join(directory, name)) as reader:  # noqa: PTH118
            texts[name] = reader.read(0, MAX_POINTER_BYTES).decode("utf-8", "backslashreplace")
    except Vanished:
        return
    except NotRegular:
        unreadable[name] = "is not a regular file"
    except Unreadable as error:
        unreadable[name] = f"cannot be read: {printable(str(error))}"
    except OSError as error:
        unreadable[name] = f"cannot be read: {reason(error)}"


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return False
