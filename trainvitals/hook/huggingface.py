"""A callback for the Hugging Face Trainer (and what is built on it: TRL, Axolotl, LLaMA-Factory).

    from trainvitals.hook.huggingface import TrainvitalsCallback

    trainer = Trainer(..., callbacks=[TrainvitalsCallback("/shared/runs/llama-70b", run="llama-70b")])

It records what the Trainer logs, at ``logging_steps``, and hashes each checkpoint after it was written. Needs transformers;
writes only the hook's file and, into each checkpoint, ``ckpt_manifest.json``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import TrainerCallback

from trainvitals.hook.group_flow import FlagFlow, Obeys, SavedSteps, tell_refusal
from trainvitals.hook.guard import Failures, Guarded, never_raises
from trainvitals.hook.pace import Pace
from trainvitals.hook.recorder import Recorder
from trainvitals.hook.save import Save
from trainvitals.hook.saves import Saves

#: The Trainer's names -> the schema's. What is not here keeps its name. ``train_tokens_per_second`` is a mean since the
#: start and no rate of this step, so it keeps its own name.
NAMES = {"learning_rate": "lr", "num_tokens": "tokens", "num_input_tokens_seen": "tokens"}
#: Without a grad norm in the logs: a loss above this that falls to exactly 0.0 and stays for 3 logs is a masked NaN.
MASKED_FROM = 0.05
MASKED_LOGS = 3
MAX_WAITING = 200
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class TrainvitalsCallback(Guarded, TrainerCallback):  # type: ignore[misc]
    """Rank 0 writes ``metrics.rank00000.jsonl`` in ``run_dir``; with ``every_rank`` each process writes its own file.

    ``writer``: as in ``Recorder``. ``failures``: what went wrong in the callback itself; nothing raises into the Trainer.
    ``describe``: also record the arguments, the model's configuration and the environment of this start. ``manifest``: each
    rank hashes the files of a checkpoint that it wrote, in a thread after the save. ``control``: obey ``control.json``, on all ranks
    at one step; a mapping gives arguments of ``GroupControl``. It alone raises: ``PeersLost``, when a rank is gone while all are held.

    A loss that the Trainer masked (``logging_nan_inf_filter``, AnswerDotAI/ModernBERT issue 233) is recorded as NaN again.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        *,
        every_rank: bool = False,
        writer: str = "auto",
        describe: bool = True,
        manifest: bool = True,
        control: bool | Mapping[str, Any] = False,
    ) -> None:
        self.failures = Failures()
        self._wants_control, self._control_arguments = control is not False, dict(control) if isinstance(control, Mapping) else {}
        self._control: Obeys | None = None
        self._flow: FlagFlow | None = None
        self._recorder: Recorder | None = None
        self._saves: Saves | None = None
        self._save: Save | None = None
        self._manifest = bool(manifest)
        self._run_dir, self._run, self._writer = run_dir, run, writer
        self._every_rank, self._describe = bool(every_rank), bool(describe)
        self._start_over()

    def _start_over(self) -> None:
        self._pace = Pace()
        self._waiting: dict[str, object] = {}  # logged without a loss: they belong to the next line with one
        self._has_loss = False
        self._lossless_from = 0  # the step from which on no loss is expected any more
        self._last_step: int | None = None
        self._tokens: float | None = None
        self._is_saving = False
        self._is_evaluating = False
        self._last_nonzero, self._zeros = 0.0, 0

    @property
    def recorder(self) -> Recorder | None:
        """The recorder while training runs on a rank that writes: for ``data()`` and events of your own."""
        return self._recorder

    @property
    def exit_code(self) -> int:
        """For ``sys.exit`` after ``train()``, on every rank: 75 when the run was parked, else 0; under torchrun always 0."""
        return self._control.exit_code if self._control is not None else 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_recorder": None,
            "_saves": None,
            "_save": None,
            "_control": None,
            "_flow": None,
        }  # a copy (for a spawned process, a search of parameters) begins anew

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self._begin(args, state, **named)
        self._begin_control(state, control)

    @never_raises
    def _begin_control(self, state: Any, flags: Any) -> None:
        """On every rank."""
        if not self._wants_control or getattr(state, "is_hyper_param_search", False):
            return
        from trainvitals.hook.group_control import GroupControl  # it alone needs torch

        if self._control is not None:
            self._control.close()
        saved = SavedSteps()
        self._control = GroupControl(
            self._run_dir, self._run, saved.has, recorder=self._recorder, is_ready=saved.has, **self._control_arguments
        )
        self._flow = FlagFlow(self._control, saved)
        if sentence := self._control.at_start():
            flags.should_training_stop = True  # after one step: the Trainer does not look before
            tell_refusal(sentence, bool(state.is_world_process_zero))

    @never_raises
    def _begin(self, args: Any, state: Any, **named: Any) -> None:
        if self._recorder is not None:  # the Trainer began again by itself, with a smaller batch for example
            self._recorder.finish("superseded")
            self._recorder.close()
        self._recorder = self._saves = self._save = None
        self._start_over()
        if not (self._every_rank or state.is_world_process_zero):
            if self._manifest:
                self._saves = Saves(self._run, args.process_index, args.world_size)
            return
        self._recorder = Recorder(
            self._run_dir, run=self._run, rank=args.process_index, world_size=args.world_size, writer=self._writer
        )
        self._saves = self._recorder.saves if self._manifest else None
        self._last_step = state.global_step or None
        self._lossless_from = state.global_step + 2 * max(1, getattr(state, "logging_steps", None) or 1)
        if state.global_step:
            self._recorder.resumed(state.global_step, **_checkpoint(args, state))
        if self._describe:
            self._tell_start(args, state, named.get("model"))

    def _tell_start(self, args: Any, state: Any, model: Any) -> None:
        assert self._recorder is not None
        # A class of somebody's own may raise anywhere in them; the other parts are told all the same.
        config: dict[str, object] = {}
        layout: dict[str, object] = {}
        facts: dict[str, object] = {}
        for section, part in (
            (config, lambda: _arguments(args)),
            (config, lambda: _model_config(model)),
            (layout, lambda: _batch_layout(args, state)),
            (layout, lambda: _parallel_layout(args)),
            (layout, lambda: _zero_stage(args)),
            (facts, lambda: {"precision": _precision(args, model)}),
            (facts, lambda: {"max_grad_norm": args.max_grad_norm}),
            (facts, lambda: {"max_steps": state.max_steps}),  # that of the arguments is -1 where they name epochs
        ):
            try:
                section.update(part())
            except Exception as error:  # noqa: BLE001 - counted and told; the Trainer goes on
                self.failures.add("describe", error, self._recorder)
        self._recorder.describe(config or None, layout=layout or None, **facts)

    def on_step_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._flow is not None:
            self._flow.step_begins(state.global_step, control)
        self._step_begins(args, state)

    @never_raises
    def _step_begins(self, args: Any, state: Any) -> None:
        if self._recorder is None:
            return
        if self._waiting and not self._has_loss and state.global_step >= self._lossless_from:
            self._write(args, state, {})  # a trainer that never logs a loss
        self._pace.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self._pace.end()
        if self._flow is not None and self._control is not None:
            holds = self._control.holds
            self._flow.step_ended(state.global_step, control)
            if self._control.holds != holds:
                self._pace.interrupt()
        self._step_ended(args, state, control)

    @never_raises
    def _step_ended(self, args: Any, state: Any, control: Any) -> None:
        self._before_saving(control.should_save and not control.should_log and not control.should_evaluate, args, state)

    @never_raises
    def on_epoch_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self._before_saving(control.should_save and not control.should_log and not control.should_evaluate, args, state)

    @never_raises
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, object] | None = None, **named: Any) -> None:
        if self._recorder is not None and logs:
            self._take(args, state, logs)
        self._before_saving(control.should_save and not control.should_evaluate, args, state)

    def _take(self, args: Any, state: Any, logs: Mapping[str, object]) -> None:
        assert self._recorder is not None
        if "loss" in logs:
            self._has_loss = True
            self._write(args, state, logs)
        elif "train_loss" in logs and "train_runtime" in logs:
            self._recorder.event("message", state.global_step, "training summary", **_numbers(logs))
        elif any(name.startswith("eval_") for name in logs):
            return  # told by on_evaluate
        elif len(self._waiting) + len(logs) <= MAX_WAITING:
            self._waiting.update(logs)

    def _write(self, args: Any, state: Any, logs: Mapping[str, object]) -> None:
        assert self._recorder is not None
        metrics: dict[str, object] = {}
        for name, value in {**self._waiting, **logs}.items():
            if isinstance(value, (int, float)) or hasattr(value, "__float__"):  # some trainers log texts and lists too
                metrics.setdefault(NAMES.get(name, name), value)
        self._waiting = {}
        if args.logging_nan_inf_filter:
            self._unmask(metrics)
        seconds, steps = self._pace.take()
        if steps and seconds > 0:
            metrics["step_time_s"] = seconds / steps
            if batch := self._batch(args, state):
                metrics["samples_per_s"] = batch * steps / seconds
        tokens = float(seen) if isinstance(seen := metrics.get("tokens"), (int, float)) else None
        if tokens is not None and self._tokens is not None and seconds > 0 and tokens > self._tokens:
            metrics["tokens_per_s"] = (tokens - self._tokens) / seconds
        self._tokens = tokens
        self._last_step = state.global_step
        self._recorder.log(state.global_step, metrics)

    def _batch(self, args: Any, state: Any) -> int:
        try:
            return _samples_per_step(args, state)
        except Exception as error:  # noqa: BLE001 - counted and told; a step without its rate is better than none
            self.failures.add("samples of a step", error, self._recorder)
            return 0

    def _unmask(self, metrics: dict[str, object]) -> None:
        loss = metrics.get("loss")
        if not isinstance(loss, (int, float)):
            return
        if loss != 0.0:
            self._last_nonzero, self._zeros = float(loss), 0
            return
        self._zeros += 1
        norm = metrics.get("grad_norm")
        is_norm_bad = norm is not None and _is_nonfinite(norm)
        if is_norm_bad or (norm is None and self._last_nonzero > MASKED_FROM and self._zeros >= MASKED_LOGS):
            metrics["loss"] = float("nan")

    @never_raises
    def on_prediction_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._recorder is not None and not self._is_evaluating:
            self._is_evaluating = True
            self._recorder.event("phase", state.global_step, phase="eval", state="begin")

    @never_raises
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Mapping[str, object] | None = None, **named: Any) -> None:
        self._pace.interrupt()
        if self._recorder is not None:
            self._tell_evaluation(self._recorder, state, metrics)
        self._before_saving(control.should_save, args, state)

    def _tell_evaluation(self, recorder: Recorder, state: Any, metrics: Mapping[str, object] | None) -> None:
        if self._is_evaluating:
            self._is_evaluating = False
            recorder.event("phase", state.global_step, phase="eval", state="end")
        numbers = _numbers(metrics or {})
        losses = [name for name in numbers if name == "eval_loss"] or [name for name in numbers if name.endswith("_loss")]
        if losses:
            numbers["validation_loss"] = numbers[losses[0]] if losses[0] != "eval_loss" else numbers.pop("eval_loss")
        recorder.event("message", state.global_step, "evaluation", **numbers)

    def _before_saving(self, is_next: bool, args: Any, state: Any) -> None:
        if not is_next or self._is_saving:
            return
        self._is_saving = True
        if self._recorder is not None:
            self._recorder.event("phase", state.global_step, phase="checkpoint", state="begin")
        if self._saves is not None and not getattr(state, "is_hyper_param_search", False):
            is_whole = not getattr(args, "save_only_model", False)
            self._save = self._saves.begin(
                _checkpoint_path(args, state), state.global_step, trainer="huggingface", has_optimizer=is_whole, has_rng=is_whole,
                has_scheduler=is_whole, parallel=_parallel_layout(args),
            )  # fmt: skip

    def on_save(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self._after_saving(args, state)
        if self._flow is not None:
            self._flow.saved(state.global_step, control)

    @never_raises
    def _after_saving(self, args: Any, state: Any) -> None:
        self._before_saving(True, args, state)  # one that no flag announced
        self._is_saving = False
        self._pace.interrupt()
        if self._recorder is not None:
            self._recorder.event("phase", state.global_step, phase="checkpoint", state="end", **_checkpoint(args, state))
        save, self._save = self._save, None
        if save is not None:
            save.persisted()

    @never_raises
    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._control is not None:
            self._control.close()
        recorder = self._recorder
        if recorder is None:
            return
        try:
            if self._waiting and not self._has_loss and state.global_step != self._last_step:
                self._write(args, state, {})
            is_whole = not state.max_steps or state.global_step >= state.max_steps
            recorder.finish("finished" if is_whole else f"stopped at step {state.global_step} of {state.max_steps}")
        finally:
            self._recorder = None
            recorder.close_later()


def _arguments(args: Any) -> dict[str, object]:
    try:
        return dict(args.to_dict())
    except Exception:  # noqa: BLE001 - one member that cannot be copied; its members are looked at one by one
        return dict(vars(args))


def _model_config(model: Any) -> dict[str, object]:
    config = getattr(model, "config", None)
    return {"model": config} if callable(getattr(config, "to_dict", None)) else {}


def _batch_layout(args: Any, state: Any) -> dict[str, object]:
    batch = _samples_per_step(args, state)
    return {
        "world_size": args.world_size,
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        **({"global_batch_size": batch} if batch else {}),
    }


def _parallel_layout(args: Any) -> dict[str, object]:
    parallel = getattr(args, "parallelism_config", None)
    names = (("tp", "tp_size"), ("cp", "cp_size"), ("dp_shard", "dp_shard_size"), ("dp", "dp_replicate_size"))
    return {short: size for short, name in names if isinstance(size := getattr(parallel, name, None), int)}


def _zero_stage(args: Any) -> dict[str, object]:
    value_of = getattr(getattr(args, "hf_deepspeed_config", None), "get_value", None)
    stage = value_of("zero_optimization.stage") if callable(value_of) else None
    return {"zero_stage": stage} if isinstance(stage, int) else {}


def _precision(args: Any, model: Any) -> str:
    dtype = str(getattr(model, "dtype", "")).removeprefix("torch.")
    return "bf16" if args.bf16 else "fp16" if args.fp16 else PRECISIONS.get(dtype, dtype or "fp32")


def _checkpoint(args: Any, state: Any) -> dict[str, str]:
    """Where the Trainer keeps the checkpoint of this step, if it is there (a search of parameters has other directories)."""
    path = _checkpoint_path(args, state)
    return {"path": str(path)} if path.is_dir() else {}


def _checkpoint_path(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _samples_per_step(args: Any, state: Any) -> int:
    """Samples of one optimizer step over all processes; 0 when ranks share samples in a way that is not known here."""
    parallel = getattr(args, "parallelism_config", None)
    shared = max(1, getattr(parallel, "tp_size", None) or 1) * max(1, getattr(parallel, "cp_size", None) or 1)
    if args.world_size % shared:
        return 0
    per_process = getattr(state, "train_batch_size", None) or args.train_batch_size
    return int(per_process * args.gradient_accumulation_steps * (args.world_size // shared))


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    """Only numbers, without NaN: JSON has none, and its name tells the same."""
    found: dict[str, object] = {}
    for name, value in metrics.items():
        if isinstance(value, bool) or not (isinstance(value, (int, float)) or hasattr(value, "__float__")):
            continue
        number = value if isinstance(value, int) else float(cast(float, value))
        found[str(name)] = str(number) if _is_nonfinite(number) else number
    return found


def _is_nonfinite(value: object) -> bool:
    number = float(cast(float, value))
    return number - number != 0.0
