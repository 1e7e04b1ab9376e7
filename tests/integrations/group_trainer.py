"""A small data-parallel training that obeys the control file, as three ranks; the tests beside it start them.

One process imports torch and forks the ranks, because three imports a test take longer than the tests. It reads commands as JSON
lines: ``{"start": [directory, meeting, rank, wanted]}`` answers the rank's process id, ``{"end": pid}`` its exit code or null.
"""

import datetime
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # the first step of an optimizer does it: seconds for each rank, unless it is there before the fork
import torch.distributed as dist

from trainvitals.hook import group_control
from trainvitals.hook.group_control import GroupControl, PeersLost


def broken(*arguments, **options):
    raise RuntimeError("connection refused")


def train(directory: Path, meeting: str, rank: int, wanted: dict) -> int:
    """One rank; returns its exit code."""
    steps, timeout_s = wanted["steps"], wanted.get("timeout_s", 30)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=3, timeout=datetime.timedelta(seconds=timeout_s)
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    out = (directory / f"rank{rank}.jsonl").open("a", buffering=1)

    def tell(**what):
        out.write(json.dumps(what) + "\n")

    def save(step):
        """A collective, as sharded saves are."""
        total = torch.tensor([step])
        dist.all_reduce(total)
        tell(saved=step, same=int(total) == 3 * step)
        if rank == wanted.get("fails_on") and step < wanted.get("fails_before", 10**9):
            raise OSError(28, "No space left on device")

    def drain():
        tell(drained=True)

    def held():
        tell(held=True)

    loss = torch.zeros(1)

    def train_step(step):
        nonlocal loss
        if step == wanted.get("dies_at") and rank == 2:
            os._exit(9)
        data = torch.randn(4, 8, generator=generator)
        loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(wanted.get("step_s", 0.002))
        if rank == wanted.get("sleeps") and step == 30:
            time.sleep(wanted["seconds"])

    group_control.CONNECT_S = wanted.get("connect_s", group_control.CONNECT_S)
    if rank == 2 and (without := wanted.get("gloo")):
        if without == "device":
            os.environ["GLOO_SOCKET_IFNAME"] = "nosuch0"
        else:
            dist.new_group = broken
    if documented := wanted.get("documented"):
        names = {
            "run_dir": directory, "save_checkpoint": save, "finish_async_saves": drain, "train_step": train_step, "start": 0, "steps": steps,
        }  # fmt: skip
        exec(documented, names)  # it leaves by sys.exit, as the page says
    control = GroupControl(
        directory, run="r1", on_checkpoint=save, drain=drain, while_held=held, poll_s=0.03, timeout_s=wanted.get("patience_s", timeout_s),
        hold_timeout_s=timeout_s, meet_every_s=wanted.get("meet_every_s", 0.02), max_hold_s=wanted.get("max_hold_s", 1800.0),
    )  # fmt: skip
    if sentence := control.at_start():
        tell(refused=sentence)
        control.close()
        return control.exit_code
    odd, odd_step = wanted.get("odd", ()), {"nan": float("nan"), "none": None, "huge": 2**70}.get(wanted.get("odd_step"))
    try:
        for step in range(steps):
            train_step(step)
            answer = control.at_step(step if rank not in odd or step < 30 else odd_step)
            if answer != "continue":
                tell(answer=answer, at=step)
                break
    except PeersLost as error:
        tell(lost=str(error))
        return 3
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    tell(ended=step, weights=hashlib.sha256(weights).hexdigest(), loss=loss.item().hex(), failures=control.failures.count)
    control.close()
    dist.barrier()
    dist.destroy_process_group()
    return control.exit_code


def main() -> int:
    for line in sys.stdin:
        command = json.loads(line)
        if "end" in command:
            pid, status = os.waitpid(command["end"], os.WNOHANG)
            sys.stdout.write(f"{json.dumps(os.waitstatus_to_exitcode(status) if pid else None)}\n")
            sys.stdout.flush()
            continue
        pid = os.fork()
        if pid == 0:
            directory, meeting, rank, wanted = command["start"]
            log = os.open(f"{directory}/rank{rank}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            return train(Path(directory), meeting, rank, wanted)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
