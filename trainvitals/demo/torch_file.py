"""Files as ``torch.save`` writes them, without torch: a zip of a protocol-2 pickle and one raw record per tensor.

Only what the demo's checkpoints need: dictionaries, lists, plain values, float32 and uint8 tensors. The pickle names
``torch._utils._rebuild_tensor_v2`` and persistent storage ids, so that ``torch.load(..., weights_only=True)`` reads it.
Reading back never touches the pickle: the raw records are taken by their number.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from trainvitals.demo.model import Array
from trainvitals.errors import InputError

_STORAGES = {"float32": "FloatStorage", "uint8": "ByteStorage"}


def write(path: Path, value: Any) -> None:
    """Write nested dicts, lists, tuples, numbers, strings, None and NumPy arrays; the archive is named after the file."""
    pickler = _Pickler()
    body = pickler.dump(value)
    root = path.stem
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:

        def put(name: str, raw: bytes) -> None:
            # torch stamps every member 1980-00-00 too: the same content gives the same file.
            archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), raw)

        put("data.pkl", body)
        put(".format_version", b"1")
        put(".storage_alignment", b"64")
        put("byteorder", b"little")
        for number, array in enumerate(pickler.arrays):
            put(f"data/{number}", array.astype(array.dtype.newbyteorder("<")).tobytes())
        put("version", b"3\n")


def read_records(path: Path) -> list[bytes]:
    """The raw bytes of every tensor, in the order of their numbers. Raises ``InputError`` when the file is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
            count = sum(name.startswith("data/") for name in names)
            return [archive.read(f"{path.stem}/data/{number}") for number in range(count)]
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise InputError(f"{path} is damaged ({error}); take another checkpoint.") from error


class _Pickler:
    """Opcodes by hand: the standard pickler would need torch's own functions to be importable."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def dump(self, value: Any) -> bytes:
        return b"\x80\x02" + self._value(value) + b"."

    def _value(self, value: Any) -> bytes:
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return self._int(value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            raw = value.encode()
            return b"X" + struct.pack("<I", len(raw)) + raw
        if isinstance(value, np.ndarray):
            return self._tensor(value)
        if isinstance(value, dict):
            return b"}(" + b"".join(self._value(key) + self._value(item) for key, item in value.items()) + b"u"
        if isinstance(value, list):
            return b"](" + b"".join(map(self._value, value)) + b"e"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self._value, value)) + b"t"
        raise TypeError(f"A checkpoint holds plain values and arrays, not {type(value).__name__}.")

    @staticmethod
    def _int(value: int) -> bytes:
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def _tensor(self, array: Array) -> bytes:
        storage = _STORAGES[array.dtype.name]
        number = len(self.arrays)
        self.arrays.append(np.ascontiguousarray(array))
        strides = tuple(step // array.itemsize for step in np.ascontiguousarray(array).strides) if array.ndim else ()
        identity = (
            b"(" + self._value("storage") + f"ctorch\n{storage}\n".encode() + self._value(str(number))
            + self._value("cpu") + self._value(array.size) + b"tQ"
        )  # fmt: skip
        arguments = (
            b"(" + identity + self._value(0) + self._value(tuple(array.shape)) + self._value(strides) + b"\x89"
            + b"ccollections\nOrderedDict\n)R" + b"t"
        )  # fmt: skip
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
