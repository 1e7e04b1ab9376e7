"""Real torchrun trainings with two ranks (gloo, CPU): rank 0's file, the ranks' own files and the printed log agree."""

import json
import math
import os
import time

import pytest

from tests.integrations.roads import assert_agree, read, train

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")

SCRIPT = """
import json, os, signal, sys, time
import torch, torch.distributed as dist
from tests.integrations.leaving import leave_together
from trainvitals.hook.torch_loop import TrainingMonitor

options = {"steps": 40, "first": 0, "nan_at": -1, "kill_at": -1, "flip_at": -1, "slow_rank": -1, "only_rank": None, "skips": -1, "is_early": False}
options |= json.loads(sys.argv[2])
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
if options["is_early"] != "never":
    if options["is_early"]: early = TrainingMonitor(sys.argv[1], run="tiny", sample_every=5)
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = None
if options["is_early"] is True:
    monitor = early
elif options["only_rank"] in (None, rank):
    monitor = TrainingMonitor(
        sys.argv[1], run="tiny", sample_every=5, max_grad_norm=5.0, per_rank=options.get("per_rank", "gather"),
        replicated=model.named_parameters(), checksum_every=20,
    )
    if options["first"]:
        monitor.resumed(options["first"])


def train(number, step):
    begun_s = time.perf_counter()
    torch.manual_seed(2 * number + rank)
    batch = torch.randn(4, 8)
    loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean() * (float("nan") if number == options["nan_at"] else 1.0)
    optimizer.zero_grad()
    loss.backward()
    if rank == options["slow_rank"] and number % 5 == 0:
        time.sleep(0.1)
    if number == options["kill_at"] and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if step: step.before_all_reduce()
    for parameter in model.parameters() if options["is_early"] != "never" else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0)
    optimizer.step()
    if number == options["flip_at"] and rank == 1:
        model.weight.data.view(torch.int32)[0, 3] ^= 1  # the lowest bit of one weight
    if step:
        step.loss(loss)
        step.grad_norm(norm)
        step.log(lr=0.01)
    if rank == 0:
        took_s = time.perf_counter() - begun_s
        print(f"step {number:4d} | loss: {loss.item():.6f} | lr 1.0000e-02 | norm: {norm.item():.4f} | dt: {took_s * 1e3:.2f}ms | tok/sec: 100.00")


for number in range(options["first"], options["steps"]):
    if monitor is None or (rank == 1 and number == options["skips"]):
        train(number, None)
    else:
        with monitor.step(number) as step:
            train(number, step)
if monitor:
    monitor.finish()
    monitor.close()
    print(f"failures of rank {rank}: {monitor.failures.count} {monitor.failures.last}")
if dist.is_initialized(): leave_together()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


def torchrun(script, directory, code=0, **options):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--tee=3", f"--log-dir={directory}/logs")
    return train(script, directory, json.dumps(options), launcher=launcher, code=code)


@pytest.fixture(scope="module")
def run(script, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    return directory, torchrun(script, directory, nan_at=17, flip_at=30, slow_rank=1)


def test_the_record_and_the_printed_log_agree_in_a_run_with_a_nan(run):
    directory, log = run
    by_hook, _ = read(directory / "metrics.rank00000.jsonl")
    by_log, _ = read(log)
    assert [step.step for step in by_hook] == list(range(40))
    assert_agree(by_hook, by_log)
    assert by_hook[17].nonfinite == {"loss": "nan", "grad_norm": "nan"}
    assert b"failures of rank 0: 0" in log and b"failures of rank 1: 0" in log


def test_sampled_steps_tell_how_the_ranks_differ_and_no_other_steps_do(run):
    directory, _ = run
    steps, events = read(directory / "metrics.rank00000.jsonl")
    for step in steps:
        assert ("loss_rank_max" in step.values) == (step.step % 5 == 0), step
        assert "ranks_missing" not in step.values
    sampled = [step.values for step in steps if step.step % 5 == 0]
    assert all(values["pre_all_reduce_rank_max_s"] > 0.1 for values in sampled)
    assert sum(values["slowest_rank"] == 1 for values in sampled) > len(sampled) / 2  # a busy machine slows the other one too
    assert all(values["loss_rank_min"] <= values["loss"] <= values["loss_rank_max"] for values in sampled)
    assert all(0 <= step.values["clip_fraction"] <= 1 for step in steps)
    ranks = next(e.data["values"] for e in events if e.kind == "metadata" and e.data["section"] == "ranks")
    assert {rank: place.split("/")[1] for rank, place in ranks.items()} == {"0": "0", "1": "1"}
    assert all(0 < values["pre_all_reduce_rank_median_s"] <= values["pre_all_reduce_rank_max_s"] for values in sampled)
    worst = [event.data["worst"] for event in events if event.kind == "ranks"][-1]
    assert {row["rank"] for row in worst} == {0, 1} and all(row["host"] == os.uname().nodename for row in worst)


def test_one_flipped_bit_of_one_weight_on_one_rank_is_found_at_the_next_check(script, tmp_path, run):
    directory, _ = run
    _, events = read(directory / "metrics.rank00000.jsonl")
    assert [e for e in events if "replica_mismatch" in e.data] == []  # flipped at 30; 20 was the last check
    torchrun(script, tmp_path, flip_at=10)
    _, events = read(tmp_path / "metrics.rank00000.jsonl")
    found = [e for e in events if "replica_mismatch" in e.data]
    assert [(e.step, e.data["replica_mismatch"], e.data["parameters"]) for e in found] == [(20, [1], "weight[0:8]")]


def test_a_monitor_made_before_the_process_group_finds_the_ranks_at_its_first_step(script, tmp_path):
    log = torchrun(script, tmp_path, is_early=True, steps=20)
    steps, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert [step.step for step in steps if "loss_rank_max" in step.values] == [0, 5, 10, 15]
    assert b"failures of rank 0: 0" in log and not any(event.data.get("callback_failures") for event in events)


def test_ranks_that_never_meet_are_told_once_in_the_file_and_on_stderr(script, tmp_path):
    log = torchrun(script, tmp_path, is_early="never", steps=20)
    steps, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert len(steps) == 20 and not any("loss_rank_max" in step.values for step in steps)
    told = [event.text for event in events if event.data.get("callback_failures")]
    assert len(told) == 1 and "the 2 ranks are not compared; call init_process_group" in told[0]
    assert log.count(b"trainvitals hook: the callback failed 1 times") == 2


def test_a_second_start_is_a_second_attempt_on_both_roads(script, tmp_path):
    log = torchrun(script, tmp_path, steps=20) + torchrun(script, tmp_path, first=10, steps=30)
    by_hook, events = read(tmp_path / "metrics.rank00000.jsonl")
    by_log, _ = read(log)
    assert [(s.attempt, s.step) for s in by_hook] == [(1, n) for n in range(20)] + [(2, n) for n in range(10, 30)]
    assert_agree(by_hook, by_log)
    assert [e.step for e in events if e.kind == "resume"] == [10]


def test_when_a_rank_is_killed_with_kill_9_both_files_are_whole_up_to_that_moment(script, tmp_path):
    torchrun(script, tmp_path, code=None, kill_at=33, per_rank="files")
    for rank, steps in ((0, list(range(33))), (1, list(range(0, 33, 5)))):
        content = (tmp_path / f"metrics.rank{rank:05d}.jsonl").read_bytes()
        assert content.endswith(b"\n")
        for line in content.splitlines():
            json.loads(line)
        found, _ = read(content)
        assert [step.step for step in found] == steps
        assert all(math.isfinite(step.values["loss"]) for step in found)


def test_a_rank_without_a_monitor_is_missing_and_keeps_nobody_waiting(script, tmp_path):
    begun_s = time.monotonic()
    log = torchrun(script, tmp_path, only_rank=0)
    assert time.monotonic() - begun_s < 60
    steps, _ = read(tmp_path / "metrics.rank00000.jsonl")
    assert [step.step for step in steps] == list(range(40))
    assert [step.values["ranks_missing"] for step in steps if step.step % 5 == 0] == [1.0] * 8
    assert b"failures of rank 0: 0" in log


def test_a_rank_that_leaves_out_one_step_is_missing_in_that_one_only(script, tmp_path):
    torchrun(script, tmp_path, skips=15)
    steps, _ = read(tmp_path / "metrics.rank00000.jsonl")
    assert [step.step for step in steps] == list(range(40))
    assert [step.step for step in steps if "ranks_missing" in step.values] == [15]


class OnDevice(torch.Tensor):
    """A tensor that says it lives on a GPU; its copy to the host is done when the test says so."""

    is_cuda = True


class Copied:
    def __init__(self):
        self.is_done = False

    def query(self):
        return self.is_done


@pytest.fixture
def copies(monkeypatch):
    from trainvitals.hook import device_values

    made = []

    def start_copy(scalars):
        made.append(Copied())
        return torch.tensor([float(scalar.as_subclass(torch.Tensor)) for scalar in scalars]), made[-1]

    monkeypatch.setattr(device_values, "start_copy", start_copy)
    return made


def test_values_on_a_device_are_recorded_when_they_have_come_and_never_waited_for(copies, tmp_path):
    from trainvitals.hook.torch_loop import TrainingMonitor

    monitor = TrainingMonitor(tmp_path, run="lazy", rank=0, world_size=1)
    weights = torch.tensor([2.5]).as_subclass(OnDevice)
    for number in (1, 2, 3):
        with monitor.step(number) as step:
            step.loss(weights)
            step.log(lr=0.1)
        weights.as_subclass(torch.Tensor).add_(1.0)  # the next step writes into it
    path = tmp_path / "metrics.rank00000.jsonl"
    assert (read(path)[0], len(copies)) == ([], 3)
    copies[1].is_done = True  # the second before the first: the order stays
    with monitor.step(4):
        pass
    assert read(path)[0] == []
    copies[0].is_done = True
    with monitor.step(5):
        pass
    assert [(step.step, step.values["loss"]) for step in read(path)[0]] == [(1, 2.5), (2, 3.5)]
    copies[2].is_done = True
    monitor.close()
    assert [step.step for step in read(path)[0]] == [1, 2, 3, 4, 5]
    assert monitor.failures.count == 0


def test_a_device_that_never_answers_keeps_the_end_waiting_for_a_bounded_time_and_is_told(copies, tmp_path, monkeypatch):
    from trainvitals.hook import torch_loop

    monkeypatch.setattr(torch_loop, "DEVICE_S", 0.05)
    monitor = torch_loop.TrainingMonitor(tmp_path, run="hung", rank=0, world_size=1)
    with monitor.step(1) as step:
        step.loss(torch.tensor([2.5]).as_subclass(OnDevice))
        step.log(lr=0.1)
    monitor.close()
    steps, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert [(step.step, step.values["lr"], step.values.get("loss")) for step in steps] == [(1, 0.1, None)]
    assert monitor.failures.count == 1
    assert "did not answer" in events[0].text


def test_what_is_no_number_is_left_out_and_an_exception_of_the_loop_passes(tmp_path):
    from trainvitals.hook.torch_loop import TrainingMonitor

    with pytest.raises(ZeroDivisionError), TrainingMonitor(tmp_path, run="odd", rank=0, world_size=1) as monitor:
        with monitor.step(1) as step:
            step.loss(torch.ones(3))
            step.grad_norm(torch.tensor(2.0), max_norm=1.0)
        with monitor.step(2):
            raise ZeroDivisionError
    steps, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert [(step.step, step.values["grad_norm"], step.values["clip_fraction"]) for step in steps] == [(1, 2.0, 1.0)]
    assert events[-1].data["reason"] == "exception: ZeroDivisionError"


def test_checksums_see_every_single_bit_and_no_order():
    from trainvitals.hook.checksum import checksums, start_checksums, usable
    from trainvitals.hook.device_values import DeviceValues

    def of(parameters, turn=0):
        names, scalars = start_checksums(usable(parameters), turn)
        return names, checksums(DeviceValues(scalars).result(), len(names))

    torch.manual_seed(0)
    for kind in (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool):
        tensor = torch.randn(37).to(kind)
        names, before = of([("w", tensor)])
        assert of([("w", tensor.clone())]) == (names, before)
        if kind is torch.bool:
            continue
        bits = tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
        for place in (0, 17, 36):
            for bit in range(8 * tensor.element_size() - 1):
                bits[place] ^= 1 << bit
                assert of([("w", tensor)])[1] != before
                bits[place] ^= 1 << bit
    many = [(f"w{number}", torch.randn(200_000)) for number in range(20)]
    seen = {name for turn in range(3) for name in of(many, turn)[0]}
    assert len(seen) == 24  # the second lap looks at other places of the first tensors
    odd = [("transposed", torch.randn(4, 3).t()), ("empty", torch.empty(0))]
    assert usable(odd) == []
