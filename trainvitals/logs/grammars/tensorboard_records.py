"""TensorBoard event files: records of the file into lines of text, which the grammar ``tensorboard`` reads like any other log.

A file is a row of records: length (8 bytes), its checksum (4), an ``Event`` message, its checksum (4); checksums are masked CRC-32C
(tensorflow/core/lib/io/record_writer.h). The messages are those of the ``tensorboard`` package; TensorFlow is not needed.
Scalars are kept, as ``simple_value`` or as a tensor of one number, and texts; images, histograms, graphs and hyperparameters are left out.
The checksum is looked at where a record gives a scalar or a text. Behind damage the next sound record is searched for.
"""

from __future__ import annotations

import heapq
import importlib
import itertools
import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainvitals.errors import InputError

#: Longer records hold pictures or graphs, and are passed over without being kept.
MAX_RECORD_BYTES = 1 << 20
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FILLED = re.compile(rb"[^\0]")
_CHUNK_BYTES = 1 << 18
#: Files of one directory that are read side by side, in order of their times; of more, one after the other.
_MAX_OPEN_FILES = 64
_LINES_AT_ONCE = 1000
_MAX_DIRECTORIES = 10_000
_MAX_TAG = 300
_MAX_TEXT_BYTES = 60_000
#: DataType of a tensor -> how struct reads one number of it, and its bytes
_NUMBERS = {1: ("<f", 4), 2: ("<d", 8), 3: ("<i", 4), 9: ("<q", 8), 19: ("<e", 2)}
_LISTS = {1: "float_val", 2: "double_val", 3: "int_val", 9: "int64_val"}
_VALIDATION_DIRECTORIES = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev"})


def looks_like_event_file(first: bytes) -> bool:
    """Whether the bytes begin with a record of an event file: a small length with its right checksum."""
    if len(first) < _HEADER.size or first[4:8] != b"\0\0\0\0":
        return False
    return bool(_HEADER.unpack_from(first)[1] == _library()[1](first[:8]))


def _library() -> tuple[Any, Any, type[Exception]]:
    """The ``Event`` message, the checksum, the error of a damaged message. Imported here: most runs have no event file."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    except ImportError as error:
        raise InputError(
            f"Event files need the package tensorboard ({error}); install it with `pip install tensorboard`."
        ) from error
    return Event, masked_crc32c, importlib.import_module("google.protobuf.message").DecodeError


class EventFileReader:
    """Feed bytes of one file in any chunks, take lines out. ``prefix`` is put before each tag (``val/``)."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._event, self._checksum, self._damage = _library()
        self._pending = bytearray()
        self._skip = 0
        self._is_lost = False

    def feed(self, data: bytes) -> bytes:
        """Lines of the records that ``data`` completes."""
        lines: list[str] = []
        if self._skip:
            gone = min(self._skip, len(data))
            self._skip -= gone
            data = data[gone:]
        pending = self._pending
        pending += data
        at = 0
        while len(pending) - at >= _HEADER.size:
            length, checksum = _HEADER.unpack_from(pending, at)
            if pending[at + 4 : at + 8] != b"\0\0\0\0" or checksum != self._checksum(bytes(pending[at : at + 8])):
                if not self._is_lost:
                    self._is_lost = True
                    lines.append(_line(damaged=1))
                at = self._next_candidate(at)
                continue
            self._is_lost = False
            end = at + _HEADER.size + length + _CHECKSUM.size
            if length > MAX_RECORD_BYTES:
                self._skip = max(0, end - len(pending))
                at = min(end, len(pending))
                continue
            if end > len(pending):
                break
            content = bytes(pending[at + _HEADER.size : end - _CHECKSUM.size])
            self._take(content, _CHECKSUM.unpack_from(pending, end - _CHECKSUM.size)[0], lines)
            at = end
        del pending[:at]
        return "".join(lines).encode()

    def _next_candidate(self, at: int) -> int:
        """The next place where a record may begin: no length has more than four bytes, and no header is all zero (a hole)."""
        pending = self._pending
        zeros = pending.find(b"\0\0\0\0", at + 5)
        if zeros < 0:
            return max(at + 1, len(pending) - _HEADER.size + 1)
        candidate = zeros - 4
        if not any(pending[candidate : candidate + _HEADER.size]):
            filled = _FILLED.search(pending, candidate)
            candidate = max(candidate, (filled.start() if filled else len(pending)) - _HEADER.size + 1)
        return candidate

    def finish(self) -> bytes:
        """A record that was cut off counts as damaged; of a file that is still written it is the newest."""
        is_torn = bool(self._pending or self._skip) and not self._is_lost
        self._pending.clear()
        self._skip = 0
        return _line(damaged=1).encode() if is_torn else b""

    def _take(self, content: bytes, checksum: int, lines: list[str]) -> None:
        try:
            event = self._event.FromString(content)
        except self._damage:
            lines.append(_line(damaged=1))
            return
        what = event.WhichOneof("what")
        time_ns = round(event.wall_time * 1e6) * 1000 if 0 < event.wall_time < 1e11 else 0
        if what == "summary":
            found = [(value.tag, number) for value in event.summary.value if (number := _number(value)) is not None]
            texts = [(value.tag, text) for value in event.summary.value if (text := _text(value))]
            if (found or texts) and checksum != self._checksum(content):
                lines.append(_line(damaged=1))
                return
            for tag, number in found:
                lines.append(_line(step=event.step, time_ns=time_ns, tag=self._prefix + tag, value=number))
            for tag, text in texts:
                lines.append(_line(step=event.step, time_ns=time_ns, text=tag.removesuffix("/text_summary"), value=text))
        elif what == "file_version" or (what == "session_log" and event.session_log.status == 1):
            lines.append(_line(start=event.step if what == "session_log" else None, time_ns=time_ns))

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"pending": self._pending.decode("latin-1"), "skip": self._skip, "is_lost": self._is_lost}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._pending = bytearray(str(state["pending"]).encode("latin-1"))
        self._skip, self._is_lost = int(state["skip"]), bool(state["is_lost"])


def _line(**fields: Any) -> str:
    return json.dumps({"tfevents": 1, **fields}, separators=(",", ":")) + "\n"


def _number(value: Any) -> float | str | None:
    """The scalar of a summary's value; non-finite ones by name, for JSON has none."""
    if len(value.tag) > _MAX_TAG or value.tag.startswith("_hparams_"):
        return None
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        number = value.simple_value
    elif kind == "tensor" and value.metadata.plugin_data.plugin_name in ("", "scalars"):
        tensor = value.tensor
        if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim) or tensor.dtype not in _NUMBERS:
            return None
        code, width = _NUMBERS[tensor.dtype]
        held: Any = getattr(tensor, _LISTS[tensor.dtype]) if tensor.dtype in _LISTS else ()
        if len(tensor.tensor_content) == width:
            number = struct.unpack(code, tensor.tensor_content)[0]
        elif len(held) == 1:
            number = held[0]
        else:
            return None
    else:
        return None
    number = float(number)
    return number if number - number == 0 else repr(number)


def _text(value: Any) -> str:
    """The text of a summary's value, "" when it is none or too long for a line."""
    is_text = value.WhichOneof("value") == "tensor" and value.metadata.plugin_data.plugin_name == "text"
    if not is_text or len(value.tag) > _MAX_TAG or len(value.tensor.string_val) != 1:
        return ""
    raw = value.tensor.string_val[0]
    text = raw.decode("utf-8", "replace") if len(raw) <= _MAX_TEXT_BYTES else ""
    return text if len(json.dumps(text)) <= _MAX_TEXT_BYTES else ""


def lines_of_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of one event file, in pieces."""
    reader = EventFileReader()
    for chunk in chunks:
        if lines := reader.feed(chunk):
            yield lines
    if lines := reader.finish():
        yield lines


def lines_of_directory(directory: Path) -> Iterator[bytes]:
    """The lines of all event files of one run, in order of their times.

    Several writers of one run (restarts, a second file for the evaluation) lie in one directory; a directory ``train`` beside
    ``validation`` is Keras'. Raises ``InputError`` when it holds none, or several runs; ``OSError`` as reading does.
    """
    files = [_timed_lines(path, prefix) for path, prefix in _files_of_one_run(directory)]
    is_merged = len(files) <= _MAX_OPEN_FILES
    timed = heapq.merge(*files, key=lambda pair: pair[0]) if is_merged else itertools.chain.from_iterable(files)
    lines: list[bytes] = []
    for _, line in timed:
        lines.append(line)
        if len(lines) >= _LINES_AT_ONCE:
            yield b"".join(lines)
            lines.clear()
    yield b"".join(lines)


def _timed_lines(path: Path, prefix: str) -> Iterator[tuple[int, bytes]]:
    reader = EventFileReader(prefix)
    newest_ns = 0
    with path.open("rb") as file:
        is_first = True
        while chunk := file.read(_CHUNK_BYTES):
            if is_first and chunk.startswith(b"version https://git-lfs"):
                raise InputError(f"{path} is a Git LFS pointer, not the file itself; fetch the content with `git lfs pull`.")
            is_first = False
            for line in reader.feed(chunk).splitlines(keepends=True):
                newest_ns = max(newest_ns, int(json.loads(line).get("time_ns") or 0))
                yield newest_ns, line
        if rest := reader.finish():
            yield newest_ns, rest


def is_event_file_name(name: str) -> bool:
    """``events.out.tfevents.1770000000.host.123.0``, and not the empty mark of a profile beside it."""
    return "tfevents" in name and not name.endswith((".profile-empty", ".gz", ".json"))


def _files_of_one_run(directory: Path) -> list[tuple[Path, str]]:
    """Each file with the prefix of its tags, oldest first (the time of the start stands in the name)."""
    runs: dict[Path, list[Path]] = {}
    waiting = [directory]
    for _ in range(_MAX_DIRECTORIES):
        if not waiting:
            break
        folder = waiting.pop(0)
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                waiting.append(entry)
            elif is_event_file_name(entry.name) and entry.is_file():
                runs.setdefault(folder, []).append(entry)
        if folder == directory and runs:
            break  # directories below it are other runs, or sets of hyperparameters
    training = [folder for folder in runs if folder.name.lower() not in _VALIDATION_DIRECTORIES or folder == directory]
    if not runs:
        raise InputError(
            f"{directory} is a directory without event files; name a log file, or a directory of events.out.tfevents.*."
        )
    if len(training) > 1:
        shown = ", ".join(str(folder) for folder in training[:5]) + (", …" if len(training) > 5 else "")
        raise InputError(f"{directory} holds the event files of {len(training)} runs; name one of them: {shown}.")
    found = [(path, "") for folder in training for path in sorted(runs[folder])]
    return found + [(path, "val/") for folder in runs if folder not in training for path in sorted(runs[folder])]
