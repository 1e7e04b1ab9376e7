"""Find the checkpoints in a directory by their names. Links are not followed: they point at a checkpoint that has its own place."""

from __future__ import annotations

import os
import re
import stat

from trainvitals.checkpoints.files import TEMPORARY_NAME, Unreadable, Vanished, printable, reason
from trainvitals.checkpoints.parts import TORCH_ENDINGS, step_from_name
from trainvitals.errors import InputError

MAX_CHECKPOINTS = 10_000
_HUGGING_FACE = re.compile(r"checkpoint-\d{1,18}\Z")
_STEP_DIRECTORY = re.compile(
    r"(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch|ep)s?[-_=]?\d{1,18}\b|\d{1,18}\Z", re.IGNORECASE
)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
#: Files beside a checkpoint that are part of one, never one of their own.
_AUXILIARY = re.compile(r"(?:training_args\.bin|(?:optimizer|scheduler|scaler|rng_state\w*|random_states\w*|sampler)\.\w+)\Z")
#: Their presence makes the directory itself one checkpoint.
_WHOLE = re.compile(r"(?:trainer_state\.json|\.metadata|.+\.index\.json|__\d+_\d+\.distcp|_CHECKPOINT_METADATA)\Z")


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
    try:
        if not stat.S_ISDIR(os.stat(directory).st_mode):  # noqa: PTH116
            return [directory]
        directories, files = _children(directory)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(directory) from error
    except (OSError, ValueError) as error:
        raise Unreadable(f"{printable(directory)}: {reason(error)}") from error
    name = os.path.basename(os.path.abspath(directory))  # noqa: PTH100, PTH119
    if _HUGGING_FACE.match(name) or any(_WHOLE.match(file) for file in files):
        # A finished output directory of the Hugging Face Trainer holds its state and its checkpoints side by side.
        inner = [child for child in directories if _STEP_DIRECTORY.match(child)]
        if _HUGGING_FACE.match(name) or not inner:
            return [directory]
        return _ordered(directory, inner)
    found = [child for child in directories if _STEP_DIRECTORY.match(child) or _holds_weights(os.path.join(directory, child))]  # noqa: PTH118
    weights = [file for file in files if _is_checkpoint_file(file)]
    numbered = [file for file in weights if not _SHARD.search(file) and step_from_name(file) is not None]
    if not found and weights and not numbered and (_STEP_DIRECTORY.match(name) or (len(files) > 1 and _is_one(weights))):
        return [directory]
    return _ordered(directory, found + [file for file in weights if not _SHARD.search(file)])


def _is_one(weights: list[str]) -> bool:
    """Several safetensors (or shards) without step numbers belong together; files of torch.save stand each for itself."""
    return all(name.endswith(".safetensors") or _SHARD.search(name) for name in weights)


def _children(directory: str) -> tuple[list[str], list[str]]:
    directories: list[str] = []
    files: list[str] = []
    with os.scandir(directory) as found:
        for child, _ in zip(found, range(MAX_CHECKPOINTS), strict=False):
            if child.is_dir(follow_symlinks=False):
                directories.append(child.name)
            elif child.is_file(follow_symlinks=False) and not TEMPORARY_NAME.search(child.name):
                files.append(child.name)
    return directories, files


def _is_checkpoint_file(name: str) -> bool:
    return name.endswith((*TORCH_ENDINGS, ".safetensors")) and not _AUXILIARY.match(name)


def _holds_weights(directory: str) -> bool:
    try:
        _, files = _children(directory)
    except OSError:
        # Not a checkpoint as far as anybody can see; its parent is still read.
        return False
    return any(_WHOLE.match(file) or _is_checkpoint_file(file) for file in files)


def _ordered(directory: str, names: list[str]) -> list[str]:
    def key(name: str) -> tuple[int, str]:
        step = step_from_name(name)
        return (-1 if step is None else step, name)

    return [os.path.join(directory, name) for name in sorted(names, key=key)]  # noqa: PTH118
