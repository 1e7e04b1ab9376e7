"""What names alone say: files that are one checkpoint together, and names that a saver gives up when it has finished.

Seen in the savers' sources: llm.c ``train_gpt2.cu`` (write_checkpoint), Composer ``checkpoint_saver.py``, Orbax ``path/atomicity.py``
(``.orbax-checkpoint-tmp``, older versions add ``-<timestamp>``), OLMo and OLMo-core (``-tmp``), Hugging Face Trainer
(``tmp-checkpoint-N``), NeMo-RL ``utils/checkpoint.py`` (``tmp_step_N``), NeMo
``nemo_model_checkpoint.py`` (a marker ``<name>-unfinished`` beside the checkpoint).
"""

from __future__ import annotations

import re

#: Name of the file that stands for the checkpoint -> names of the others; ``{}`` is what the first group found.
_TOGETHER = (
    (re.compile(r"model_(\d{8,18})\.bin\Z", re.ASCII), r"(?:state_{}_\d{{5,9}}\.bin|DONE_{})\Z"),
    (re.compile(r"(ep\d{1,9}-ba\d{1,18})-rank0\.pt\Z", re.ASCII), r"{}-rank[1-9]\d{{0,8}}\.pt\Z"),
)
#: The other way round: name of another file -> name of the one that stands for the checkpoint.
_STANDS_FOR = (
    (re.compile(r"(?:state_(\d{8,18})_\d{5,9}\.bin|DONE_(\d{8,18}))\Z", re.ASCII), "model_{}.bin"),
    (re.compile(r"(ep\d{1,9}-ba\d{1,18})-rank[1-9]\d{0,8}\.pt\Z", re.ASCII), "{}-rank0.pt"),
)
_UNFINISHED = re.compile(
    r"(?P<name>.{1,300}?)\.orbax-checkpoint-tmp(?:-\d{1,20})?\Z|(?P<numbered>.{0,300}\d(?:-unsharded)?)[-._]tmp\Z",
    re.ASCII | re.DOTALL,
)
_UNFINISHED_START = re.compile(r"tmp-(?P<name>checkpoint-\d{1,18})\Z|tmp_(?P<step>step_\d{1,18})\Z", re.ASCII)
MARKER_ENDING = "-unfinished"


def others_of(name: str) -> re.Pattern[str] | None:
    """Names of the files beside the file ``name`` that are one checkpoint with it; None when it stands alone."""
    for pattern, others in _TOGETHER:
        if found := pattern.match(name):
            return re.compile(others.format(found[1], found[1]), re.ASCII)
    return None


def stands_for(name: str) -> str | None:
    """Name of the file that a checkpoint is called by when ``name`` is another file of it; None when it is its own."""
    for pattern, first in _STANDS_FOR:
        if found := pattern.match(name):
            return first.format(next(group for group in found.groups() if group is not None))
    return None


def marker_of(name: str) -> str:
    """NeMo's marker of a checkpoint that is being saved or deleted; it lies beside it (format_checkpoint_unfinished_marker_path)."""
    return name.removesuffix(".nemo").removesuffix(".ckpt").removesuffix("-EMA") + MARKER_ENDING


def final_name(name: str) -> str:
    """The name that a directory will have when its save has finished; the name itself when it has that already."""
    if found := _UNFINISHED.match(name):
        return found["name"] or found["numbered"]
    found = _UNFINISHED_START.match(name)
    return found["name"] or found["step"] if found else name
