"""What a trainer passes to the monitor may be anything: nothing is raised, the failure is counted, a default is taken."""

import json

import pytest

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")


class Raises:
    """Whatever is asked of it."""

    def __int__(self):
        raise RuntimeError("no")

    __float__ = __index__ = __iter__ = __str__ = __int__


def raising():
    raise RuntimeError("no")
    yield


WRONG = [
    {"sample_every": None}, {"sample_every": "x"}, {"sample_every": float("inf")}, {"checksum_every": None}, {"checksum_every": Raises()},
    {"replica": "a"}, {"replica": None}, {"rank": "x"}, {"rank": Raises()}, {"world_size": "many"}, {"replicated": 5},
    {"replicated": raising()}, {"replicated": [1, 2]}, {"replicated": Raises()}, {"max_grad_norm": "x"}, {"per_rank": 5},
]  # fmt: skip


def numbers(path):
    lines = [json.loads(line) for line in (path / "metrics.rank00000.jsonl").read_text().splitlines()]
    return [line["values"] for line in lines if line["type"] == "step"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{next(iter(wrong))}={type(next(iter(wrong.values()))).__name__}")
def test_a_wrong_argument_is_counted_and_the_steps_are_recorded(tmp_path, wrong):
    from trainvitals.hook.torch_loop import TrainingMonitor

    with TrainingMonitor(tmp_path, **wrong) as monitor:
        assert monitor.failures.count == 1 and next(iter(wrong)) in monitor.failures.last
        for number in (1, 2):
            with monitor.step(number) as step:
                step.loss(2.5)
                step.grad_norm(0.5)
    assert monitor.failures.count == 1
    assert [(found["loss"], found["grad_norm"]) for found in numbers(tmp_path)] == [(2.5, 0.5)] * 2


def test_a_wrong_limit_of_a_step_is_counted_and_the_step_is_recorded_by_the_limit_of_the_monitor(tmp_path):
    from trainvitals.hook.torch_loop import TrainingMonitor

    with TrainingMonitor(tmp_path, max_grad_norm=1.0) as monitor, monitor.step(1) as step:
        step.grad_norm(2.0, max_norm="q")
    assert monitor.failures.count == 1 and "max_norm" in monitor.failures.last
    assert [found["clip_fraction"] for found in numbers(tmp_path)] == [1.0]
