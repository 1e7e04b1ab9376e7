"""All grammars, in the order in which they are asked for a line: the more particular before the more general."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainvitals.logs.automodel import AutoModel
from trainvitals.logs.bmtrain import BMTrain
from trainvitals.logs.cerebras import Cerebras
from trainvitals.logs.composer import Composer
from trainvitals.logs.curve_csv import CurveCsv
from trainvitals.logs.deepspeed import DeepSpeed
from trainvitals.logs.detectron2 import Detectron2
from trainvitals.logs.dllogger import DLLogger
from trainvitals.logs.fairseq import Fairseq
from trainvitals.logs.golden_json import GoldenJson
from trainvitals.logs.home_made import FormatTable, make_grammar
from trainvitals.logs.hook_jsonl import HookJsonl
from trainvitals.logs.huggingface import HuggingFace
from trainvitals.logs.huggingface_state import HuggingFaceState
from trainvitals.logs.imagenet import ImageNet
from trainvitals.logs.internlm import InternLM
from trainvitals.logs.jsonl import Jsonl
from trainvitals.logs.lightning_bar import LightningBar
from trainvitals.logs.lingua import Lingua
from trainvitals.logs.litgpt import LitGPT
from trainvitals.logs.m4 import M4
from trainvitals.logs.maxtext import MaxText
from trainvitals.logs.megatron import Megatron
from trainvitals.logs.meters import Meters
from trainvitals.logs.mindformers import MindFormers
from trainvitals.logs.mllog import MLLog
from trainvitals.logs.mlx import MLX
from trainvitals.logs.mmengine import MMEngine
from trainvitals.logs.nanogpt import NanoGPT
from trainvitals.logs.nanotron import Nanotron
from trainvitals.logs.nemo import NeMo
from trainvitals.logs.neuronx import NeuronX
from trainvitals.logs.olmo import Olmo
from trainvitals.logs.open_clip import OpenClip
from trainvitals.logs.orbit import Orbit
from trainvitals.logs.paddlenlp import PaddleNLP
from trainvitals.logs.swin import Swin
from trainvitals.logs.telemetry_jsonl import TelemetryJsonl
from trainvitals.logs.tensorboard import TensorBoard
from trainvitals.logs.tf_estimator import TFEstimator
from trainvitals.logs.timm import Timm
from trainvitals.logs.torchtitan import TorchTitan
from trainvitals.logs.torchtune import TorchTune
from trainvitals.logs.verl import Verl

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
    LightningBar,
    MLLog,
    DeepSpeed,
    HuggingFaceState,
    GoldenJson,
    CurveCsv,
    TensorBoard,
    Jsonl,
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
