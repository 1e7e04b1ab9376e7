"""Secrets out of what is written down: by the name that they stand under, and by the shape that well-known tokens have.

One rule for what the hook is given and for what logs say. In doubt a text is masked: a comparison that misses one changed key
costs less than a token in a shared file.
"""

from __future__ import annotations

from trainvitals.masking.names import MASK, NAME_MEMBERS, VALUE_MEMBERS, is_secret_name
from trainvitals.masking.text import (
    is_pair_of_secret,
    mask_arguments,
    mask_cut_text,
    mask_json,
    mask_text,
    names_secret,
    secret_members,
)

__all__ = [
    "MASK",
    "NAME_MEMBERS",
    "VALUE_MEMBERS",
    "is_pair_of_secret",
    "is_secret_name",
    "mask_arguments",
    "mask_cut_text",
    "mask_json",
    "mask_text",
    "names_secret",
    "secret_members",
]
