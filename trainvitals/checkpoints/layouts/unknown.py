"""Layouts that are recognised by name only, so that a person reads what was seen instead of a wrong verdict."""

from __future__ import annotations

import re

from trainvitals.checkpoints.files import Listing, printable

_FOREIGN = (
    (re.compile(r"(?:^|/)(?:\.metadata|__\d+_\d+\.distcp)\Z"), "PyTorch distributed (DCP, torchtitan, Megatron-Core torch_dist)"),
    (re.compile(r"(?:^|/)mp_rank_\d+(?:_\d+)*/"), "Megatron-LM (ckpt-format torch)"),
    (re.compile(r"(?:^|/)(?:mp_rank_\d+_model_states|(?:bf16_)?zero_pp_rank_\d+_mp_rank_\d+_\w+)\.pt\Z"), "DeepSpeed"),
    (re.compile(r"(?:^|/)(?:_CHECKPOINT_METADATA|manifest\.ocdbt|_METADATA)\Z"), "Orbax"),
)


def foreign_format(listing: Listing) -> str | None:
    """The trainer whose names these are, in places that no reader of ours knows; None otherwise."""
    if listing.is_file:
        return None
    for pattern, who in _FOREIGN:
        if any(pattern.search(name) for name in listing.names):
            return who
    return None


def what_was_seen(listing: Listing) -> str:
    """One sentence on an unknown checkpoint."""
    foreign = foreign_format(listing)
    if foreign is not None:
        return f"holds files of {foreign}, but not where that trainer puts them: its completeness cannot be judged"
    names = sorted(listing.names)
    if not names:
        return "holds no files"
    shown = ", ".join(printable(name, 60) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"no known layout; it holds {shown}{more}"
