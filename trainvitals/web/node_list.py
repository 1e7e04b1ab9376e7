"""Which nodes are on the list: those that report, those of a run that do not, and none that was taken away on purpose. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from trainvitals.records import GpuSample, NodeSample
from trainvitals.web.hosts import Names, hosts_of
from trainvitals.web.view import RunView

#: A silent node that no run uses stays so long, for whoever looks what just went.
UNUSED_NS = 10 * 60 * 10**9
#: Time of a node that is on a run's list of machines and has no report.
NEVER_NS = 0


def listed(
    nodes: Sequence[NodeSample], gpus: Sequence[GpuSample], runs: Sequence[RunView], now_ns: int, silent_after_s: float
) -> tuple[tuple[NodeSample, ...], tuple[GpuSample, ...]]:
    """(nodes by name, GPUs by node and index) as they are to be shown."""
    fresh: dict[str, list[GpuSample]] = defaultdict(list)
    held: dict[str, list[GpuSample]] = defaultdict(list)
    for gpu in gpus:
        held[gpu.node].append(gpu)
        if now_ns - gpu.time_ns <= silent_after_s * 1e9:
            fresh[gpu.node].append(gpu)
    shown = [_named_twice(one, len(fresh[one.node])) for one in nodes]
    shown = _without_renamed(shown, held, fresh)
    shown = _of_runs(shown, runs, now_ns)
    # A node that answers for all its GPUs knows no others: older samples are of GPUs that were taken out.
    whole = {one.node for one in shown if one.state != "silent" and one.gpus and one.gpus <= len(fresh[one.node])}
    names = {one.node for one in shown}
    kept = [gpu for gpu in gpus if gpu.node in names and (gpu.node not in whole or now_ns - gpu.time_ns <= silent_after_s * 1e9)]
    return tuple(sorted(shown, key=lambda one: one.node)), tuple(kept)


def _named_twice(node: NodeSample, fresh: int) -> NodeSample:
    """Machines from one image call themselves alike; their samples are one row then, and hide each other."""
    if node.state in ("silent", "no_gpu") or not node.gpus or fresh <= node.gpus:
        return node
    told = f"more than one machine reports as {node.node} ({fresh} GPUs, and each says {node.gpus}): give each its own --node"
    return replace(
        node, state=node.state if node.state in ("fail", "lost") else "warn", text=f"{told}; {node.text}" if node.text else told
    )


def _without_renamed(
    nodes: Sequence[NodeSample], held: dict[str, list[GpuSample]], fresh: dict[str, list[GpuSample]]
) -> list[NodeSample]:
    """Without names that a machine had before: its GPUs report under another one now."""
    if all(one.state != "silent" for one in nodes):
        return list(nodes)
    owner = {gpu.gpu: name for name, found in fresh.items() for gpu in found if not gpu.gpu.startswith("index-")}
    return [
        one
        for one in nodes
        if one.state != "silent"
        or not held[one.node]
        or not all(owner.get(gpu.gpu, one.node) != one.node for gpu in held[one.node])
    ]


def _of_runs(nodes: Sequence[NodeSample], runs: Sequence[RunView], now_ns: int) -> list[NodeSample]:
    """With the machines of runs that do not report; without silent ones that no run uses any more, where all runs say what they use."""
    used = {run.name: hosts_of(run) for run in runs}
    running = [run for run in runs if run.attempt and run.attempt.ended_ns is None]
    names = Names(one.node for one in nodes)
    known: dict[str, str] = {}
    added: list[NodeSample] = []
    for run in runs:
        found = {host: names.find(host) for host in used[run.name]}
        known |= dict.fromkeys((node for alike in found.values() for node in alike), run.name)
        missing = [host for host, alike in found.items() if not alike]
        reporting = len(found) - len(missing)
        if not missing or not reporting:
            continue  # no node of the run reports: there is no collector, and nothing to miss
        # Where most report, one that does not is lost; where few do, collectors were put on these few.
        state = "silent" if reporting >= len(missing) else "unknown"
        told = f"{run.name} runs on it, and it has not reported for a day, or never"
        added += [NodeSample(host, NEVER_NS, state, run=run.name, text=told) for host in missing]
    # Names that fit no node (pods, addresses) say nothing of which nodes a run uses.
    is_all_told = bool(running) and all(any(names.find(host) for host in used[run.name]) for run in running)
    return [
        *(
            one if one.run or one.node not in known else replace(one, run=known[one.node])
            for one in nodes
            if not (
                is_all_told
                and one.state == "silent"
                and one.node not in known
                and not one.is_simulated
                and now_ns - one.time_ns > UNUSED_NS
            )
        ),
        *added,
    ]


def missing(nodes: Sequence[NodeSample], run: str = "") -> list[NodeSample]:
    """Nodes that should report and do not, the longest silence last; run: only those known to be of it."""
    found = [one for one in nodes if (one.state == "silent" or one.time_ns == NEVER_NS) and (not run or one.run == run)]
    return sorted(found, key=lambda one: (one.time_ns == NEVER_NS, -one.time_ns, one.node))
