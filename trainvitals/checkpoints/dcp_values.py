"""Single values out of the shards of a PyTorch distributed checkpoint: the step that stands in it, without torch and without unpickling.

Each entry of a shard is a file of ``torch.save`` of its own. torchtitan keeps its step as a tensor of one number (``train_state.step``,
``components/checkpoint.py``), Composer the batch as an object (``state.timestamp.Timestamp.batch``, ``core/state.py`` state_dict).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainvitals.checkpoints import torch_values, zip_directory
from trainvitals.checkpoints.dcp_metadata import DcpMetadata
from trainvitals.checkpoints.files import Listing, NotRegular, Reader, Unreadable, Vanished, Window, opened
from trainvitals.checkpoints.pickle_symbols import BadPickle, PickleTooLarge

#: Where Megatron-Core from 0.19 on keeps arguments and iteration, as a list of one dictionary (``dist_checkpointing/serialization.py``).
COMMON_STATE = "common_state/shard_0_1"
STEP_KEYS = ("train_state.step", "state.timestamp.Timestamp.batch", "timestamp.Timestamp.batch")
_INTEGER_BYTES = {"int32": 4, "int64": 8}


def step(listing: Listing, known: Iterable[DcpMetadata]) -> tuple[int, str] | None:
    """The number of steps and the name under which it stands; None when no trainer's own name is there. Raises nothing."""
    for metadata in known:
        for key in STEP_KEYS:
            if key in metadata.places and not metadata.is_transformed:
                number = _value(listing, metadata, key)
                if type(number) is int:
                    return number, key
    return None


def common_state(listing: Listing, known: Iterable[DcpMetadata]) -> Mapping[str, Any]:
    """What Megatron-Core keeps beside the tensors; empty when it is not there or cannot be read. Raises nothing."""
    for metadata in known:
        if COMMON_STATE in metadata.places and not metadata.is_transformed:
            value = _value(listing, metadata, COMMON_STATE)
            return torch_values.attributes(value[0]) if type(value) is list and value else {}
    return {}


def _value(listing: Listing, metadata: DcpMetadata, key: str) -> Any:
    """A number of a tensor, a list, or None."""
    file, offset, length = metadata.places[key]
    if not any(entry.name == file and not entry.problem and offset + length <= entry.size for entry in listing.entries):
        return None
    try:
        with opened(listing.path(file)) as reader:
            entry = Window(reader, offset, length)
            tensor = metadata.tensors.get(key)
            if tensor is None:
                value = torch_values.read(entry)
                return value if type(value) is list else torch_values.count(value)
            return _of_tensor(entry, _INTEGER_BYTES.get(tensor.dtype, 0)) if tensor.shape in ((), (1,)) else None
    except (zip_directory.BadZip, zip_directory.ZipTooLarge, BadPickle, PickleTooLarge, Unreadable, Vanished, NotRegular):
        return None  # the look at the structure files what is wrong there


def _of_tensor(entry: Reader, item_bytes: int) -> int | None:
    members = zip_directory.members(entry)
    data = [member for name, member in members.items() if name.endswith("/data/0")]
    order = [member for name, member in members.items() if name.endswith("/byteorder")]
    if len(data) != 1 or data[0].bytes != item_bytes or data[0].method != zip_directory.STORED:
        return None
    if any(entry.read(member.offset, 6) != b"little" for member in order):
        return None
    value: Any = int.from_bytes(entry.read(data[0].offset, item_bytes), "little", signed=True)
    return torch_values.count(value)
