"""Megatron-Core's ``integrity.json``: sha256 of every file right in the directory (``dist_checkpointing/integrity.py``, ``--verify-integrity``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainvitals import manifest
from trainvitals.checkpoints import json_file
from trainvitals.checkpoints.files import Listing, NotRegular, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings

NAME = "integrity.json"
MAX_BYTES = 16 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)


def read(listing: Listing, findings: Findings) -> Mapping[str, str]:
    """File name -> sha256 in hexadecimal; empty when there is none, or it cannot be used (which goes to ``findings``)."""
    if listing.is_file or NAME not in listing.names:
        return {}
    try:
        with opened(listing.path(NAME)) as reader:
            if reader.size > MAX_BYTES:
                findings.unproven.append(f"{NAME} is longer than what is parsed here ({MAX_BYTES} bytes)")
                return {}
            document = json_file.parse(reader.read(0, reader.size), max_brackets=1_000)
    except Vanished:
        findings.vanished = True
        return {}
    except (Unreadable, NotRegular) as error:
        findings.unreadable.append(f"{NAME} cannot be read: {printable(str(error))}")
        return {}
    except json_file.BadJson as error:
        findings.damaged.append(f"{NAME}: {error}")
        return {}
    return _checked(document, findings)


def _checked(document: Any, findings: Findings) -> Mapping[str, str]:
    hashes = document.get("files") if isinstance(document, dict) else None
    if not isinstance(hashes, dict) or document.get("algorithm", "sha256") != "sha256":
        # Another program's file of that name is no fault.
        findings.notes.append(f"{NAME} is not what Megatron-Core writes; it proves nothing here")
        return {}
    if not all(isinstance(digest, str) and _SHA256.match(digest) and "/" not in name for name, digest in hashes.items()):
        findings.damaged.append(f"{NAME} holds what is no sha256")
        return {}
    # Our own manifest may have been in the directory, or half of it, when Megatron hashed what it saw.
    return {name: digest for name, digest in hashes.items() if not manifest.is_own_name(name) and manifest.is_inside(name)}
