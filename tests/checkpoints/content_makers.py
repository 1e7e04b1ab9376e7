"""Checkpoints with a manifest, torch zips with real values, and DCP-like shards, written by hand."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import checkpoint_makers as make

from trainvitals import manifest
from trainvitals.manifest import Manifest, ManifestFile


def write_manifest(
    directory: Path, step: int, *, run: str = "run", rank: int | None = None, names: Sequence[str] | None = None
) -> Path:
    """What the hook would write for the files that are there now."""
    files = []
    root = directory if directory.is_dir() else directory.parent
    for path in sorted(directory.rglob("*")) if directory.is_dir() else [directory]:
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith("ckpt_manifest") and (names is None or name in names):
            content = path.read_bytes()
            files.append(
                ManifestFile(name, len(content), hashlib.sha256(content).hexdigest(), rank or 0, path.stat().st_mtime_ns)
            )
    made = Manifest(run=run, attempt=None, step=step, algorithm="sha256", files=tuple(files))
    if not directory.is_dir():
        path = Path(manifest.beside(str(directory)))
        path.write_text(manifest.dump(made))
        return path
    path = directory / (manifest.NAME if rank is None else f"ckpt_manifest.rank{rank:05d}.json")
    path.write_text(manifest.dump(made))
    return path


def huggingface_with_manifest(directory: Path, step: int, **options: object) -> Path:
    made = make.huggingface(directory, step, **options)  # type: ignore[arg-type]
    write_manifest(made, step)
    return made


def torch_zip_with(
    values: Mapping[str, Sequence[float]],
    *,
    checksums: bool = True,
    optimizer: bool = False,
    views: Mapping[str, TensorOf] | None = None,
) -> bytes:
    """A torch zip whose state is {"model": {name: tensor}}, float32. ``views``: more tensors of the same storages."""
    storages = list(values.values())
    tensors = {name: TensorOf(key, len(items)) for key, (name, items) in enumerate(values.items())}
    state: dict[str, object] = {"model": tensors | dict(views or {})}
    if optimizer:
        state["optimizer"] = {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", tensor_pickle(state))
        for key, items in enumerate(storages):
            archive.writestr(f"archive/data/{key}", struct.pack(f"<{len(items)}f", *items))
        archive.writestr("archive/version", "3\n")
    raw = buffer.getvalue()
    return raw if checksums else without_checksums(raw)


class TensorOf:
    """Pickled as torch pickles a tensor: _rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict())."""

    def __init__(
        self, key: int, items: int, offset: int = 0, size: tuple[int, ...] | None = None, stride: tuple[int, ...] = ()
    ) -> None:
        """``items``: of its storage. ``size``: of a view of it."""
        self.key, self.items, self.offset = key, items, offset
        columns = items // 4 if items >= 4 else 0
        self.size = size if size is not None else (4, columns) if columns else (items,)
        self.stride = stride if size is not None else (columns, 1) if columns else (1,)


class _Pickler(make._Pickler):
    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        if isinstance(obj, TensorOf):
            self.write(b"ctorch._utils\n_rebuild_tensor_v2\n")
            self.write(b"(")
            self.save(make._Storage(str(obj.key), obj.items))
            self.save(obj.offset)
            self.save(obj.size)
            self.save(obj.stride)
            self.save(False)
            self.write(b"ccollections\nOrderedDict\n)R")
            self.write(b"tR")
            return
        super().save(obj, save_persistent_id)


def tensor_pickle(state: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump(state)
    return buffer.getvalue()


def without_checksums(raw: bytes) -> bytes:
    """As torch writes with set_crc32_options(False): every CRC field is 0."""
    changed = bytearray(raw)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for info in archive.infolist():
            changed[info.header_offset + 14 : info.header_offset + 18] = bytes(4)
    at = changed.find(b"PK\x01\x02")
    while at >= 0:
        changed[at + 16 : at + 20] = bytes(4)
        at = changed.find(b"PK\x01\x02", at + 4)
    return bytes(changed)


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def data_offset(raw: bytes, member: str = "archive/data/0") -> int:
    """Where the bytes of a member begin."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        info = archive.getinfo(member)
        name, extra = struct.unpack_from("<2H", raw, info.header_offset + 26)
        return info.header_offset + 30 + name + extra
