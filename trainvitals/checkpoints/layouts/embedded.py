"""Parts of a Hugging Face or Accelerate checkpoint that FSDP or DeepSpeed wrote, each in a directory of its own.

``pytorch_model_fsdp_<i>/`` and ``optimizer_<i>/`` are PyTorch distributed checkpoints (``accelerate/utils/fsdp_utils.py``);
``global_stepN/`` and ``pytorch_model/`` are DeepSpeed's (``transformers`` and ``accelerate`` call its save_checkpoint).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.layouts import distributed
from trainvitals.checkpoints.layouts.base import Range
from trainvitals.checkpoints.layouts.deepspeed import DeepSpeed

_MODEL = re.compile(r"pytorch_model_fsdp_\d{1,4}/\Z", re.ASCII)
_OPTIMIZER = re.compile(r"optimizer_\d{1,4}/\Z", re.ASCII)
_DEEPSPEED = re.compile(r"(?:global_?step\d{1,18}|pytorch_model(?:_\d{1,4})?)/\Z", re.ASCII)


@dataclass
class Inner:
    """What the embedded parts tell together; None = they do not."""

    has_model: bool = False
    has_optimizer: bool = False
    has_scheduler: bool | None = None
    world_size: int | None = None
    parallel: dict[str, int] = field(default_factory=dict)


def prefixes(names: frozenset[str]) -> list[str]:
    """Directories right below the checkpoint that FSDP or DeepSpeed wrote, each with its ``/``."""
    found = {name.partition("/")[0] + "/" for name in names if "/" in name}
    return sorted(prefix for prefix in found if is_fsdp(prefix) or _DEEPSPEED.match(prefix))


def is_fsdp(prefix: str) -> bool:
    return _MODEL.match(prefix) is not None or _OPTIMIZER.match(prefix) is not None


def look(listing: Listing, findings: Findings, *, into_files: bool) -> Inner:
    """Check each part; sentences name its directory."""
    inner = Inner()
    there = prefixes(listing.names)
    # Accelerate makes such a directory right before DCP writes into it (``save_fsdp_optimizer``).
    findings.missing += [
        f"{printable(place)}/ is empty: the save of it did not finish" for place in sorted(listing.empty) if is_fsdp(place + "/")
    ]
    for prefix in there:
        if is_fsdp(prefix):
            facts = distributed.look(listing, findings, into_files=into_files, prefix=prefix)
            inner.has_model |= _MODEL.match(prefix) is not None
            inner.has_optimizer |= _OPTIMIZER.match(prefix) is not None
        else:
            part = distributed.below(listing, prefix)
            if not DeepSpeed().matches(part):
                continue
            found = Findings()
            facts = DeepSpeed().look(part, found, into_files=into_files)
            for kind in ("missing", "damaged", "unproven", "unreadable", "notes"):
                getattr(findings, kind).extend(f"{printable(prefix)}{text}" for text in getattr(found, kind))
            findings.vanished |= found.vanished
            inner.has_model = True
            inner.has_optimizer |= bool(facts.has_optimizer)
            inner.has_scheduler = inner.has_scheduler or facts.has_scheduler
            inner.parallel.update(facts.parallel)
        inner.world_size = max(inner.world_size or 0, facts.world_size or 0) or None
    return inner


def ranges(listing: Listing) -> Mapping[str, tuple[Range, ...]]:
    """As ``Layout.ranges``."""
    found: dict[str, tuple[Range, ...]] = {}
    for prefix in prefixes(listing.names):
        if is_fsdp(prefix):
            found |= distributed.ranges(listing, prefix)
    return found
