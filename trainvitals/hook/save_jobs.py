"""Two comparisons with a manifest, in the thread: a copy with its source, and a start with the checkpoint it goes on from."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainvitals.hook import durable
from trainvitals.hook.hashing import BLOCK_BYTES, Changed, hash_file, of_name
from trainvitals.hook.manifest_job import LOOK_AGAIN_S, read_whole
from trainvitals.manifest import NAME, BadManifest, Manifest, ManifestFile, beside, dump, parse

#: So long a comparison waits for the manifest of its source, which may still be made.
MANIFEST_WAIT_S = 600.0
#: So long the comparison of a start waits to be told its configuration (``describe``).
FACTS_WAIT_S = 15.0
MAX_MANIFEST_BYTES = 64 << 20
MAX_SENTENCES = 5

#: kind, step, text, data of an event.
Told = Callable[[str, int | None, str, Mapping[str, object]], None]


def manifest_path(checkpoint: str) -> str:
    """Where a checkpoint's manifest is."""
    is_directory = os.path.isdir(checkpoint)  # noqa: PTH112
    return os.path.join(checkpoint, NAME) if is_directory else beside(checkpoint)  # noqa: PTH118


def file_path(checkpoint: str, file: ManifestFile) -> str:
    """Where a file of the manifest is; a checkpoint that is one file may have been given another name."""
    is_directory = os.path.isdir(checkpoint)  # noqa: PTH112
    return os.path.join(checkpoint, file.path) if is_directory else checkpoint  # noqa: PTH118


class CopyJob:
    """local: the source, which has a manifest or gets one; path: the copy. has_source: whether the manifest is still made."""

    def __init__(self, local: str, path: str, took_s: float | None, has_source: Callable[[], bool], told: Told) -> None:
        self.path = path
        self.done = threading.Event()
        self.is_equal: bool | None = None
        self._local, self._took_s, self._has_source, self._told = local, took_s, has_source, told
        self._looks = 0
        self._until_s = time.monotonic() + MANIFEST_WAIT_S

    def give_up(self, reason: str) -> None:
        self._tell(None, "manifest", f"the copy was not compared: {reason}", [reason])

    def advance(self, is_stopped: Callable[[], bool]) -> float | None:
        try:
            text = read_whole(manifest_path(self._local), MAX_MANIFEST_BYTES)
            manifest = parse(text)
        except FileNotFoundError:
            if self._has_source() and time.monotonic() < self._until_s:
                self._looks += 1
                return LOOK_AGAIN_S[min(self._looks, len(LOOK_AGAIN_S)) - 1]
            self.give_up("its source has no manifest")
            return None
        except (OSError, BadManifest) as error:
            self.give_up(f"the manifest of its source cannot be used ({error})")
            return None
        differences = self._compare(manifest, is_stopped)
        self.is_equal = not differences
        if differences:
            self._tell(manifest, "failed", f"the copy differs from its source: {'; '.join(differences)}", differences)
            return None
        here = replace(manifest, timing=replace(manifest.timing, copied_to_shared_s=self._took_s))
        try:
            durable.write_whole(manifest_path(self.path), dump(here))
        except OSError as error:
            self._tell(manifest, "failed", "the copy is equal, its manifest cannot be written", [error.strerror or "I/O error"])
            return None
        self._tell(manifest, "persisted", "the copy is equal to its source", [])
        return None

    def _compare(self, manifest: Manifest, is_stopped: Callable[[], bool]) -> list[str]:
        algorithm = of_name(manifest.algorithm)
        if algorithm is None:
            return [f"{manifest.algorithm} cannot be computed here; install trainvitals[fast]"]
        found: list[str] = []
        buffer = bytearray(BLOCK_BYTES)
        for file in manifest.files:
            try:
                if hash_file(file_path(self.path, file), algorithm, is_stopped, buffer).hash != file.hash:
                    found.append(f"{file.path} has other bytes")
            except Changed:
                found.append(f"{file.path} changes while it is compared")
            except OSError as error:
                found.append(f"{file.path}: {error.strerror or type(error).__name__}")
            if len(found) >= MAX_SENTENCES:
                break
        return found

    def _tell(self, manifest: Manifest | None, state: str, text: str, reasons: list[str]) -> None:
        data: dict[str, Any] = {"state": state, "path": _shown(self.path), "copy_of": _shown(self._local)}
        if self.is_equal is not None:
            data["is_equal"] = self.is_equal
        if state == "manifest":
            data["is_written"] = False
        if manifest is not None:
            data |= {"files": len(manifest.files), "bytes": sum(file.size for file in manifest.files)}
        if self._took_s is not None:
            data["copied_to_shared_s"] = self._took_s
        if reasons:
            data["reasons"] = reasons
        self._told("save", None if manifest is None else manifest.step, text[:500], data)


class ResumeJob:
    """facts: what this start says of itself; know_origin: takes the manifest's sha256. Without a manifest nothing is told."""

    def __init__(
        self, path: str, step: int | None, facts: Callable[[], Mapping[str, Any]], know_origin: Callable[[str], None], told: Told
    ) -> None:
        self.path = path
        self.done = threading.Event()
        self._step, self._facts, self._know_origin, self._told = step, facts, know_origin, told
        self._until_s = time.monotonic() + FACTS_WAIT_S
        self._found: tuple[Manifest, str, dict[str, Any]] | None = None

    def give_up(self, reason: str) -> None:
        if self._found is not None:
            self._tell()

    def advance(self, is_stopped: Callable[[], bool]) -> float | None:
        if self._found is None:
            try:
                text = read_whole(manifest_path(self.path), MAX_MANIFEST_BYTES)
                manifest = parse(text)
            except FileNotFoundError:
                return None
            except (OSError, BadManifest) as error:
                self._told("message", self._step, f"the manifest of {_shown(self.path)} cannot be used: {error}"[:500], {})
                return None
            digest = hashlib.sha256(text).hexdigest()
            self._know_origin(digest)
            self._found = manifest, digest, self._files(manifest, is_stopped)
        manifest = self._found[0]
        known = self._facts()
        waits = any(getattr(manifest, name) and not known.get(name) for name in ("config_sha256", "script_sha256"))
        if waits and time.monotonic() < self._until_s:
            return 0.5
        self._tell()
        return None

    def _files(self, manifest: Manifest, is_stopped: Callable[[], bool]) -> dict[str, Any]:
        """Sizes and times only: this start reads the files itself just now, and the watchdog verifies their content."""
        missing: list[str] = []
        resized: list[str] = []
        touched = 0
        for file in manifest.files:
            if is_stopped():
                break
            try:
                info = os.stat(file_path(self.path, file))  # noqa: PTH116
            except OSError:
                missing.append(file.path)
                continue
            if info.st_size != file.size:
                resized.append(file.path)
            elif file.mtime_ns is not None and info.st_mtime_ns != file.mtime_ns:
                touched += 1
        return {
            "files": len(manifest.files), "files_missing": missing[:MAX_SENTENCES], "files_of_other_size": resized[:MAX_SENTENCES],
            "files_of_other_time": touched,
        }  # fmt: skip

    def _tell(self) -> None:
        assert self._found is not None
        manifest, digest, files = self._found
        known = self._facts()
        check: dict[str, Any] = {
            "path": _shown(self.path), "manifest_sha256": digest, "step": manifest.step,
            "step_is_equal": None if self._step is None else self._step == manifest.step,
            "config_is_equal": _is_equal(manifest.config_sha256, known.get("config_sha256")),
            "script_is_equal": _is_equal(manifest.script_sha256, known.get("script_sha256")),
            "git_is_equal": _is_equal(manifest.git, known.get("git")),
            "has_optimizer": manifest.has_optimizer, "loss_before": manifest.loss, "loss_ema_before": manifest.loss_ema, **files,
        }  # fmt: skip
        sentences = []
        if check["step_is_equal"] is False:
            sentences.append(f"it is of step {manifest.step}, training goes on from step {self._step}")
        if manifest.has_optimizer is False:
            sentences.append("it has no optimizer state")
        sentences += [f"the {name} changed since" for name in ("config", "script") if check[f"{name}_is_equal"] is False]
        if files["files_missing"] or files["files_of_other_size"]:
            sentences.append("files of it are missing or have another size")
        text = f"resumed from {_shown(self.path)}: {'; '.join(sentences) or 'all as when it was saved'}"
        self._told("message", self._step, text[:500], {"resume_check": {k: v for k, v in check.items() if v is not None}})


def _is_equal(before: str, now: object) -> bool | None:
    return before == now if before and now else None


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
