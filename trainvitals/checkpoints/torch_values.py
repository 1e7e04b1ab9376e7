"""Plain values out of one file of ``torch.save`` (parallel sizes, steps, counts), without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainvitals.checkpoints import pickle_values, zip_directory
from trainvitals.checkpoints.files import Entry, Listing, NotRegular, Reader, Unreadable, Vanished, Window, opened
from trainvitals.checkpoints.pickle_symbols import BadPickle, Instance, PickleTooLarge

#: The pickle of a rank's file holds names and numbers only; tensors lie outside it.
MAX_PICKLE_BYTES = 16 * 1024 * 1024


def read(reader: Reader) -> Any:
    """The object that the file holds; classes are symbols. None when it is no zip of torch.

    Raises ``BadZip``, ``ZipTooLarge``, ``BadPickle``, ``PickleTooLarge`` or ``Unreadable``.
    """
    members = zip_directory.members(reader)
    found = [member for name, member in members.items() if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(found) != 1 or found[0].method != zip_directory.STORED or found[0].bytes > MAX_PICKLE_BYTES:
        return None
    part = Window(reader, found[0].offset, found[0].bytes)
    return pickle_values.read(part.read, part.size).value


def table(listing: Listing, entry: Entry) -> Mapping[str, Any]:
    """The dictionary in a file of a checkpoint; empty when it cannot be had. What is wrong with the file is filed by its own check."""
    if entry.problem or not entry.size:
        return {}
    try:
        with opened(listing.path(entry.name)) as reader:
            found = read(reader)
    except (zip_directory.BadZip, zip_directory.ZipTooLarge, BadPickle, PickleTooLarge, Unreadable, Vanished, NotRegular):
        return {}
    return attributes(found)


def attributes(value: Any) -> Mapping[str, Any]:
    """Items of a dictionary or attributes of an object (``argparse.Namespace``) that have a text as their name."""
    if type(value) is Instance:
        value = value.state
    return {key: item for key, item in value.items() if type(key) is str} if type(value) is dict else {}


def count(value: Any) -> int | None:
    """A number of something, None when it is none."""
    return value if type(value) is int and 0 <= value < 1 << 40 else None
