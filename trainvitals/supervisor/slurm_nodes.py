"""Which nodes a start must not use, and whether enough are left. Pure: what Slurm says and who was blamed are given.

Nothing here or anywhere takes a node out of the cluster: a person is shown the command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.supervisor.history import History
from trainvitals.supervisor.slurm_text import Node, is_node, joined, shown

#: A node that a post-mortem named is avoided for so long, or until a person lets a run go on that holds: somebody may have repaired it.
BLAMED_NS = 24 * 3_600 * 10**9
#: Ends that are a node's own fault; a broken connection is seen at both of its ends, so its host is not blamed.
NODES_FAULT = frozenset({"node_failure", "gpu_error", "xid"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next start may use. exclude: names, joined. nodes: how many it gets, 0 = not known. refusal: why it must not start,
    "" = it may. sentence: for people, "" = there is nothing to say. is_pending: not known yet, to be asked again."""

    exclude: str = ""
    nodes: int = 0
    sentence: str = ""
    refusal: str = ""
    is_pending: bool = False


def is_silent(looks: Sequence[Mapping[str, Node]], name: str) -> bool:
    """Marked as not responding in the last two looks: for seconds after a start Slurm marks healthy nodes so, too."""
    return len(looks) >= 2 and all((node := look.get(name)) is not None and not node.is_responding for look in looks[-2:])


def bad_nodes(looks: Sequence[Mapping[str, Node]]) -> tuple[str, ...]:
    """By the newest look (oldest first), and by silence in the last two."""
    if not looks:
        return ()
    return tuple(sorted(name for name, node in looks[-1].items() if node.is_bad or is_silent(looks, name)))


def has_doubt(look: Mapping[str, Node], names: Collection[str]) -> bool:
    """Whether a second look is needed: one of ``names`` does not respond and nothing else is said of it."""
    return any(not node.is_responding and not node.is_bad for name, node in look.items() if name in names)


def node_named(host: str | None, known: Collection[str]) -> str:
    """The node that a host's name in a log means: as it stands, or without its domain; "" = none of the cluster's."""
    if not is_node(host):
        return ""
    assert host is not None
    return next((name for name in (host, host.partition(".")[0]) if name in known), "")


def blamed(history: History, now_ns: int) -> tuple[str, ...]:
    """Nodes that earlier ends were put down to, since a person last let the run go on after a hold, within ``BLAMED_NS``."""
    return tuple(
        sorted(
            {
                name
                for start in history.starts
                if start.number > history.forgiven and start.ended_ns is not None and start.ended_ns > now_ns - BLAMED_NS
                for name in start.bad_nodes.split(",")
                if is_node(name)
            }
        )
    )


def in_allocation(candidates: Collection[str], bad: Collection[str], blames: Collection[str], needed: int, job: str) -> Plan:
    """candidates: nodes that the job has now. needed: 0 = all that are left."""
    excluded = [name for name in candidates if name in bad or name in blames]
    left = len(candidates) - len(excluded)
    told = _told(left, len(candidates), f"job {job}", needed or max(1, left), excluded)
    if left < max(1, needed):
        return Plan(joined(excluded), refusal=f"not enough healthy nodes: {told}. The allocation is kept meanwhile, and costs")
    return Plan(joined(excluded), needed or left, told)


def in_partition(
    candidates: Collection[str], bad: Collection[str], avoided: Collection[str], needed: int, partition: str
) -> Plan:
    """avoided: nodes that Slurm takes for healthy and that must not be used. Those that it takes for bad it gives to no job, and a
    job that waits for them starts when they are back: so that is said only. needed: 0 = not known, then nothing is refused."""
    excluded = [name for name in candidates if name in avoided]
    usable = len(candidates) - len(excluded)
    left = len([name for name in candidates if name not in avoided and name not in bad])
    told = _told(left, len(candidates), f"partition {partition}", needed, excluded)
    if needed and usable < needed:
        return Plan(joined(excluded), needed, refusal=f"not enough healthy nodes: {told}")
    if needed and left < needed:
        return Plan(
            joined(excluded), needed, f"not enough healthy nodes now: {told}; the job waits in the queue until they are back"
        )
    return Plan(joined(excluded), needed, told if needed else "")


def _told(left: int, of: int, where: str, needed: int, excluded: Sequence[str]) -> str:
    avoided = f"; not used: {shown(excluded)}" if excluded else ""
    return f"{left:,} of {of:,} nodes of {where} are healthy, and the start needs {needed:,}{avoided}"


def drain_command(name: str, reason: str) -> str:
    """What a person may type to keep other jobs off a node; it is shown, never run."""
    plain = "".join(c for c in reason if c.isascii() and (c.isalnum() or c in " ._:,-"))[:120].strip() or "faulty"
    return f"scontrol update nodename={name} state=drain reason='{plain}'"
