"""What a start of the trainer was made of, as ``metadata`` events of the hook's file.

Each event's data: ``{"section": s, "values": {flat key: text, number, switch or null}, "part": i, "parts": n}``, one line of at
most 48 KiB. What may take a while (git, packages) is looked up in a daemon thread with a deadline; the trainer is not slowed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from trainvitals.hook.flatten import Flat, Plain, canonical_sha256, flatten
from trainvitals.hook.git import Running, describe_git
from trainvitals.hook.surroundings import MAX_ARGUMENTS, environment, job, script, software

#: JSON of the values of one part. A store's limit of 64 KiB for a text holds the escaped form as well.
PART_BYTES = 32 * 1024
#: All of a configuration; what lies beyond is counted, and the hash is over everything.
MAX_SECTION_BYTES = 256 * 1024
MAX_RANKS_BYTES = 4 << 20
MAX_RANKS = 200_000
LOOK_UP_S = 10.0
CLOSE_WAIT_S = 2.0

Emit = Callable[[Mapping[str, object]], None]
Fail = Callable[[str], None]


class MetadataWriter:
    """Writes sections through ``emit``; ``fail`` takes a sentence for what went wrong. Used by ``Recorder.describe``."""

    def __init__(self, emit: Emit, fail: Fail) -> None:
        self._emit, self._fail = emit, fail
        self._pid = os.getpid()
        self._threads: list[threading.Thread] = []
        self._git = Running()
        self._is_closed = False
        self._knows_surroundings = False

    def describe(
        self, config: object, layout: object, ranks: object, script_path: object, facts: Mapping[str, object], world_size: int
    ) -> None:
        """Sections ``config``, ``layout``, ``ranks``, ``training`` at once; the surroundings once, in the thread."""
        if config is not None:
            self._write_config(flatten(config))
        if layout is not None:
            self._write("layout", {"world_size": world_size} | flatten(layout).values)
        if ranks is not None:
            self._write("ranks", rank_values(ranks), MAX_RANKS_BYTES)
        if facts:
            self._write("training", flatten(facts).values)
        if not self._knows_surroundings or script_path is not None:
            self._knows_surroundings = True
            self._look_up(None if script_path is None else _plain_path(script_path))

    def close(self) -> None:
        """Wait, at most ``CLOSE_WAIT_S``, for look-ups that are under way; what comes later is not written."""
        if self._pid == os.getpid():
            end_s = time.monotonic() + CLOSE_WAIT_S
            others = [thread for thread in self._threads if thread is not threading.current_thread()]
            for thread in others:
                thread.join(max(0.0, end_s - time.monotonic()))
            if any(thread.is_alive() for thread in others):
                self._git.stop()
                self._fail("git or the package list did not answer before the end; the metadata is not complete")
        self._is_closed = True

    def after_fork(self) -> None:
        """A forked child has no thread, and describes nothing that its parent described."""
        self._pid = os.getpid()
        self._threads = []
        self._git = Running()

    def _write_config(self, flat: Flat) -> None:
        values = dict(flat.values)
        values["config_sha256"] = canonical_sha256(flat.values)
        if flat.left_out:
            values["config_keys_left_out"] = flat.left_out
        if flat.failed:
            values["config_keys_failed"] = flat.failed
        self._write("config", values)

    def _write(self, section: str, values: Mapping[str, Plain], limit_bytes: int = MAX_SECTION_BYTES) -> None:
        found = parts(values, limit_bytes)
        for number, part in enumerate(found):
            if not self._is_closed and self._pid == os.getpid():
                self._emit({"section": section, "values": part, "part": number, "parts": len(found)})

    def _look_up(self, script_path: str | None) -> None:
        # Taken now: the trainer may change both later.
        arguments = [_plain_path(argument) for argument in itertools.islice(sys.argv, MAX_ARGUMENTS + 1)]
        variables = dict(os.environ)
        packages: Callable[[float], Mapping[str, Plain]] | None = None
        try:
            from trainvitals.hook.packages import import_readers, packages

            import_readers()
        except Exception as error:  # noqa: BLE001 - a damaged library; the other sections are told all the same
            self._fail(f"packages: {type(error).__name__}: {error}")
        thread = threading.Thread(
            target=self._surroundings,
            args=(script_path, arguments, variables, packages),
            name="trainvitals-metadata",
            daemon=True,
        )
        thread.start()
        self._threads = [*(earlier for earlier in self._threads if earlier.is_alive()), thread]

    def _surroundings(
        self,
        script_path: str | None,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        packages: Callable[[float], Mapping[str, Plain]] | None,
    ) -> None:
        deadline_s = time.monotonic() + LOOK_UP_S
        named = script_path or (arguments[0] if arguments else "")
        sections: Sequence[tuple[str, Callable[[], Mapping[str, Plain]]]] = (
            ("environment", lambda: environment(variables)),
            ("job", lambda: job(variables)),
            ("software", software),
            # From here on files are read, which may lie behind a mount point that hangs.
            ("script", lambda: script(script_path, arguments)),
            ("git", lambda: _git_of(named, deadline_s, self._git)),
            ("packages", lambda: packages(time.monotonic() + LOOK_UP_S) if packages is not None else {}),
        )
        for name, values_of in sections:
            if self._is_closed:
                return
            try:
                values = values_of()
            except Exception as error:  # noqa: BLE001 - nothing may end the trainer's process; counted, and the section says so
                self._fail(f"{name}: {type(error).__name__}: {error}")
                values = {"unavailable": type(error).__name__}
            if values:
                self._write(name, values)


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return "/"


def _plain_path(path: object) -> str:
    """A text of Python's own type: a class derived from it may do anything in another thread. Raises what the object raises."""
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
    return str.__str__(text)


def _git_of(named: str, deadline_s: float, running: Running) -> Mapping[str, Plain]:
    """What git says of the script's directory, or, for an installed command, of the one it was started in."""
    directories = [str(Path(named).absolute().parent)] if named else []
    directories.append(_working_directory())
    values: Mapping[str, Plain] = {}
    for directory in dict.fromkeys(directories):
        values = describe_git(directory, deadline_s - time.monotonic(), running)
        if "unavailable" not in values:
            break
    return values


def parts(values: Mapping[str, Plain], limit_bytes: int = MAX_SECTION_BYTES) -> list[dict[str, Plain]]:
    """The values in parts of at most ``PART_BYTES`` of JSON; beyond ``limit_bytes`` in all, a key says how many are missing."""
    found: list[dict[str, Plain]] = [{}]
    size = total = left_out = 0
    for name, value in values.items():
        length = len(json.dumps(name)) + len(json.dumps(value)) + 4
        if total + length > limit_bytes or length > PART_BYTES:
            left_out += 1
            continue
        if size + length > PART_BYTES:
            found.append({})
            size = 0
        found[-1][name] = value
        size += length
        total += length
    if left_out:
        found[-1]["keys_beyond_limit"] = left_out
    return found


def rank_values(ranks: object) -> dict[str, Plain]:
    """``{"12": "node17/4/GPU-…"}`` from mappings with rank, host, local_rank and gpu_uuid; what is not known stays empty."""
    found: dict[str, Plain] = {}
    if isinstance(ranks, Mapping):
        return flatten({str(rank): ranks[rank] for rank in itertools.islice(ranks, MAX_RANKS)}).values
    for number, place in enumerate(itertools.islice(cast(Iterable[Any], ranks), MAX_RANKS)):
        known = place if isinstance(place, Mapping) else {}
        fields = (known.get("host"), known.get("local_rank"), known.get("gpu_uuid"))
        text = "/".join("" if field is None else str(field)[:200] for field in fields)
        found[str(known.get("rank", number))[:20]] = text.encode("utf-8", "replace").decode()
    return found
