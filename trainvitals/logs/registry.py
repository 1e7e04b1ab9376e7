"""All grammars, in the order in which they are asked for a line: the more particular before the more general."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainvitals.logs.grammars.automodel import AutoModel
from trainvitals.logs.grammars.bmtrain import BMTrain
from trainvitals.logs.grammars.by_shape import ByShape
from trainvitals.logs.grammars.cerebras import Cerebras
from trainvitals.logs.grammars.composer import Composer
from trainvitals.logs.grammars.curve_csv import CurveCsv
from trainvitals.logs.grammars.deepspeed import DeepSpeed
from trainvitals.logs.grammars.detectron2 import Detectron2
from trainvitals.logs.grammars.dllogger import DLLogger
from trainvitals.logs.grammars.fairseq import Fairseq
from trainvitals.logs.grammars.golden_json import GoldenJson
from trainvitals.logs.grammars.home_made import FormatTable, make_grammar
from trainvitals.logs.grammars.hook_jsonl import HookJsonl
from trainvitals.logs.grammars.huggingface import HuggingFace
from trainvitals.logs.grammars.huggingface_state import HuggingFaceState
from trainvitals.logs.grammars.imagenet import ImageNet
from trainvitals.logs.grammars.internlm import InternLM
from trainvitals.logs.grammars.jsonl import Jsonl
from trainvitals.logs.grammars.lightning_bar import LightningBar
from trainvitals.logs.grammars.lingua import Lingua
from trainvitals.logs.grammars.litgpt import LitGPT
from trainvitals.logs.grammars.m4 import M4
from trainvitals.logs.grammars.maxtext import MaxText
from trainvitals.logs.grammars.megatron import Megatron
from trainvitals.logs.grammars.meters import Meters
from trainvitals.logs.grammars.mindformers import MindFormers
from trainvitals.logs.grammars.mllog import MLLog
from trainvitals.logs.grammars.mlx import MLX
from trainvitals.logs.grammars.mmengine import MMEngine
from trainvitals.logs.grammars.nanogpt import NanoGPT
from trainvitals.logs.grammars.nanotron import Nanotron
from trainvitals.logs.grammars.nemo import NeMo
from trainvitals.logs.grammars.neuronx import NeuronX
from trainvitals.logs.grammars.olmo import Olmo
from trainvitals.logs.grammars.open_clip import OpenClip
from trainvitals.logs.grammars.orbit import Orbit
from trainvitals.logs.grammars.paddlenlp import PaddleNLP
from trainvitals.logs.grammars.rl_boxes import RslRl, StableBaselines
from trainvitals.logs.grammars.shaped import SHAPED
from trainvitals.logs.grammars.swin import Swin
from trainvitals.logs.grammars.telemetry_jsonl import TelemetryJsonl
from trainvitals.logs.grammars.tensorboard import TensorBoard
from trainvitals.logs.grammars.tf_estimator import TFEstimator
from trainvitals.logs.grammars.timm import Timm
from trainvitals.logs.grammars.torchtitan import TorchTitan
from trainvitals.logs.grammars.torchtune import TorchTune
from trainvitals.logs.grammars.verl import Verl

_ALL: tuple[type[Any], ...] = (
    HookJsonl,
    TelemetryJsonl,
    NeMo,  # before Megatron, whose marker stands in its line too
    Megatron,
    HuggingFace,
    AutoModel,
    NanoGPT,
    Olmo,
    Composer,
    Fairseq,
    MaxText,
    Nanotron,
    MMEngine,
    Meters,
    M4,
    LitGPT,
    TorchTune,
    InternLM,
    PaddleNLP,
    Orbit,
    MLX,
    DLLogger,
    ImageNet,
    Timm,
    TFEstimator,
    Cerebras,
    NeuronX,
    MindFormers,
    Swin,
    OpenClip,
    Detectron2,
    Verl,
    BMTrain,
    Lingua,
    TorchTitan,
    *SHAPED,
    StableBaselines,
    RslRl,
    LightningBar,
    MLLog,
    DeepSpeed,
    HuggingFaceState,
    GoldenJson,
    CurveCsv,
    TensorBoard,
    Jsonl,
    ByShape,  # the last resort: it claims no line by itself, see ``Parser`` and ``FormatChanges``
)
#: name -> class, each a ``Grammar``
GRAMMARS: Mapping[str, type[Any]] = MappingProxyType({grammar.name: grammar for grammar in _ALL})
#: Other spellings that ``--format`` and ``log_format`` take.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "hook": "hook_jsonl",
        "csv": "curve_csv",
        "hf": "huggingface",
        "trainer_state": "huggingface_state",
        "tfevents": "tensorboard",
    }
)
FORMATS = ("auto", *GRAMMARS, *ALIASES)


def home_made_grammars(tables: Mapping[str, FormatTable]) -> dict[str, type[Any]]:
    """name -> grammar of each ``[formats.NAME]`` table. Raises ``SettingsError`` for a pattern that cannot be used."""
    return {name: make_grammar(name, table) for name, table in tables.items()}
