"""Finds the layout of a checkpoint by its names. A new trainer is a new file here and one entry in ``LAYOUTS``."""

from __future__ import annotations

from trainvitals.checkpoints.files import Listing
from trainvitals.checkpoints.layouts.accelerate import Accelerate
from trainvitals.checkpoints.layouts.base import Facts, Layout
from trainvitals.checkpoints.layouts.composer import Composer
from trainvitals.checkpoints.layouts.dcp import Dcp
from trainvitals.checkpoints.layouts.dcp_parts import DcpParts
from trainvitals.checkpoints.layouts.deepspeed import DeepSpeed
from trainvitals.checkpoints.layouts.deepspeed_universal import DeepSpeedUniversal
from trainvitals.checkpoints.layouts.huggingface import HuggingFace
from trainvitals.checkpoints.layouts.lightning import Lightning
from trainvitals.checkpoints.layouts.llm_c import LlmC
from trainvitals.checkpoints.layouts.megatron import Megatron
from trainvitals.checkpoints.layouts.megatron_legacy import MegatronLegacy
from trainvitals.checkpoints.layouts.nanogpt import NanoGpt
from trainvitals.checkpoints.layouts.nemo import NeMo
from trainvitals.checkpoints.layouts.olmo import Olmo
from trainvitals.checkpoints.layouts.orbax import Orbax
from trainvitals.checkpoints.layouts.safetensors_files import SafetensorsFiles
from trainvitals.checkpoints.layouts.torch_files import TorchFiles
from trainvitals.checkpoints.layouts.unknown import foreign_format, what_was_seen

#: Asked in this order, the more specific before the less; the first that matches reads the checkpoint.
LAYOUTS: tuple[Layout, ...] = (
    HuggingFace(),
    DeepSpeedUniversal(),
    Orbax(),
    Olmo(),
    NeMo(),
    Lightning(),
    Composer(),
    LlmC(),
    NanoGpt(),
    Megatron(),
    MegatronLegacy(),
    DeepSpeed(),
    Accelerate(),
    Dcp(),
    DcpParts(),
)
#: Files of many makers. What is recognised as a trainer's own, of which no reader above can judge completeness, is not theirs.
PLAIN: tuple[Layout, ...] = (SafetensorsFiles(), TorchFiles())

__all__ = ["LAYOUTS", "PLAIN", "Facts", "Layout", "layout_of", "what_was_seen"]


def layout_of(listing: Listing) -> Layout | None:
    """The layout, None when it is none of ours."""
    for layout in LAYOUTS:
        if layout.matches(listing):
            return layout
    if foreign_format(listing) is not None:
        return None
    return next((layout for layout in PLAIN if layout.matches(listing)), None)
