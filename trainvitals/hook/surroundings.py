"""What surrounds a start: the script, the software, the environment and the job. Nothing is imported for it.

Each function gives flat plain values, masked. They read small files and the process's own state; look-ups that may take a
while (packages) are made by whoever calls in a thread.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainvitals.hook.flatten import Plain, plain_text
from trainvitals.masking import MASK, is_secret_name, mask_arguments

MAX_SCRIPT_BYTES = 16 << 20
MAX_ARGUMENTS = 2_000
MAX_ARGV_CHARACTERS = 16_000
MAX_VARIABLES = 500
DRIVER_VERSION = "/proc/driver/nvidia/version"
_VARIABLES = re.compile(
    r"""(?: NCCL_|RCCL_|CUDA_|HIP_|ROCR_|HSA_|NVTE_|TORCH_|TORCHINDUCTOR_|TORCHELASTIC_|PYTORCH_|TRITON_|XLA_|JAX_|NEURON_|ASCEND_
        | UCX_|FI_|GLOO_|MPI_|OMPI_COMM_WORLD_|PMI_|PMIX_RANK|MKL_|DS_|DEEPSPEED_|MEGATRON_|NEMO_|ACCELERATE_|FSDP_|HF_HUB_OFFLINE
        | TRANSFORMERS_OFFLINE|TOKENIZERS_PARALLELISM|SLURM_JOB_|SLURM_NTASKS|SLURM_NPROCS|SLURM_GPUS|SLURM_CPUS_PER|SLURM_RESTART_COUNT
        | SLURM_NNODES$|SLURM_NODELIST$|SLURM_NODEID$|SLURM_PROCID$|SLURM_LOCALID$|SLURM_ARRAY_|SLURM_CLUSTER_NAME$|PBS_JOB|PBS_QUEUE$|LSB_JOB|LSB_QUEUE$
        | OMP_NUM_THREADS$|MASTER_(?:ADDR|PORT)$|(?:LOCAL_|GROUP_|NODE_)?(?:RANK|WORLD_SIZE)$|PYTHONHASHSEED$|TF32|NVIDIA_TF32
        | LD_LIBRARY_PATH$|CONDA_DEFAULT_ENV$|VIRTUAL_ENV$|CUBLAS_|CUDNN_|TRAINVITALS_LOCAL_DIR$ )""",
    re.VERBOSE | re.ASCII,
)
_SLURM = {
    "id": "SLURM_JOB_ID", "name": "SLURM_JOB_NAME", "partition": "SLURM_JOB_PARTITION", "cluster": "SLURM_CLUSTER_NAME",
    "account": "SLURM_JOB_ACCOUNT", "user": "SLURM_JOB_USER", "qos": "SLURM_JOB_QOS", "nodes": "SLURM_JOB_NUM_NODES",
    "hostlist": "SLURM_JOB_NODELIST", "tasks": "SLURM_NTASKS", "restarts": "SLURM_RESTART_COUNT", "array_task": "SLURM_ARRAY_TASK_ID",
    "started_s": "SLURM_JOB_START_TIME", "ends_s": "SLURM_JOB_END_TIME", "reservation": "SLURM_JOB_RESERVATION",
}  # fmt: skip
_SCHEDULERS: Mapping[str, Mapping[str, str]] = {
    "slurm": _SLURM,
    "pbs": {"id": "PBS_JOBID", "name": "PBS_JOBNAME", "partition": "PBS_QUEUE", "nodes": "PBS_NUM_NODES"},
    "lsf": {"id": "LSB_JOBID", "name": "LSB_JOBNAME", "partition": "LSB_QUEUE", "hostlist": "LSB_HOSTS", "user": "LSFUSER"},
    "sge": {"id": "SGE_JOB_ID", "name": "SGE_JOB_NAME"},
    "aws-batch": {"id": "AWS_BATCH_JOB_ID", "partition": "AWS_BATCH_JQ_NAME", "nodes": "AWS_BATCH_JOB_NUM_NODES"},
    "sagemaker": {"name": "TRAINING_JOB_NAME", "id": "TRAINING_JOB_ARN"},
    "ray": {"id": "RAY_JOB_ID"},
    "kubernetes": {"id": "POD_UID", "name": "POD_NAME", "partition": "POD_NAMESPACE"},
}


def job_id(environment: Mapping[str, str]) -> str:
    """The batch job's number as the header carries it; empty outside of one."""
    for names in _SCHEDULERS.values():
        found = environment.get(names.get("id", ""), "")
        if found:
            return found[:200]
    return ""


def job(environment: Mapping[str, str]) -> dict[str, Plain]:
    """Scheduler, id, name, partition, host list (as the scheduler writes it) and the end of its time limit where known."""
    for scheduler, names in _SCHEDULERS.items():
        found = {name: environment[variable] for name, variable in names.items() if environment.get(variable)}
        if "id" in found or "name" in found:
            return {"scheduler": scheduler, **{name: _number_or_text(name, text) for name, text in found.items()}}
    return {}


def _number_or_text(name: str, text: str) -> Plain:
    is_number = name != "name" and text.isascii() and text.isdigit() and len(text) < 16
    return int(text) if is_number else plain_text(text)


def environment(variables: Mapping[str, str]) -> dict[str, Plain]:
    """The variables of an allow-list that steer a training; everything else stays private."""
    found: dict[str, Plain] = {}
    for name in sorted(variables):
        if _VARIABLES.match(name) and len(found) < MAX_VARIABLES:
            value = variables[name]
            found[name] = MASK if is_secret_name(name, value) else plain_text(value)
    return found


def script(path: str | None, arguments: Sequence[str]) -> dict[str, Plain]:
    """``path``, ``sha256`` of the file, and the command line, masked. ``path`` None: the first argument."""
    named = path if path is not None else (arguments[0] if arguments else "")
    values: dict[str, Plain] = {}
    if named and named not in ("-c", "-m"):
        values["path"] = plain_text(str(Path(named).absolute()))
        values |= _hashed(named)
    masked = mask_arguments(list(arguments[:MAX_ARGUMENTS]))
    line = " ".join(_quoted(argument) for argument in masked)
    for number, start in enumerate(range(0, min(len(line), MAX_ARGV_CHARACTERS), 900)):
        values["argv" if number == 0 else f"argv.{number}"] = line[start : start + 900].encode("utf-8", "replace").decode()
    if len(line) > MAX_ARGV_CHARACTERS or len(arguments) > MAX_ARGUMENTS:
        values["argv_cut"] = True
    values["working_directory"] = plain_text(_working_directory())
    return values


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument or not argument else argument


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "(gone)"


def _hashed(path: str) -> dict[str, Plain]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return {"unreadable": getattr(error, "strerror", None) or str(error)}
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SCRIPT_BYTES:
            return {"unreadable": "it is no regular file of at most 16 MiB"}
        digest = hashlib.sha256()
        while chunk := os.read(descriptor, 1 << 20):
            digest.update(chunk)
        return {"sha256": digest.hexdigest()}
    except OSError as error:
        return {"unreadable": error.strerror or str(error)}
    finally:
        os.close(descriptor)


def software() -> dict[str, Plain]:
    """Python, kernel and driver; CUDA and NCCL only when torch was imported by the trainer itself."""
    system = platform.uname()
    found: dict[str, Plain] = {
        "python": platform.python_version(), "platform": sys.platform, "machine": system.machine, "kernel": system.release,
        "os": _os_name(), "cpus": os.cpu_count(),
    }  # fmt: skip
    driver = _first_line(DRIVER_VERSION)
    version = re.search(r"\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b", driver, re.ASCII)
    if version:
        found["nvidia_driver"] = version[1]
    models = _gpu_models()
    if models:
        found["gpus"] = len(models)
        found["gpu"] = ", ".join(sorted(set(models)))[:200]
    return found | _torch_versions()


def _torch_versions() -> dict[str, Plain]:
    torch = sys.modules.get("torch")
    found: dict[str, Plain] = {}
    version = getattr(torch, "version", None)
    for name in ("cuda", "hip", "git_version"):
        value = getattr(version, name, None)
        if isinstance(value, str):
            found[f"torch_{name}"] = value[:100]
    nccl = getattr(getattr(getattr(torch, "cuda", None), "nccl", None), "version", None)
    if callable(nccl) and "torch_cuda" in found:
        try:
            parts = nccl()
            found["nccl"] = ".".join(map(str, parts)) if isinstance(parts, tuple) else str(parts)[:50]
        except Exception as error:  # noqa: BLE001 - a build without NCCL raises what it likes; told in place of the version
            found["nccl"] = f"unknown: {type(error).__name__}"
    return found


def _os_name() -> str:
    try:
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", ""))[:200]
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (a bounded read)
            return file.readline(1_000)
    except OSError:
        return ""


def _gpu_models() -> list[str]:
    """Names of the node's GPUs as the driver lists them; no CUDA is started."""
    try:
        directories = sorted(os.listdir("/proc/driver/nvidia/gpus"))[:64]  # noqa: PTH208
    except OSError:
        return []
    models = []
    for directory in directories:
        line = _first_line(f"/proc/driver/nvidia/gpus/{directory}/information")
        name, _, model = line.partition(":")
        if name.strip() == "Model" and model.strip():
            models.append(model.strip())
    return models
