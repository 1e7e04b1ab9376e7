"""What a layout is: one trainer's way of laying a checkpoint out on disk, readable without running its code."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainvitals.checkpoints.files import Listing
from trainvitals.checkpoints.findings import Findings


@dataclass(frozen=True, slots=True)
class Facts:
    """What a layout says about a checkpoint besides its faults; None = its files do not tell.

    loss: at the step of the checkpoint, when it is written there. world_size: ranks that wrote it. parallel: sizes by name
    (dp, tp, pp, ep, cp).
    """

    step: int | None
    has_optimizer: bool | None
    loss: float | None = None
    has_rng: bool | None = None
    has_scheduler: bool | None = None
    has_data_position: bool | None = None
    world_size: int | None = None
    parallel: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file that is a complete zip of its own (an entry of a DCP shard): offset and length in bytes."""

    offset: int
    length: int


#: Beside weights, of the Hub's cache often as links that lead out of the checkpoint.
_WITHOUT_STATE = re.compile(
    r"(?:tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|generation_config|preprocessor_config|processor_config|"
    r"chat_template)\.json|(?:merges|vocab)\.txt|[\w.-]{1,60}\.model|[\w.-]{1,60}\.(?:md|jinja)"
)


class Layout(ABC):
    """One file of ``trainvitals.checkpoints.layouts`` each.

    How its checkpoints are found in a directory: ``directory`` = name of one that is a directory; ``mark`` = name of a file
    whose presence makes the directory it is in one checkpoint; ``file`` = name of one that is a single file. None = no such.
    name_tells_step: a number in a checkpoint's name is its step, also where the layout itself finds none.
    """

    name: ClassVar[str]
    name_tells_step: ClassVar[bool] = True
    directory: ClassVar[re.Pattern[str] | None] = None
    mark: ClassVar[re.Pattern[str] | None] = None
    file: ClassVar[re.Pattern[str] | None] = None

    @abstractmethod
    def matches(self, listing: Listing) -> bool:
        """Whether the names look like this layout; content is hardly read."""

    @abstractmethod
    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        """Presence from names and sizes; with ``into_files`` also the structure of each file."""

    def is_without_state(self, name: str) -> bool:
        """Whether a run continues as before without the file of this name: what is wrong with it is no fault of the checkpoint."""
        return _WITHOUT_STATE.fullmatch(name) is not None

    def ranges(self, listing: Listing) -> Mapping[str, tuple[Range, ...]]:
        """Files that are rows of zips: name -> its zips, for checksums at the content level. Raises nothing."""
        return {}
