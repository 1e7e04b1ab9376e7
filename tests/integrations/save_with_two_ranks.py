"""One rank of a small trainer that saves with real libraries; started twice by the tests beside it.

Arguments: what to save with, the directory, a file for the ranks to meet at, and this rank.
"""

import datetime
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.integrations.leaving import leave_together


class TrainState:
    """As torchtitan keeps it."""

    def __init__(self, step: int) -> None:
        self.step = step

    def state_dict(self) -> dict[str, object]:
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.step = int(state["step"])


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Sizes that two ranks cannot share evenly, so that one of them holds a smaller or an empty part."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    scheduler.step()
    return model, optimizer, scheduler


def save_dcp(directory: Path, mode: str) -> None:
    model, optimizer, scheduler = trained()
    weights, moments = get_state_dict(model, optimizer)
    if mode == "dies":
        dcp.FileSystemWriter.finish = lambda *_: os._exit(1)
    state = {
        "model": weights,
        "optimizer": moments,
        "lr_scheduler": scheduler,
        "train_state": TrainState(501 if mode == "dies" else 500),
        "dataloader": {"rank": {"0": {"position": 7}}},
    }
    if mode == "async":
        dcp.async_save(state, checkpoint_id=directory / "step-500").result()
    elif mode == "per-rank":
        dcp.save(state, checkpoint_id=directory / "step-500", use_collectives=False)
    elif mode == "model-only":
        dcp.save(weights, checkpoint_id=directory / "step-500")
    elif mode == "threads":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(directory / "step-500", thread_count=2))
    elif mode == "file-per-tensor":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(directory / "step-500", single_file_per_rank=False))
    else:
        dcp.save(state, checkpoint_id=directory / "step-500")


def save_huggingface_storage(directory: Path) -> None:
    model, _, _ = trained()
    weights, _ = get_state_dict(model, [])
    writer = dcp.HuggingFaceStorageWriter(str(directory / "step-500"), save_distributed=True)
    dcp.save(weights, storage_writer=writer)


def save_accelerate(directory: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(torch.ones(4, 8)).sum())
    optimizer.step()
    scheduler.step()
    accelerator.save_state(str(directory / "checkpoint_0"))


def save_accelerate_fsdp(directory: Path, mode: str) -> None:
    """Accelerate starts FSDP on accelerators only; these are the functions that its save_state then calls."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.checkpointing import save_accelerator_state
    from accelerate.state import PartialState
    from accelerate.utils import save_fsdp_model, save_fsdp_optimizer

    model, optimizer, scheduler = trained()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", cpu_ram_efficient_loading=False)
    state = PartialState(cpu=True)
    target = directory / "step_500"
    use_dcp = mode == "shards"
    save_fsdp_model(plugin, state, model, str(target), use_dcp=use_dcp)
    save_fsdp_optimizer(plugin, state, optimizer, model, str(target), use_dcp=use_dcp)
    save_accelerator_state(str(target), [], [], [scheduler], [], state.process_index, 500)


def main() -> None:
    kind, mode, directory, meeting, rank = *sys.argv[1:3], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    # Accelerate asks for an address although the ranks have met already.
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=120)
    )
    if kind == "dcp":
        save_dcp(directory, mode)
    elif kind == "huggingface-storage":
        save_huggingface_storage(directory)
    elif kind == "accelerate":
        save_accelerate(directory)
    else:
        save_accelerate_fsdp(directory, mode)
    leave_together()


if __name__ == "__main__":
    main()
