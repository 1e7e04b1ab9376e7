"""What the keys of a saved state tell about training: whether optimizer, scheduler, random numbers and data position are in it.

Keys as the trainers name them: Lightning ``dump_checkpoint``, Composer ``State.state_dict``, nanoGPT ``train.py``, OLMo-core
``Trainer.state_dict``, torchtune, fairseq and scripts that follow PyTorch's own examples.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.checkpoints.pickle_scan import OPTIMIZER_NAMES, Items, Table

_OPTIMIZER = OPTIMIZER_NAMES | {"opt", "last_optimizer_state"}
_SCHEDULER = frozenset(
    ("scheduler", "schedulers", "lr_scheduler", "lr_schedulers", "opt_param_scheduler", "scheduler_state_dict")
)
_RNG = frozenset(
    ("rng", "rng_state", "rng_states", "random_states", "torch_rng_state", "cuda_rng_state", "cuda", "np_rng_state", "numpy_rng_state",
     "random_rng_state")
)  # fmt: skip
_DATA = frozenset(
    ("loops", "data_loader", "dataloader", "data_loader_state", "dataset_state", "timestamp", "train_iterator", "sampler",
     "extra_state", "data_position", "data_indices")
)  # fmt: skip
_STEP = ("global_step", "iter_num", "global_train_steps_done", "iteration", "step")


@dataclass(frozen=True, slots=True)
class StateKeys:
    """None = the keys do not tell. step: a number of optimizer steps that stands in the state."""

    has_optimizer: bool | None = None
    has_scheduler: bool | None = None
    has_rng: bool | None = None
    has_data_position: bool | None = None
    step: int | None = None


def read(table: Table) -> StateKeys:
    """What ``table`` (the object of one file) tells; an empty one tells nothing."""
    if not table.keys:
        return StateKeys()
    step = next((value for name in _STEP if type(value := table.keys.get(name)) is int and 0 <= value < 1 << 63), None)
    return StateKeys(_holds(table, _OPTIMIZER), _holds(table, _SCHEDULER), _holds(table, _RNG), _holds(table, _DATA), step)


def _holds(table: Table, names: frozenset[str]) -> bool:
    """Whether one of the keys is there with something in it: a saver may write an empty list where nothing was to save."""
    for name in names & table.keys.keys():
        value = table.keys[name]
        if value is None or value is False or (isinstance(value, Items) and not value.count):
            continue
        return True
    return False
