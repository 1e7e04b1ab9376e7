"""A callback for Lightning (``lightning.pytorch`` or ``pytorch_lightning``) and for NeMo, which trains with it.

    from trainvitals.hook.lightning import TrainvitalsCallback

    trainer = Trainer(..., callbacks=[TrainvitalsCallback("/shared/runs/llama-70b", run="llama-70b")])

It records what the module logs with ``self.log``, every ``log_every_n_steps`` optimizer steps, and hashes each checkpoint after
it was written. The step is ``trainer.global_step``, as in the names of checkpoints: one more than the step in ``metrics.csv``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from trainvitals.hook.device_values import DeviceValues
from trainvitals.hook.group_control import GroupControl
from trainvitals.hook.group_flow import tell_refusal
from trainvitals.hook.guard import Failures, Guarded, never_raises
from trainvitals.hook.lightning_saves import save_now, watch, when_written
from trainvitals.hook.pace import Pace
from trainvitals.hook.recorder import Recorder
from trainvitals.hook.save import Save
from trainvitals.hook.saves import Saves


def _callback_class() -> Any:
    """Of the package that the trainer has imported already: both may be installed, and their classes differ."""
    packages = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(packages, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("trainvitals.hook.lightning needs lightning or pytorch-lightning: pip install lightning")


#: Names that modules, NeMo and Lightning's own helpers use -> the schema's. What is not here keeps its name.
NAMES = {
    "train_loss": "loss",
    "train_loss_step": "loss",
    "train/loss": "loss",
    "train/loss_step": "loss",
    "training_loss": "loss",
    "loss_step": "loss",
    "reduced_train_loss": "loss",
    "learning_rate": "lr",
    "grad_2.0_norm_total": "grad_norm",
    "gradient_norm": "grad_norm",
    "consumed_samples": "samples",
    "train_step_timing in s": "step_time_s",
    "TFLOPS_per_GPU": "tflops_per_gpu",
    "tflops_per_sec_per_gpu": "tflops_per_gpu",
}
VALIDATION_LOSSES = ("val_loss", "validation_loss", "val/loss", "valid_loss", "eval_loss", "val_loss_epoch")
LAYOUT = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}
MAX_METRICS = 200
#: Where the next thing is no training step: wait so long for values that are still on the device.
DEVICE_S = 5.0


class TrainvitalsCallback(Guarded, _callback_class()):  # type: ignore[misc]
    """Rank 0 writes ``metrics.rank00000.jsonl`` in ``run_dir``; with ``every_rank`` each process writes its own file.

    ``loss``: name of the metric that is the loss, where none of ``NAMES`` is logged; without any, the loss that
    ``training_step`` returned. ``failures``: what went wrong in the callback itself; nothing raises into the trainer.
    Values on a device are copied without waiting for it and recorded with the next batch. ``manifest``: after a save the files
    are hashed, in a thread. ``control``: obey ``control.json``, on all ranks at one step; a mapping gives arguments of ``GroupControl``.
    It alone raises: ``PeersLost``, when a rank is gone while all are held.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        *,
        loss: str = "",
        every_rank: bool = False,
        writer: str = "auto",
        describe: bool = True,
        manifest: bool = True,
        control: bool | Mapping[str, Any] = False,
    ) -> None:
        super().__init__()
        self.failures = Failures()
        self._wants_control, self._control_arguments = control is not False, dict(control) if isinstance(control, Mapping) else {}
        self._control: GroupControl | None = None
        self._obeyed_step: int | None = None
        self._saves: Saves | None = None
        self._manifest = bool(manifest)
        self._recorder: Recorder | None = None
        self._run_dir, self._run, self._writer = run_dir, run, writer
        self._loss, self._every_rank, self._describe = loss, bool(every_rank), bool(describe)
        self._start_over()

    def _start_over(self) -> None:
        self._pace = Pace()
        self._step = 0
        self._waiting: tuple[int, DeviceValues] | None = None
        self._is_saving = False
        self._is_validating = False

    @property
    def recorder(self) -> Recorder | None:
        """The recorder while training runs on a rank that writes: for ``data()`` and events of your own."""
        return self._recorder

    @property
    def exit_code(self) -> int:
        """For ``sys.exit`` after ``fit()``, on every rank: 75 when the run was parked, else 0; under torchrun always 0."""
        return self._control.exit_code if self._control is not None else 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_recorder": None,
            "_waiting": None,
            "_saves": None,
            "_control": None,
        }  # a spawned process begins anew

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(trainer, pl_module)
        self._begin_control(trainer)

    @never_raises
    def _begin_control(self, trainer: Any) -> None:
        """On every rank."""
        if not self._wants_control:
            return
        self._end_control()
        self._obeyed_step = int(trainer.global_step)
        self._control = GroupControl(
            self._run_dir, self._run, lambda step: save_now(trainer), recorder=self._recorder, **self._control_arguments
        )
        if sentence := self._control.at_start():
            trainer.should_stop = True
            tell_refusal(sentence, bool(trainer.is_global_zero))

    def _obey(self, trainer: Any) -> None:
        """Raises ``PeersLost``."""
        step = int(trainer.global_step)
        if self._control is None or step == self._obeyed_step:
            return  # gradients were accumulated
        self._obeyed_step = step
        holds = self._control.holds
        if self._control.at_step(step) != "continue":
            trainer.should_stop = True
        if self._control.holds != holds:
            self._pace.interrupt()

    @never_raises
    def _end_control(self) -> None:
        if self._control is not None:
            self._control.close()

    @never_raises
    def _begin(self, trainer: Any, pl_module: Any) -> None:
        if self._recorder is not None:
            self._recorder.finish("superseded")
            self._recorder.close()
            self._recorder = None
        self._watch(trainer)
        if not (self._every_rank or trainer.is_global_zero):
            return
        self._start_over()
        self._step = int(trainer.global_step)
        self._recorder = Recorder(
            self._run_dir, run=self._run, rank=trainer.global_rank, world_size=trainer.world_size, writer=self._writer
        )
        if self._manifest:
            self._saves = self._recorder.saves
        if self._step:
            path = getattr(trainer, "ckpt_path", None)
            self._recorder.resumed(self._step, **({"path": str(path)} if path else {}))
        if self._describe:
            self._tell_start(trainer, pl_module)

    def _tell_start(self, trainer: Any, pl_module: Any) -> None:
        assert self._recorder is not None
        names = ("max_steps", "max_epochs", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
                 "log_every_n_steps", "val_check_interval", "num_nodes", "num_devices", "precision")  # fmt: skip
        settings = {name: getattr(trainer, name, None) for name in names}
        settings["strategy"] = type(trainer.strategy).__name__
        config: dict[str, object] = {"trainer": settings}
        hyperparameters = getattr(pl_module, "hparams", None)
        if isinstance(hyperparameters, Mapping) and hyperparameters:
            config["model"] = dict(hyperparameters)
        layout: dict[str, object] = {"world_size": trainer.world_size, **_parallel_layout(trainer)}
        self._recorder.describe(
            config, layout=layout, precision=str(settings["precision"]), max_grad_norm=settings["gradient_clip_val"]
        )

    @never_raises
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._recorder is None:
            return
        self._end_saving(trainer)
        self._pace.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._batch_ended(trainer, outputs)
        self._obey(trainer)

    @never_raises
    def _batch_ended(self, trainer: Any, outputs: Any) -> None:
        if self._recorder is None:
            return
        self._release(wait=False)
        step = int(trainer.global_step)
        if step == self._step:
            return  # gradients were accumulated
        self._pace.end()
        every, before, self._step = int(trainer.log_every_n_steps), self._step, step
        # Several optimizers count several steps a batch, so that a multiple may be stepped over.
        if every and (step // every > before // every or trainer.should_stop):
            self._release(wait=True)
            self._waiting = (step, DeviceValues(self._metrics(trainer, outputs)))
            self._release(wait=False)

    def _metrics(self, trainer: Any, outputs: Any) -> dict[str, object]:
        metrics: dict[str, object] = {}
        for name, value in _step_metrics(trainer).items():
            metrics.setdefault("loss" if name == self._loss else NAMES.get(name, name), value)
        if "loss" not in metrics:
            metrics["loss"] = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if "lr" not in metrics and trainer.optimizers:
            metrics["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        seconds, steps = self._pace.take()
        if steps:
            metrics.setdefault("step_time_s", seconds / steps)
        return dict(list(metrics.items())[:MAX_METRICS])

    def _release(self, wait: bool) -> None:
        if self._recorder is not None and self._waiting is not None and (wait or self._waiting[1].is_ready()):
            (step, values), self._waiting = self._waiting, None
            metrics = values.result(timeout_s=DEVICE_S)
            if not values.is_ready():
                self.failures.add(
                    "reading the metrics", TimeoutError(f"the device did not answer in {DEVICE_S} s"), self._recorder
                )
            self._recorder.log(step, metrics)

    @never_raises
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recorder is None or trainer.sanity_checking:
            return
        self._release(wait=True)
        self._end_saving(trainer)
        self._is_validating = True
        self._recorder.event("phase", self._step, phase="eval", state="begin")

    @never_raises
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recorder is None or not self._is_validating:
            return
        self._is_validating = False
        self._pace.interrupt()
        self._recorder.event("phase", self._step, phase="eval", state="end")
        found = {name: value for name, value in trainer.callback_metrics.items() if name.lower().startswith(("val", "eval"))}
        numbers: dict[str, object] = {}
        for name, value in DeviceValues(dict(list(found.items())[:MAX_METRICS])).result(timeout_s=DEVICE_S).items():
            if isinstance(value, float):
                numbers[name] = value if value - value == 0.0 else str(value)
        for name in VALIDATION_LOSSES:
            if name in numbers:
                numbers["validation_loss"] = numbers.pop(name)
                break
        if numbers:
            self._recorder.event("message", self._step, "validation", **numbers)

    @never_raises
    def _watch(self, trainer: Any) -> None:
        self._saves = Saves(self._run, trainer.global_rank, trainer.world_size) if self._manifest else None
        watch(self, trainer)

    @never_raises
    def save_begins(self, trainer: Any, path: Any, weights_only: bool) -> Save | None:
        """Called by ``lightning_saves``."""
        if self._recorder is not None and not self._is_saving:
            self._release(wait=True)
            self._is_saving = True
            self._recorder.event("phase", int(trainer.global_step), phase="checkpoint", state="begin")
        if self._saves is None:
            return None
        # One file is rank 0's; whether it is a directory of all ranks is seen when it is there.
        return self._saves.begin(
            path, int(trainer.global_step), ranks=1, trainer="lightning", has_optimizer=not weights_only,
            has_scheduler=not weights_only, parallel=_parallel_layout(trainer),
        )  # fmt: skip

    @never_raises
    def save_ended(self, trainer: Any, path: Any, save: Save | None, error: BaseException | None) -> None:
        """Called by ``lightning_saves``."""
        if save is not None:
            save.ranks = trainer.world_size if os.path.isdir(save.path) else 1  # noqa: PTH112
            if error is not None:
                save.failed(error)
            else:
                self._written(trainer, save)
        if error is None:
            self._end_saving(trainer, str(path))

    def _written(self, trainer: Any, save: Save) -> None:
        def then(error: BaseException | None) -> None:
            save.failed(error) if error is not None else save.persisted()

        try:
            save.is_async = when_written(trainer, then)
        except Exception as error:  # noqa: BLE001 - another Lightning than we know; counted and told, and nothing is hashed too early
            self.failures.add("AsyncCheckpointIO", error, self._recorder)
            save.failed("nobody could be asked when it was written")
            return
        save.staged() if save.is_async else save.persisted()

    @never_raises
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        if self._recorder is None or self._is_saving:
            return
        self._release(wait=True)
        self._is_saving = True
        self._recorder.event("phase", self._step, phase="checkpoint", state="begin")

    def _end_saving(self, trainer: Any, path: str = "") -> None:
        """A checkpoint was written; of one that is saved in another way than ``trainer.save_checkpoint`` the next thing says so."""
        if self._recorder is None or not self._is_saving:
            return
        self._is_saving = False
        self._pace.interrupt()
        if not path:
            saved = (getattr(found, "_last_checkpoint_saved", "") for found in trainer.checkpoint_callbacks)
            path = next((str(one) for one in reversed(list(saved)) if one), "")
        self._recorder.event("phase", self._step, phase="checkpoint", state="end", **({"path": path} if path else {}))

    @never_raises
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._end_saving(trainer)

    @never_raises
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end_control()
        # Other callbacks save their last checkpoint now, and an asynchronous plugin finishes its own: ``teardown`` closes.
        self._finish(trainer, "finished" if not trainer.interrupted else "stopped", closes=False)

    @never_raises
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end_control()
        self._finish(trainer, f"exception: {type(exception).__name__}")

    @never_raises
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._recorder is not None and stage == "fit":
            self._finish(trainer, "finished")

    def _finish(self, trainer: Any, reason: str, closes: bool = True) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            self._release(wait=True)
            if not reason.startswith("exception"):
                self._end_saving(trainer)
            recorder.finish(reason)
        finally:
            if closes:
                self._close(trainer, recorder)

    def _close(self, trainer: Any, recorder: Recorder) -> None:
        self._recorder = None
        recorder.close_later()
        if self._manifest:  # a checkpoint may be saved after the training, too
            self._saves = Saves(self._run, trainer.global_rank, trainer.world_size)


def _parallel_layout(trainer: Any) -> dict[str, int]:
    sizes = {short: getattr(trainer.strategy, name, None) for name, short in LAYOUT.items()}
    return {short: size for short, size in sizes.items() if isinstance(size, int)}


def _step_metrics(trainer: Any) -> Mapping[str, object]:
    """What was logged in this step: what the trainer itself hands to its loggers, and what it kept from them.

    ``callback_metrics`` holds old values of epochs and validations too; it is the way where the inner one is not there.
    """
    results = getattr(trainer, "_results", None)
    if results is not None and callable(getattr(results, "metrics", None)):
        found = results.metrics(True)
        return {**found["callback"], **found["log"]}
    return {
        name: value
        for name, value in trainer.callback_metrics.items()
        if not name.endswith("_epoch") and not name.lower().startswith(("val", "test", "eval"))
    }
