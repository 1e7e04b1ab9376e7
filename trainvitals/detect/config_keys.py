"""What a changed key of a run's settings means: expected at a restart, or something that steers the training. Pure.

A person who restarts a run changes ports, paths, job numbers and what is loaded every time. Learning rate, batch, data, seed,
precision, parallel layout, model shape, code and library versions are what a loss that does not fit is looked for in.
"""

from __future__ import annotations

import itertools
import re
import zlib
from dataclasses import dataclass

from trainvitals.records import Severity

Plain = str | int | float | bool | None

MAX_VALUE_CHARACTERS = 200
MAX_SHOWN_CHARACTERS = 40
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Where one of these stands in a name, a change is expected whatever else stands there.
_HOUSEKEEPING = _words(
    "cache caches save saving log logs logging logger eval evaluation evaluate valid validation test tests wandb tensorboard mlflow comet "
    "clearml resume resumed checkpoint checkpoints ckpt exit port ports profile profiler profiling debug verbose timeout timeouts hostlist "
    "hostname hosts job jobid slurm output outputs worker workers prefetch iteration consumed report reporting push hub monitor monitoring "
    "straggler signal timing barrier flops interval restart restarts requeue uuid master rendezvous rdzv endpoint socket time date timestamp "
    "duration elapsed minutes started ends pin persistent"
)
#: These steer what is learnt.
_STEERING = _words(
    "lr learning rate rates warmup warm decay annealing schedule scheduler batch batches gbs mbs micro global accumulation accumulate grad "
    "gradient gradients clip clipping optimizer optimizers optim adam adamw muon sgd beta betas beta1 beta2 eps epsilon momentum weight "
    "weights regularization data dataset datasets blend mix mixture split seed seeds fp16 bf16 fp8 fp4 bfloat16 float16 float32 precision dtype amp "
    "autocast loss losses scale scaling tensor pipeline parallel parallelism context expert experts tp pp dp cp ep vp etp virtual hidden layer "
    "layers head heads attention attn kv vocab vocabulary seq seqlen sequence length dropout init initializer norm normalization "
    "rmsnorm layernorm rope rotary position positional activation swiglu ffn mlp moe router routing topk aux balancing load_balancing tokenizer model architecture "
    "tie tied untie embeddings embedding zero fsdp shard sharding shards samples tokens iters steps epochs epoch world nodes gpus devices ema bias "
    "shuffle curriculum packing mask tf32 noise smoothing gas hysteresis finetune rng sampling sampler determinism deterministic gelu "
    "residual dataloader drop merge"
)
#: ``cuda``, ``nccl`` and the like: libraries whose version or switches change numbers.
_NUMERIC_VARIABLES = re.compile(
    r"(?:NCCL_(?:ALGO|PROTO|NVLS|COLLNET|MIN|MAX|NTHREADS|P2P|SHM|IB_DISABLE|NET\b)|CUBLAS_WORKSPACE|NVIDIA_TF32|TORCH_ALLOW_TF32|TF32|NVTE_|XLA_FLAGS"
    r"|CUDA_DEVICE_MAX_CONNECTIONS|PYTHONHASHSEED|WORLD_SIZE$|SLURM_NNODES$|OMP_NUM_THREADS$|TORCH_NCCL_AVOID)",
    re.ASCII,
)
_VERSIONS = frozenset({"python", "nccl", "gpu", "gpus"})
#: Sections whose keys never matter by themselves.
_PLACES = frozenset({"job", "ranks"})
#: Told, but no change: a sum over the keys, or why there are none.
NO_KEYS = frozenset(
    {"config_sha256", "config_keys_left_out", "config_keys_failed", "keys_beyond_limit", "unavailable", "diffstat_unavailable"}
)
#: Of these says each that keys are missing: one that is not there may have been cut.
CUT_KEYS = frozenset({"config_keys_left_out", "keys_beyond_limit"})


@dataclass(frozen=True, slots=True)
class Change:
    """One key. before, after: the values as text, None where the key was not there."""

    section: str
    key: str
    before: str | None
    after: str | None

    @property
    def severity(self) -> Severity:
        return severity_of(self.section, self.key)


def severity_of(section: str, key: str) -> Severity:
    """``warning`` for what steers the training, ``info`` for what a restart usually changes."""
    if section in _PLACES:
        return Severity.INFO
    if section == "git":
        return Severity.INFO if key == "branch" else Severity.WARNING
    if section == "packages":
        return Severity.INFO if key == "trainvitals" else Severity.WARNING
    if section == "script":
        return Severity.WARNING if key == "sha256" else Severity.INFO
    if section == "software":
        return Severity.WARNING if key in _VERSIONS or key.startswith("torch_") else Severity.INFO
    if section == "environment":
        return Severity.WARNING if _NUMERIC_VARIABLES.match(key) else Severity.INFO
    if section == "layout":
        return Severity.WARNING
    words = [word.lower() for word in _WORD.findall(key[:MAX_VALUE_CHARACTERS])] + key.lower().split(".")[-1:]
    is_housekeeping = any(word in _HOUSEKEEPING for word in words) and not {"lr", "scheduler"} <= set(words)
    if is_housekeeping or "pretrained" in words or key.rsplit(".", 1)[-1] in ("load", "model_name_or_path"):
        return Severity.INFO
    joined = {first + second for first, second in itertools.pairwise(words)}  # beta1, bf16, fp8 are split at the digit
    if section == "training" or any(word in _STEERING for word in (*words, *joined)):
        return Severity.WARNING
    return Severity.INFO


def as_text(value: Plain) -> str:
    """A value as it is kept and compared: numbers of equal size are equal, long text ends with a checksum of all of it."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return _number(value)
    if len(value) <= MAX_VALUE_CHARACTERS:
        return value
    return f"{value[: MAX_VALUE_CHARACTERS - 10]}…#{zlib.crc32(value.encode('utf-8', 'replace')):08x}"


def _number(value: float) -> str:
    """``3e-4``, ``0.1``, ``4096``."""
    if isinstance(value, int) or (value == int(value) if abs(value) < 1e15 else False):
        return str(int(value))
    text = repr(value)
    if abs(value) < 1e-3 and "e" not in text:
        short = next(found for digits in range(18) if float(found := f"{value:.{digits}e}") == value)
        mantissa, _, exponent = short.partition("e")
        return f"{mantissa}e{int(exponent)}"
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


def sentence(change: Change) -> str:
    """``lr 3e-4 → 1e-4``, ``git 1a2b3c4 → 4d5e6f7``, ``flash_attn: not set → True``."""
    name = {"git": "git", "script": "script"}.get(change.section, change.key)
    if change.section in ("git", "script") and change.key not in ("commit", "sha256"):
        name = f"{change.section} {change.key}"
    before, after = _shown(change, change.before), _shown(change, change.after)
    if change.section == "ranks":
        return "ranks placed elsewhere"
    if change.key in ("diffstat", "keys beyond the limit") or before == after:
        return f"{name} changed"
    return f"{name} {before} → {after}"


def _shown(change: Change, text: str | None) -> str:
    if text is None:
        return "not set"
    if change.key in ("commit", "sha256"):
        return text[:7]
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= MAX_SHOWN_CHARACTERS else one_line[: MAX_SHOWN_CHARACTERS - 1] + "…"


def rank_of(change: Change) -> tuple[int, int, str, str]:
    """For sorting: what matters most first."""
    words = {word.lower() for word in _WORD.findall(change.key)}
    first = ("lr", "learning", "batch", "optimizer", "data", "seed", "precision")
    order = next((number for number, word in enumerate(first) if word in words), len(first))
    if change.section == "git" and change.key == "commit":
        order = -1
    return (-change.severity.rank, order, change.section, change.key)


def arguments_as_keys(line: str) -> dict[str, str]:
    """``--lr 1e-4 --bf16 data.path=x`` as keys and values, for trainers that tell nothing but their command line."""
    found: dict[str, str] = {}
    name = ""
    for word in line.split(" ")[:4_000]:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.lstrip("-").partition("=")
            found[name[:MAX_VALUE_CHARACTERS]] = value if equals else "True"
            name = "" if equals else name
        elif name:
            key = name[:MAX_VALUE_CHARACTERS]
            found[key] = word if found.get(key) == "True" else f"{found[key]} {word}"[:1_000]
        elif "=" in word:
            key, _, value = word.lstrip("+").partition("=")
            found[key[:MAX_VALUE_CHARACTERS]] = value
    return found


def _is_number(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."
