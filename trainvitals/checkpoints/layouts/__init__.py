"""Finds the layout of a checkpoint by its names. A new trainer is a new file here and one entry in ``LAYOUTS``."""

from __future__ import annotations

from trainvitals.checkpoints.files import Listing
from trainvitals.checkpoints.layouts.base import Facts, Layout
from trainvitals.checkpoints.layouts.huggingface import HuggingFace
from trainvitals.checkpoints.layouts.safetensors_files import SafetensorsFiles
from trainvitals.checkpoints.layouts.torch_files import TorchFiles
from trainvitals.checkpoints.layouts.unknown import foreign_format, what_was_seen

_HUGGING_FACE = HuggingFace()
#: Asked in this order; the first that matches reads the checkpoint.
LAYOUTS: tuple[Layout, ...] = (_HUGGING_FACE, SafetensorsFiles(), TorchFiles())

__all__ = ["LAYOUTS", "Facts", "Layout", "layout_of", "what_was_seen"]


def layout_of(listing: Listing) -> Layout | None:
    """The layout, None when it is none of ours."""
    # Hugging Face checkpoints may hold parts of other makers, but its own marker still tells whether a save finished.
    if not _HUGGING_FACE.matches(listing) and foreign_format(listing) is not None:
        return None
    return next((layout for layout in LAYOUTS if layout.matches(listing)), None)
