"""DeepSpeed's universal checkpoint: ``zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt`` and ``mp_rank_*_model_states.pt``.

``deepspeed/checkpoint/ds_to_universal.py`` makes it from a finished checkpoint: it works in ``tmp/`` inside the new directory, deletes
that at the end and writes the directory's name into ``latest_universal`` beside it.
"""

from __future__ import annotations

import re

from trainvitals.checkpoints import parts
from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts.base import Facts, Layout

_PARAMETER = re.compile(r"zero/(?P<parameter>[^/]{1,400})/(?P<kind>[a-z0-9_]{1,60})\.pt\Z", re.ASCII)
_MODEL = re.compile(r"mp_rank_(\d{1,9})_model_states\.pt\Z", re.ASCII)
_WORKING = "tmp/"
_MOMENT = re.compile(r"exp_avg|momentum|step\Z", re.ASCII)


class DeepSpeedUniversal(Layout):
    """See the module."""

    name = "deepspeed_universal"
    directory = re.compile(r"global_step\d{1,18}_universal\Z", re.ASCII)

    def matches(self, listing: Listing) -> bool:
        if listing.is_file:
            return False
        names = listing.names
        return any(_PARAMETER.match(name) for name in names) or (
            self.directory.match(listing.name) is not None and any(name.startswith(_WORKING) for name in names)
        )

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        kinds: dict[str, set[str]] = {}
        for name in listing.names:
            if found := _PARAMETER.match(name):
                kinds.setdefault(found["parameter"], set()).add(found["kind"])
        ranks = sorted(int(found[1]) for name in listing.names if (found := _MODEL.match(name)))
        if any(name.startswith(_WORKING) for name in listing.names):
            findings.missing.append("tmp/ is still in it: the conversion to a universal checkpoint did not finish")
        _check_parameters(kinds, findings)
        if not ranks:
            findings.missing.append("mp_rank_00_model_states.pt is missing: it holds the step and the scheduler")
        elif len(ranks) <= ranks[-1]:
            findings.missing.append(
                f"model states of {ranks[-1] + 1 - len(ranks)} ranks are missing (the highest is {ranks[-1]})"
            )
        for entry in listing.entries:
            if not entry.name.endswith(".pt") or entry.name.startswith(_WORKING):
                continue
            if into_files:
                parts.check_torch(listing, entry, findings)
            elif not entry.size and not entry.problem:
                findings.damaged.append(f"{printable(entry.name)} is empty (0 bytes)")
        has_optimizer = any(_MOMENT.match(kind) for found in kinds.values() for kind in found) or (
            "zero/optimizer_state.pt" in listing.names
        )
        parallel = {"tp": len(ranks)} if len(ranks) > 1 else {}
        return Facts(parts.step_from_name(listing.name.removesuffix("_universal")), has_optimizer, parallel=parallel)


def _check_parameters(kinds: dict[str, set[str]], findings: Findings) -> None:
    """Every parameter has its weights; most have the same files, and one that lacks some of them lost those."""
    if not kinds:
        findings.missing.append("zero/ holds no parameter")
        return
    usual = set.intersection(*_most_alike(kinds))
    for parameter, found in sorted(kinds.items()):
        lacking = sorted(({"fp32"} | usual) - found)
        if lacking:
            findings.missing.append(
                f"zero/{printable(parameter, 100)} lacks {printable(', '.join(f'{kind}.pt' for kind in lacking), 100)}"
            )


def _most_alike(kinds: dict[str, set[str]]) -> list[set[str]]:
    counted: dict[frozenset[str], int] = {}
    for found in kinds.values():
        counted[frozenset(found)] = counted.get(frozenset(found), 0) + 1
    best = max(counted, key=lambda found: (counted[found], len(found)))
    return [set(best)]
