"""One rank of two that saves with the real DeepSpeed or the real Megatron-Core; started twice by the test beside it.

Arguments: which of them, the directory, a file for the ranks to meet at, and this rank. Imports take longest, so one start saves
everything. What is skipped is communication and CUDA, never a part of the save.
"""

import datetime
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

RANKS = 2
ITERATION = 500


def meet(meeting: str, rank: int) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=120)
    )


def settings(stage: int) -> dict[str, object]:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
    }


def save_deepspeed(directory: Path) -> None:
    import deepspeed

    # A shared-memory collective that would be compiled here: it takes a compiler and a minute.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo", dist_init_required=False)
    for stage in (1, 3):
        model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1), config=settings(stage),
            dist_init_required=False,
        )  # fmt: skip
        for _ in range(3):
            loss = engine(torch.ones(4, 8, dtype=torch.bfloat16)).sum()
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(str(directory / f"stage-{stage}"), client_state={"iteration": 3})
    save_pipeline(deepspeed, directory / "pipeline")


def save_pipeline(deepspeed: object, directory: Path) -> None:
    from deepspeed.pipe import PipelineModule

    layers = [torch.nn.Linear(8, 8), lambda batch: batch * 2, torch.nn.ReLU(), torch.nn.Linear(8, 8)]
    model = PipelineModule(layers, num_stages=RANKS, loss_fn=lambda output, _: output.float().sum())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings(1), dist_init_required=False)
    engine.save_checkpoint(str(directory))


def save_megatron(directory: Path, rank: int) -> None:
    # Waits for copies from a GPU, of which there is none.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

    def part(key: str) -> ShardedTensor:
        return ShardedTensor.from_rank_offsets(key, torch.randn(8, 5), (0, rank, RANKS))

    weight = "decoder.layers.weight"
    state = {
        "model": {weight: part(weight)},
        "optimizer": {"state": {name: part(f"optimizer.state.{name}.{weight}") for name in ("exp_avg", "exp_avg_sq")}},
        "rng_state": ShardedObject("rng_state", [{"torch": torch.get_rng_state()}], (RANKS,), (rank,)),
        "opt_param_scheduler": {"num_steps": 4000, "max_lr": 1e-4},
        "iteration": ITERATION,
        "checkpoint_version": 3.0,
    }
    target = directory / f"iter_{ITERATION:07d}"
    target.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state, str(target))
    if rank == 0:
        (directory / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


def main() -> None:
    kind, directory, meeting, rank = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    meet(meeting, rank)
    if kind == "deepspeed":
        save_deepspeed(directory)
    else:
        save_megatron(directory, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
