"""Who says it: rank, host and GPU of a line that tells of a fault, from the launcher's prefix and from the text. Pure.

``[rank13]:`` names the rank in the whole job. ``[Rank 1]`` inside a message of PyTorch is the rank in its process group, which is
another number in a sub-group (NVIDIA/nccl issue 1610); it counts only when nothing better is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: No run has more; a larger number is no rank.
MAX_RANK = 2_000_000
_PREFIX_RANK = re.compile(r"\[rank(\d{1,7})\]:", re.ASCII)
_PREFIX_LOCAL = re.compile(r"\[default(\d{1,4})\]:", re.ASCII)
_PREFIX_TASK = re.compile(r"(?:^|\s)(\d{1,7}):\s?$", re.ASCII)
_PREFIX_HOST = re.compile(r"(?:^|\s)\[?([A-Za-z][\w.-]{0,80}?)(?::\d{1,7}\])?:\s?$", re.ASCII)
_RAY_IP = re.compile(r"pid=\d{1,9},\s?ip=([\w.:-]{1,60})\)", re.ASCII)
_GROUP_RANK = re.compile(r"\[(?:PG [^\]]{1,120}? )?[Rr]ank (\d{1,7})\]", re.ASCII)
_TEXT_RANK = re.compile(
    r"(?:\b[Rr]ank[ :=]{1,2}|process rank |\bRANK=|\brank {1,8}: |\bRankID:|/job:\w{1,40}/replica:\d{1,4}/task:)(\d{1,7})\b(?! ?\(local_rank: -)",
    re.ASCII,
)
_LOCAL_RANK = re.compile(r"local_rank: (\d{1,4})\b", re.ASCII)
_GPU = re.compile(r"\bGPU (\d{1,3})(?: has a total|;)|\b[Dd]evice:? (\d{1,3})\b", re.ASCII)
_TEXT_HOST = re.compile(
    r"srun: error: (?!Node\b)([A-Za-z][\w.-]{0,100}): tasks? |Node failure on ([A-Za-z][\w.-]{0,100})|\bnode:? ([A-Za-z][\w.-]{0,100})"
    r"|with PID \d{1,9} on node ([A-Za-z][\w.-]{0,100})|(?:^|\s)([A-Za-z][\w.-]{0,100}):\d{1,9}:\d{1,9} \[\d{1,3}\]"
    r"|\bON ([A-Za-z][\w.-]{0,100}) UNCORRECTABLE|(?:^|\s)([A-Za-z][\w.-]{0,100}) kernel: |\bhost {1,8}: ([A-Za-z][\w.-]{0,100})",
    re.ASCII,
)
_STEP_HOST = re.compile(r"\*\*\* (?:JOB|STEP) \S{1,40} ON ([A-Za-z][\w.-]{0,100}) CANCELLED", re.ASCII)
_TASKS = re.compile(r"srun: error: \S{1,100}: tasks? ([\d,-]{1,200}): ", re.ASCII)
_WORLD = re.compile(
    r"(?:(?<![A-Za-z])[Ww]orld[ _]sizes?\b|(?<![A-Za-z])WORLD_SIZE\b)[\"']?[ .]{0,60}[:=]?[ .]{0,60}\[?(\d{1,7})\b|\bnranks (\d{1,7})\b",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """None = not said. ``is_group_rank``: the rank may be one within a process group. ``group_rank``: what the message calls it."""

    rank: int | None = None
    host: str | None = None
    local_rank: int | None = None
    gpu: int | None = None
    group_rank: int | None = None
    is_group_rank: bool = False


def origin(text: str, prefix: str = "") -> Origin:
    """``text``: the message (a few hundred characters); ``prefix``: what the launcher wrote before it."""
    in_prefix, group = _PREFIX_RANK.search(prefix), _GROUP_RANK.search(text)
    group_rank = _rank(group[1]) if group else None
    rank = _rank(in_prefix[1]) if in_prefix else None
    if rank is None and not in_prefix and (within := _PREFIX_RANK.search(text)):
        rank = _rank(within[1])
    if rank is None and (task := _PREFIX_TASK.search(prefix)):
        rank = _rank(task[1])
    is_group_rank = rank is None and group_rank is not None
    if is_group_rank:
        rank = group_rank
    elif rank is None and (named := _TEXT_RANK.search(text)):
        rank = _rank(named[1])
    if rank is None and (tasks := srun_tasks(text)):
        rank = tasks[0] if len(tasks) == 1 else None
    local, local_text, gpu = _PREFIX_LOCAL.search(prefix), _LOCAL_RANK.search(text), _GPU.search(text)
    return Origin(
        rank=rank,
        host=host(text, prefix),
        local_rank=int(local[1]) if local else int(local_text[1]) if local_text else None,
        gpu=int(gpu[1] or gpu[2]) if gpu else None,
        group_rank=group_rank,
        is_group_rank=is_group_rank,
    )


def host(text: str, prefix: str = "") -> str | None:
    """The host that the line is about; the one on which a scheduler's daemon says it does not count."""
    if found := _TEXT_HOST.search(text):
        return next(name for name in found.groups() if name)
    for part in re.split(r"(?<=:)\s|(?<=\])(?=\[)", prefix.strip() + " "):
        named = _PREFIX_HOST.search(part.strip())
        if named and not re.match(r"(?:default|rank)\d|E[A-Z]\d{4}$", named[1]):
            return named[1]
    ray = _RAY_IP.search(prefix) or _RAY_IP.search(text)
    return ray[1] if ray else None


def step_host(text: str) -> str | None:
    """The host whose Slurm daemon says that a job or step was cancelled: it lives."""
    found = _STEP_HOST.search(text)
    return found[1] if found else None


def srun_tasks(text: str) -> list[int]:
    """``srun: error: node06: tasks 0-2,5: Killed`` as [0, 1, 2, 5], at most 64."""
    found = _TASKS.search(text)
    tasks: list[int] = []
    for part in found[1].split(",") if found else ():
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            tasks += range(int(first), min(int(last or first), int(first) + 64) + 1)
    return tasks[:64]


def world_size(line: str) -> int | None:
    """Number of ranks, when the line says it: ``WORLD_SIZE=64``, ``using world size: 64``, ``nranks 64``."""
    found = _WORLD.search(line[:4000])
    size = _rank(found[1] or found[2]) if found else None
    return size if size else None


def _rank(text: str) -> int | None:
    value = int(text)
    return value if value < MAX_RANK else None
