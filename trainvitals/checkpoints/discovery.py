"""Find the checkpoints in a directory by the names that each layout declares.

Links are not followed: they point at a checkpoint that has its own place. Hidden directories (pins, caches) hold no checkpoints of their
own. Trainers put their checkpoints below a directory of theirs (``checkpoints/``, ``lightning_logs/version_0/checkpoints/``,
``non_persistent/``), so directories with such names are looked into, ``MAX_DEPTH`` deep; no other is.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field

from trainvitals.checkpoints.dcp_directory import holds_shards
from trainvitals.checkpoints.files import TEMPORARY_NAME, Unreadable, Vanished, printable, reason
from trainvitals.checkpoints.layouts import LAYOUTS
from trainvitals.checkpoints.names import final_name, stands_for
from trainvitals.checkpoints.parts import TORCH_ENDINGS, step_from_name
from trainvitals.errors import InputError

MAX_CHECKPOINTS = 10_000
#: Names in one directory that are looked at: of a run that keeps all it saved, with its logs.
MAX_NAMES = 200_000
MAX_DEPTH = 3
#: Directories looked into in one search; what is beyond them is not found.
MAX_DIRECTORIES = 1_000
_HUGGING_FACE = re.compile(r"checkpoint-\d{1,18}\Z", re.ASCII)
#: Directories of plain files (safetensors, torch) that are named after a step, whoever wrote them.
_STEP_DIRECTORY = re.compile(
    r"(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch|ep)s?[-_=]?\d{1,18}\b|\d{1,18}\Z", re.IGNORECASE | re.ASCII
)
#: Directories that trainers put between a run's directory and its checkpoints (``_actor``: OpenRLHF); the last one is how NeMo and Hydra name a start.
_CONTAINER = re.compile(
    r"(?:checkpoints?|ckpts?|_?actor|_?critic|lightning_logs|version_\d{1,9}|non_persistent|\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)\Z",
    re.IGNORECASE | re.ASCII,
)
#: Directories of ranks, in which a legacy checkpoint of Megatron-LM has all its files (``release/`` has no number in its name).
_OF_MEGATRON = re.compile(r"mp_rank_\d{2,5}(?:_\d{3,6}){0,2}\Z", re.ASCII)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.", re.ASCII)
#: A number that counts the parts of one checkpoint.
_OF_A_RANK = re.compile(
    r"(?:rank|shard|part|proc|process|worker|device|gpu|node)s?[-_.]?(?:state)?[-_.]?\d{1,9}(?!\d)|world_size|_\d{4}_\d{1,4}\Z"
    r"|(?:optimizer|model|[tpdem]p)[-_.]?\d\d?(?!\d)",
    re.IGNORECASE | re.ASCII,
)
#: Which of a run's checkpoints one is, where no number says it.
_SAID_WHICH = re.compile(
    r"(?:model|ckpt|checkpoint)?[-_.]?(?:best|last|latest|final)(?:[-_.]\w{1,60})?\.\w{1,11}\Z", re.IGNORECASE | re.ASCII
)
#: Files beside a checkpoint that are part of one, never one of their own.
_AUXILIARY = re.compile(
    r"(?:training_args\.bin|latest_train_state\.pt|meta\.pt|(?:optimizer|scheduler|scaler|rng_state\w{0,40}|random_states\w{0,40}|sampler)\.\w{1,40})\Z"
)
#: An index makes the directory that it is in one checkpoint, whichever trainer wrote it.
_INDEX = re.compile(r".{1,300}\.index\.json\Z", re.DOTALL)
_DIRECTORIES = tuple(layout.directory for layout in LAYOUTS if layout.directory is not None)
_MARKS = (_INDEX, *(layout.mark for layout in LAYOUTS if layout.mark is not None))
_FILES = tuple(layout.file for layout in LAYOUTS if layout.file is not None)


@dataclass
class _Search:
    """Bounds of one search."""

    looked_into: int = 0
    found: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.looked_into >= MAX_DIRECTORIES or len(self.found) >= MAX_CHECKPOINTS


def find(directory: str) -> list[str]:
    """Paths of the checkpoints in ``directory``, which may also be one itself (or a file), by step then name.

    Raises ``InputError`` when it cannot be read.
    """
    try:
        return find_now(directory)
    except Vanished as error:
        raise InputError(f"There is no directory or file {printable(directory)}.") from error
    except Unreadable as error:
        raise InputError(f"Cannot read {printable(str(error))}. Check the rights of the user that runs this.") from error


def find_now(directory: str) -> list[str]:
    """As ``find``; raises ``Vanished`` or ``Unreadable``."""
    search = _Search()
    try:
        if not stat.S_ISDIR(os.stat(directory).st_mode):  # noqa: PTH116
            return [directory]
        _find(directory, 0, search)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(directory) from error
    except (OSError, ValueError) as error:
        raise Unreadable(f"{printable(directory)}: {reason(error)}") from error
    # Of too many the highest steps: what a run would go on from.
    return sorted(search.found, key=_order)[-MAX_CHECKPOINTS:]


def _find(directory: str, depth: int, search: _Search) -> None:
    search.looked_into += 1
    directories, files = _children(directory)
    if _is_one_itself(directory, directories, files):
        search.found.append(directory)
        return
    checkpoints = [child for child in directories if _is_checkpoint(directory, child)]
    runs = {child for child in checkpoints if _is_run(directory, child)}
    checkpoints = [child for child in checkpoints if child not in runs]
    search.found += [os.path.join(directory, name) for name in (*checkpoints, *_single_files(files))]  # noqa: PTH118
    for child in directories:
        if depth < MAX_DEPTH and not search.is_over and (child in runs or _CONTAINER.match(child)) and child not in checkpoints:
            path = os.path.join(directory, child)  # noqa: PTH118
            try:
                _find(path, depth + 1, search)
            except FileNotFoundError:
                continue
            except OSError:
                # Its own path is kept: whoever lists it next learns that it cannot be read, and says so.
                search.found.append(path)


def _is_one_itself(directory: str, directories: list[str], files: list[str]) -> bool:
    name = os.path.basename(os.path.abspath(directory))  # noqa: PTH100, PTH119
    if _HUGGING_FACE.match(name):
        return True
    inner = [child for child in directories if _is_named(child)]
    if any(_OF_MEGATRON.match(child) for child in directories):
        return True
    if any(pattern.match(file) for pattern in _MARKS for file in files):
        # A finished output directory of the Hugging Face Trainer holds its state and its checkpoints side by side.
        return not inner or _is_named(name)
    weights = [file for file in files if _is_weights(file)]
    if inner:
        return False
    if (
        _STEP_DIRECTORY.match(name)
        and not weights
        and any(_holds_shards(os.path.join(directory, child)) for child in directories)  # noqa: PTH118
    ):
        return True
    if _is_layout_directory(name) and not name.isdigit():
        return not any(pattern.match(file) for pattern in _FILES for file in files)
    numbered = [file for file in weights if not _SHARD.search(file) and step_from_name(file) is not None]
    if not weights or numbered or any(_is_checkpoint(directory, child) for child in directories):
        return False
    return _STEP_DIRECTORY.match(name) is not None or (len(files) > 1 and _is_one(weights))


def _is_one(weights: list[str]) -> bool:
    """Several safetensors (or shards) without step numbers belong together; files of torch.save stand each for itself."""
    return all(name.endswith(".safetensors") or _SHARD.search(name) for name in weights)


def _is_named(name: str) -> bool:
    return _STEP_DIRECTORY.match(final_name(name)) is not None or _is_layout_directory(name)


def _is_layout_directory(name: str) -> bool:
    return any(pattern.match(candidate) for candidate in {name, final_name(name)} for pattern in _DIRECTORIES)


def _is_checkpoint(directory: str, child: str) -> bool:
    if _is_named(child):
        return True
    return not _CONTAINER.match(child) and _holds_weights(os.path.join(directory, child))  # noqa: PTH118


def _single_files(files: list[str]) -> list[str]:
    there = set(files)
    return [file for file in files if _is_single_file(file, there)]


def _is_single_file(name: str, there: set[str]) -> bool:
    stands_first = stands_for(name)
    if stands_first is not None and (stands_first in there or name.startswith(("state_", "DONE_"))):
        return False
    return not _SHARD.search(name) and _is_weights(name)


def _is_weights(name: str) -> bool:
    if any(pattern.match(name) for pattern in _FILES):
        return True
    return name.endswith((*TORCH_ENDINGS, ".safetensors")) and not _AUXILIARY.match(name)


def _holds_weights(directory: str) -> bool:
    try:
        directories, files = _children(directory)
    except OSError:
        # Not a checkpoint as far as anybody can see; its parent is still read.
        return False
    if any(_OF_MEGATRON.match(child) for child in directories):
        return True
    return any(_is_weights(file) or any(pattern.match(file) for pattern in _MARKS) for file in files)


def _holds_shards(directory: str) -> bool:
    """Whether a part of a checkpoint lies here (``model/``, ``optim/``): its own ``.metadata`` makes it none of its own."""
    try:
        return holds_shards(_children(directory)[1])
    except OSError:
        return False


def _is_run(parent: str, child: str) -> bool:
    """Whether a directory is a run's rather than a checkpoint: files in it are each a checkpoint of their own, or directories are."""
    if _is_named(child) and not child.isdigit():
        return False
    directory = os.path.join(parent, child)  # noqa: PTH118
    try:
        directories, files = _children(directory)
    except OSError:
        return False
    if _is_one_itself(directory, directories, files):
        return False
    alone = [name for name in _single_files(files) if _stands_alone(name)]
    if child.isdigit():
        # Also the name of a step, whose one file may be named for it.
        return len({step_from_name(name) for name in alone}) > 1
    return bool(alone) or (any(_is_named(child) for child in directories) and any(_is_weights(name) for name in files))


def _stands_alone(name: str) -> bool:
    if any(pattern.match(name) for pattern in _FILES):
        return True
    return not _OF_A_RANK.search(name.partition(".")[0]) and (
        step_from_name(name) is not None or _SAID_WHICH.match(name) is not None
    )


def _children(directory: str) -> tuple[list[str], list[str]]:
    directories: list[str] = []
    files: list[str] = []
    with os.scandir(directory) as found:
        for child, _ in zip(found, range(MAX_NAMES), strict=False):
            if child.is_dir(follow_symlinks=False):
                if not child.name.startswith("."):
                    directories.append(child.name)
            elif child.is_file(follow_symlinks=False) and not TEMPORARY_NAME.search(child.name):
                files.append(child.name)
    return directories, files


def _order(path: str) -> tuple[int, str, str]:
    name = os.path.basename(path)  # noqa: PTH119
    step = step_from_name(final_name(name))
    return (-1 if step is None else step, name, path)
