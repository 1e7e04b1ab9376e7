"""The child process of level load: reads one checkpoint's tensors and says on standard output, in one line of JSON, what it found.

Started by ``load.check`` only. Before a byte of the checkpoint is read it gives up: time, memory, files, core dumps, the network,
writing, starting programs. With torch installed torch itself loads the files (``weights_only=True``); the samples are our own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from trainvitals.checkpoints import files, layouts, low_priority, torch_file
from trainvitals.checkpoints.dcp_directory import METADATA_NAME
from trainvitals.checkpoints.files import TEMPORARY_NAME, Listing, Reader, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import many
from trainvitals.checkpoints.parts import TORCH_ENDINGS

SAMPLE_BYTES = 64 * 1024
#: From here on ``weights_only=True`` runs nothing of the file (CVE-2025-32434).
SAFE_TORCH = (2, 6)
SAMPLES_A_TENSOR = 8
MAX_SENTENCES = 20
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_BROKEN = re.compile(r"PytorchStreamReader|unexpected EOF|corrupt|truncated|invalid header", re.IGNORECASE)
_REFUSED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "os.putenv",
    "os.remove", "os.unlink", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.mkfifo", "os.mknod", "os.chroot", "os.utime", "os.setxattr", "os.kill", "pty.", "shutil.", "ftplib.", "smtplib.", "urllib.", "webbrowser.", "ctypes.",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """``PATH LIMITS`` with limits as JSON: seconds, memory_bytes, sample_bytes, tries_torch."""
    path, limits = arguments[0], json.loads(arguments[1])
    refused = confine(limits["seconds"], limits["memory_bytes"])
    found = Found()
    has_torch = bool(limits["tries_torch"]) and importlib.util.find_spec("torch") is not None
    if importlib.util.find_spec("numpy") is None:
        found.unproven.append("values cannot be sampled without numpy: install trainvitals[server]")
    else:
        from trainvitals.checkpoints import load_tensors, load_values  # noqa: F401 - imported while importing is still allowed
    if has_torch:
        try:
            import torch  # noqa: F401
        except Exception as error:  # noqa: BLE001 (a broken installation, or one larger than the memory that it may use here)
            has_torch = False
            text = printable(str(error), 120)
            found.notes.append(f"torch cannot be imported within the limits of this check ({type(error).__name__}: {text})")
    # From here on nothing more is started, no thread either, and whoever waits for us knows that it is the checkpoint's turn.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    print(flush=True)  # noqa: T201
    sys.addaudithook(refuse)
    try:
        seen = files.listing(path)
        if not found.unproven:
            sample(seen, found, limits["sample_bytes"], time.monotonic() + 0.8 * limits["seconds"])
        if has_torch:
            load_with_torch(seen, found)
        if found.unread:
            shown = ", ".join(printable(name, 80) for name in found.unread[:3])
            found.unproven.append(f"{many(len(found.unread), 'file')} loaded by nobody, such as {shown}")
    except (Vanished, Unreadable) as error:
        found.unproven.append(f"cannot be read: {printable(str(error))}")
    except MemoryError:
        found.unproven.append("could not be loaded within the memory it may use")
    print(json.dumps(found.to_json() | {"refused": refused}), flush=True)  # noqa: T201 - the one line that the parent reads
    return 0


class Found:
    """Sentences for the parent, bounded."""

    def __init__(self) -> None:
        self.damaged: list[str] = []
        self.unproven: list[str] = []
        self.notes: list[str] = []
        self.tensors = 0
        self.unread: list[str] = []

    def to_json(self) -> dict[str, Any]:
        return {
            "damaged": [text[:500] for text in self.damaged[:MAX_SENTENCES]],
            "unproven": [text[:500] for text in self.unproven[:MAX_SENTENCES]],
            "notes": [text[:500] for text in self.notes[:MAX_SENTENCES]],
            "tensors": self.tensors,
        }


def confine(seconds: int, memory_bytes: int) -> list[str]:
    """Give everything up that reading does not need; returns what the system did not let us give up."""
    refused = [text] if (text := low_priority.lower()) else []
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        refused.append("network namespace")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    return refused


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: whatever code is tricked into it, it cannot write, connect or start anything through Python."""
    if event == "open":
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        mode = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], str) else "r"
        if flags & _WRITING or any(letter in mode for letter in "wax+"):
            raise PermissionError("the load check opens nothing for writing")
    elif event.startswith(_REFUSED):
        raise PermissionError(f"the load check refuses {event}")


def sample(seen: Listing, found: Found, sample_bytes: int, until_s: float) -> None:
    """Read a few blocks of each tensor of each file and judge the values."""
    from trainvitals.checkpoints import load_tensors, load_values

    judged: list[tuple[load_values.Tensor, load_values.Values]] = []
    layout = layouts.layout_of(seen)
    ranges = dict(layout.ranges(seen)) if layout is not None else {}
    names = _entry_names(seen, found)
    generator = random.Random()  # noqa: S311 - chooses blocks
    tensors: list[load_values.Tensor] = []
    for entry in seen.entries:
        if entry.problem or TEMPORARY_NAME.search(entry.name) or entry.size == 0:
            continue
        tensors += _tensors_of(seen, entry.name, ranges, names, found)
    found.tensors = len(tensors)
    each = max(1, min(SAMPLES_A_TENSOR, sample_bytes // SAMPLE_BYTES // max(1, len(tensors))))
    current: tuple[str, Any, Reader] | None = None
    try:
        for tensor in tensors:
            if time.monotonic() > until_s:
                found.unproven.append(
                    f"{len(judged)} of {found.tensors} tensors were sampled in the time there was, the rest was not"
                )
                break
            if tensor.dtype not in load_values.ITEM_BYTES or tensor.items == 0:
                continue
            if current is None or current[0] != tensor.file:
                if current is not None:
                    current[1].__exit__(None, None, None)
                manager = opened(seen.path(tensor.file))
                current = (tensor.file, manager, manager.__enter__())
            blocks = [current[2].read(tensor.offset + at, length) for at, length in _places(tensor, each, generator)]
            judged.append((tensor, load_values.count(blocks, tensor.dtype)))
    finally:
        if current is not None:
            current[1].__exit__(None, None, None)
    views = [tensor for tensor in tensors if tensor.dtype == load_tensors.VIEW]
    verdict = load_values.judge(judged)
    found.damaged += [printable(text, 400) for text in verdict.damaged]
    found.notes += [printable(text, 400) for text in verdict.notes]
    if not tensors and not found.damaged:
        found.unproven.append("holds no tensors that can be loaded here")
    if judged and not verdict.damaged:
        found.notes.append(f"{many(len(judged), 'tensor')} sampled: values are sound")
    if views:
        shown = printable(f"{views[0].name} in {views[0].file}", 300)
        found.notes.append(f"not sampled: {many(len(views), 'view')} of a larger tensor, such as {shown}")


def _entry_names(seen: Listing, found: Found) -> dict[str, dict[int, str]]:
    """What is in which entry of the shards, by every ``.metadata`` that there is."""
    from trainvitals.checkpoints import load_tensors

    names: dict[str, dict[int, str]] = {}
    for entry in seen.entries:
        directory, slash, base = entry.name.rpartition("/")
        if METADATA_NAME.match(base) and not entry.problem:
            try:
                with opened(seen.path(entry.name)) as reader:
                    names |= load_tensors.names_of_entries(reader, directory + slash)
            except load_tensors.NotLoadable as error:
                found.damaged.append(f"{printable(entry.name)} cannot be loaded: {printable(str(error), 300)}")
    return names


def _tensors_of(seen: Listing, name: str, ranges: dict[str, Any], names: dict[str, dict[int, str]], found: Found) -> list[Any]:
    from trainvitals.checkpoints import load_tensors

    def all_of(reader: Reader) -> Iterator[Any]:
        if name in ranges:
            return load_tensors.of_ranges(reader, name, ranges[name], names.get(name, {}))
        if name.endswith(".safetensors"):
            return load_tensors.of_safetensors(reader, name)
        if name.endswith(TORCH_ENDINGS) and reader.read(0, 4) == b"PK\x03\x04":
            return load_tensors.of_torch(reader, name)
        if name.endswith(TORCH_ENDINGS) and torch_file.recognised(reader.read(0, len(torch_file.LEGACY_START))):
            found.unread.append(name)  # by us; torch may
        return iter(())

    try:
        with opened(seen.path(name)) as reader:
            return list(all_of(reader))
    except load_tensors.NotLoadable as error:
        found.damaged.append(f"{printable(name)} cannot be loaded: {printable(str(error), 300)}")
    except load_tensors.Unusual as error:
        found.unproven.append(f"{printable(name)} was not loaded: {printable(str(error), 300)}")
    return []


def _places(tensor: Any, samples: int, generator: random.Random) -> list[tuple[int, int]]:
    """Offsets and lengths in bytes within the tensor: its begin, its end, and places between."""
    item = tensor.bytes // tensor.items
    length = min(SAMPLE_BYTES, tensor.bytes)
    last = (tensor.bytes - length) // item * item
    offsets = {0, last}
    while len(offsets) < min(samples, last // length + 1):
        offsets.add(generator.randrange(last // item + 1) * item)
    return [(offset, length) for offset in sorted(offsets)[:samples]]


def load_with_torch(seen: Listing, found: Found) -> None:
    """Let torch load every torch file, as a trainer would, with ``weights_only=True``."""
    import pickle

    import torch

    if tuple(int(part) for part in re.findall(r"\d{1,6}", torch.__version__)[:2]) < SAFE_TORCH:
        found.notes.append(
            f"not loaded by torch {torch.__version__}: before 2.6 its weights_only=True runs code (CVE-2025-32434)"
        )
        return
    loaded = 0
    for entry in seen.entries:
        if entry.problem or not entry.name.endswith(TORCH_ENDINGS) or TEMPORARY_NAME.search(entry.name):
            continue
        shown = printable(entry.name)
        try:
            with opened(seen.path(entry.name)) as reader:
                start = reader.read(0, len(torch_file.LEGACY_START))
            is_zip = start.startswith(b"PK\x03\x04")
            if not torch_file.recognised(start):
                continue  # many programs write .bin; the structure has told what is missing of a trainer's own
            torch.load(seen.path(entry.name), map_location="cpu", weights_only=True, mmap=is_zip)
            loaded += 1
            found.unread = [name for name in found.unread if name != entry.name]
        except pickle.UnpicklingError as error:
            found.notes.append(f"{shown} needs classes that torch does not load with weights_only=True ({str(error)[:80]!r})")
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever torch says of a file is what a trainer would meet)
            text = f"{shown} cannot be loaded by torch {torch.__version__}: {printable(str(error), 200)}"
            # This torch may be older than the trainer's: only what speaks of a broken file is damage.
            (found.damaged if isinstance(error, EOFError) or _BROKEN.search(str(error)) else found.unproven).append(text)
    if loaded:
        found.notes.append(f"{many(loaded, 'file')} loaded by torch {torch.__version__}")
