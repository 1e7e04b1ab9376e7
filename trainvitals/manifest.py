"""``ckpt_manifest.json``: what the writer of a checkpoint wrote, file by file, with hashes. Standard library only.

Each rank writes ``ckpt_manifest.rank00003.json`` for its own files; rank 0 merges them into ``ckpt_manifest.json``, which is written
last (tmp + fsync + rename), inside the checkpoint, so that it travels with copies. A checkpoint that is one file has its manifest
beside it: ``last.ckpt.ckpt_manifest.json``. A manifest is untrusted input to its reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

SCHEMA = 1
NAME = "ckpt_manifest.json"
RANK_NAME = re.compile(r"ckpt_manifest\.rank(\d{5,9})\.json\Z", re.ASCII)
#: Algorithm -> hexadecimal digits of its hash.
ALGORITHMS: Mapping[str, int] = {"xxh3_128": 32, "sha256": 64, "blake3": 64}
MAX_FILES = 200_000
MAX_BYTES = 256 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]+\Z", re.ASCII)


class BadManifest(ValueError):
    """The text is no manifest of a schema that is known here. The message says why."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: ``path`` relative to the checkpoint with ``/``, size in bytes, ``hash`` in hexadecimal, the rank that wrote it."""

    path: str
    size: int
    hash: str
    rank: int = 0
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the begin of the save: ``blocked_s`` the training loop waited, ``staged_s`` until it could go on with all state
    copied, ``persisted_s`` until all was durable; ``copied_to_shared_s`` from a local to a shared file system."""

    staged_s: float | None = None
    persisted_s: float | None = None
    blocked_s: float | None = None
    is_async: bool | None = None
    copied_to_shared_s: float | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module. hash_source: readback = hashed from the file read again (sees torn writes), stream = while writing (sees
    what the storage did). has_*: None = the writer did not say. resumed_from: {"step", "path", "manifest_sha256"}.
    save_id: the same in all parts of one save by one launch of the trainer; other parts do not belong to it."""

    run: str
    attempt: int | None
    step: int
    algorithm: str
    files: tuple[ManifestFile, ...]
    created: str = ""
    trainer: str = ""
    format: str = ""
    world_size: int | None = None
    parallel: Mapping[str, int] = field(default_factory=dict)
    has_optimizer: bool | None = None
    has_rng: bool | None = None
    has_data_position: bool | None = None
    has_scheduler: bool | None = None
    loss: float | None = None
    loss_ema: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    tokens: int | None = None
    config_sha256: str = ""
    script_sha256: str = ""
    git: str = ""
    data_position: Mapping[str, Any] = field(default_factory=dict)
    resumed_from: Mapping[str, Any] = field(default_factory=dict)
    timing: Timing = Timing()
    hash_source: str = "readback"
    keep: str = "temporary"
    ranks: tuple[int, ...] = (0,)
    save_id: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every rank's part is in it."""
        return self.world_size is None or len(self.ranks) >= self.world_size


def rank_name(rank: int) -> str:
    """Name of one rank's part."""
    return f"ckpt_manifest.rank{rank:05d}.json"


def beside(path: str) -> str:
    """Where the manifest of a checkpoint is that is one file."""
    return f"{path}.{NAME}"


def is_own_name(name: str) -> bool:
    """Whether a file of this name is a manifest or a part of one: it is in no manifest's list."""
    return name == NAME or name.endswith(f".{NAME}") or RANK_NAME.match(name) is not None


def dump(manifest: Manifest) -> str:
    """The text of the file; raises ``ValueError`` for numbers that JSON has not."""
    return "".join(_pieces(manifest))


def _pieces(manifest: Manifest) -> Iterator[str]:
    # File by file: one call for a list of 200,000 would hold the interpreter, and with it the trainer, for half a second.
    head = {"schema": SCHEMA} | asdict(replace(manifest, files=()))
    del head["files"]
    yield json.dumps(head, separators=(",", ":"), allow_nan=False)[:-1]
    yield ',"files":['
    for number, file in enumerate(manifest.files):
        one = {"path": file.path, "size": file.size, "hash": file.hash, "rank": file.rank, "mtime_ns": file.mtime_ns}
        yield ("," if number else "") + json.dumps(one, separators=(",", ":"))
    yield "]}"


def parse(text: str | bytes) -> Manifest:
    """The manifest in a text of at most ``MAX_BYTES``; raises ``BadManifest``. Keys that are not known are ignored."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"no JSON ({type(error).__name__})") from error
    if not isinstance(document, dict):
        raise BadManifest("no JSON object")
    if document.get("schema") != SCHEMA:
        raise BadManifest(f"schema {str(document.get('schema'))[:20]!r}; this version reads {SCHEMA}")
    algorithm = document.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise BadManifest(f"hashes of an unknown kind: {str(algorithm)[:20]!r}")
    step = _whole(document.get("step"))
    if step is None:
        raise BadManifest("no step")
    values = _checked(document)
    values |= {"step": step, "algorithm": algorithm, "files": _files(document.get("files"), ALGORITHMS[algorithm])}
    return Manifest(**values)


def _files(given: object, digits: int) -> tuple[ManifestFile, ...]:
    if not isinstance(given, list) or len(given) > MAX_FILES:
        raise BadManifest("its list of files is missing or too long")
    found: dict[str, ManifestFile] = {}
    for one in given:
        if not isinstance(one, dict):
            raise BadManifest("a file that is no object")
        path, size, digest = one.get("path"), _whole(one.get("size")), one.get("hash")
        if not isinstance(path, str) or not is_inside(path) or size is None or size < 0:
            raise BadManifest("a file without a proper path and size")
        if not isinstance(digest, str) or len(digest) != digits or not _HEX.match(digest):
            raise BadManifest("a file without a proper hash")
        found[path] = ManifestFile(path, size, digest, _whole(one.get("rank")) or 0, _whole(one.get("mtime_ns")))
    return tuple(found[path] for path in sorted(found))


def is_inside(path: str) -> bool:
    """Whether a path of a manifest names a file below the checkpoint."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """Members of the right type; the others fall back to "not said"."""
    values: dict[str, Any] = {"run": _text(document.get("run")), "attempt": _whole(document.get("attempt"))}
    for name in ("created", "trainer", "format", "config_sha256", "script_sha256", "git", "hash_source", "keep", "save_id"):
        if text := _text(document.get(name)):
            values[name] = text
    for name in ("world_size", "tokens"):
        values[name] = _whole(document.get(name))
    for name in ("has_optimizer", "has_rng", "has_data_position", "has_scheduler"):
        given = document.get(name)
        values[name] = given if isinstance(given, bool) else None
    for name in ("loss", "loss_ema", "lr", "grad_norm"):
        values[name] = _number(document.get(name))
    parallel = document.get("parallel")
    if isinstance(parallel, dict):
        values["parallel"] = {name[:20]: size for name, size in list(parallel.items())[:20] if _whole(size) is not None}
    for name in ("data_position", "resumed_from"):
        given = document.get(name)
        values[name] = given if isinstance(given, dict) else {}
    timing = document.get("timing")
    if isinstance(timing, dict):
        seconds = {one.name: _number(timing.get(one.name)) for one in fields(Timing) if one.name != "is_async"}
        is_async = timing.get("is_async")
        values["timing"] = Timing(**seconds, is_async=is_async if isinstance(is_async, bool) else None)
    ranks = document.get("ranks")
    if isinstance(ranks, list):
        values["ranks"] = tuple(sorted({rank for rank in ranks[:MAX_FILES] if _whole(rank) is not None}))
    return values


def _text(given: object) -> str:
    return given[:500] if isinstance(given, str) else ""


def _whole(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**63 else None


def _number(given: object) -> float | None:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return float(given) if is_number and abs(given) < 1e308 else None  # type: ignore[arg-type]
