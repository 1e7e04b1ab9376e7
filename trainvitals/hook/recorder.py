"""The recorder: one line per training step and event, from inside the trainer, that nothing can turn into an exception.

    with Recorder("/shared/runs/llama-70b", run="llama-70b") as recorder:
        for step in range(start, steps):
            ...
            recorder.log(step, loss=loss, grad_norm=grad_norm, lr=lr)

Hand over numbers that the trainer has on the host already. ``.item()`` on a device tensor waits for the device; a callable
without arguments is evaluated by the writer's thread in ``queued`` mode instead.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from trainvitals import __version__
from trainvitals.clock import Clock, SystemClock
from trainvitals.hook import encode
from trainvitals.hook.appender import Appender
from trainvitals.hook.filesystem import can_hang
from trainvitals.hook.known import Known
from trainvitals.hook.metadata import MetadataWriter
from trainvitals.hook.process import pid_namespace
from trainvitals.hook.queue import QueuedWriter
from trainvitals.hook.save import Save
from trainvitals.hook.save_worker import CLOSE_WAIT_S, FAILED_WAIT_S, wait_at_exit_s
from trainvitals.hook.saves import Saves
from trainvitals.hook.surroundings import job_id

SCHEMA = 1
LOCAL_DIR_VARIABLE = "TRAINVITALS_LOCAL_DIR"
WARN_EVERY_S = 60.0
MAX_METRICS = 10_000
_live: weakref.WeakSet[Recorder] = weakref.WeakSet()
_closing_later: set[Recorder] = set()


class Recorder:
    """Appends to ``metrics.rank00000.jsonl`` in ``run_dir`` (or in ``$TRAINVITALS_LOCAL_DIR``).

    writer: ``direct`` = one write per record, nothing is lost on kill -9, blocks while the disk blocks; ``queued`` = a
    bounded queue and a thread; ``auto`` = direct on local file systems, queued on network and FUSE ones.
    Nothing raises. ``lost``: records that did not reach the file; ``errors``: failures met; ``skipped``: values that were
    None or boolean. Safe from several threads. A forked child writes ``metrics.rank00000.pid1234.jsonl``.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        rank: int = 0,
        world_size: int = 1,
        writer: str = "auto",
        clock: Clock | None = None,
    ) -> None:
        self.skipped = 0
        self.last_step: int | None = None
        self._clock: Clock = clock or SystemClock()
        self._time_ns = self._clock.time_ns
        self._run = run
        self._rank = encode.step_number(rank) or 0
        self._world_size = encode.step_number(world_size) or 1
        self._directory = ""
        self._closed = False
        self._finished = False
        self._warned_s = -WARN_EVERY_S
        self._pid = os.getpid()
        self._started_ns = 0
        self._queue: QueuedWriter | None = None
        self._appender = Appender("", self._header)
        self._known = Known()
        self._metadata = MetadataWriter(self._tell_metadata, self._failed)
        self._saves = Saves(
            run if isinstance(run, str) else "",
            self._rank,
            self._world_size,
            emit=self._event,
            fail=self._failed,
            facts=self._known.facts,
            clock=self._clock,
        )
        try:
            self._started_ns = self._time_ns()
            place = os.environ.get(LOCAL_DIR_VARIABLE) or os.fspath(run_dir)
            self._directory = str(Path(os.fsdecode(place)).absolute())
            self._appender.path = self._path()
            self.mode = writer if writer in ("direct", "queued") else "queued" if can_hang(self._directory) else "direct"
            if writer not in ("auto", "direct", "queued"):
                self._failed(f"writer must be auto, direct or queued, not {encode.text(writer)}; using {self.mode}")
            if self.mode == "queued":
                self._queue = QueuedWriter(self._appender, self._time_ns, on_loss=self._warn)
                self._queue.start()
            elif not self._appender.open(self._started_ns):
                self._warn()
        except Exception as error:  # noqa: BLE001 - a wrong argument must not end a training run; counted and warned of
            self.mode = "direct"
            self._failed(f"{type(error).__name__}: {error}")
        _live.add(self)

    @property
    def path(self) -> str:
        """The file this process writes."""
        return self._appender.path

    @property
    def lost(self) -> int:
        """Records that did not reach the file."""
        return self._appender.lost

    @property
    def errors(self) -> int:
        """Failures met: values that are no numbers, and what the disk said."""
        return self._appender.errors

    @property
    def saves(self) -> Saves:
        """What ``saving`` uses, without its phase events."""
        return self._saves

    def log(self, step: object = None, /, *mappings: object, **metrics: object) -> None:
        """One training step: ``log(12, loss=2.1, lr=3e-4)`` or ``log(12, {"loss": 2.1})``.

        Values: numbers, or callables without arguments. NaN and infinities are welcome; None and booleans are skipped.
        """
        try:
            if mappings or step is None:
                step, metrics = _gathered(step, mappings, metrics)
            number = step if type(step) is int and -encode.MAX_STEP <= step <= encode.MAX_STEP else encode.step_number(step)
            if number is None or self._closed:
                self._failed("a step that is no number" if number is None else "log() after close()", lost=1)
                return
            self.last_step = number
            now_ns = self._time_ns()
            queue = self._queue
            if queue is not None:
                for value in metrics.values():
                    if type(value) is not float and type(value) is not int:
                        metrics = encode.resolve(metrics)
                        break
                queue.put(partial(self._step_line, number, now_ns, metrics))
                self._known.step(number, metrics, metrics)
                return
            line = self._step_line(number, now_ns, metrics)
            self._known.step(number, metrics, line)
            if not self._appender.write(line, now_ns):
                self._warn()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and warned of
            self._failed(f"{type(error).__name__}: {error}", lost=1)

    def event(self, kind: str | None = None, /, step: object = None, text: str = "", **data: object) -> None:
        """Something that happened; kinds: ``trainvitals.records.EVENT_KINDS``. ``data``: what JSON can hold."""
        self._event(data.pop("kind", "message") if kind is None else kind, step, text, data)

    def data(
        self,
        step: object = None,
        source: object = None,
        shards: object = None,
        sample_first: object = None,
        sample_last: object = None,
        **more: object,
    ) -> None:
        """Data position: which source, shards and samples this step read; what on-call checks first."""
        named = {"source": source, "shards": shards, "sample_first": sample_first, "sample_last": sample_last}
        position = {name: value for name, value in named.items() if value is not None} | more
        self._known.position = position
        self._event("data", step, "", position)

    def describe(
        self, config: object = None, *, layout: object = None, ranks: object = None, script: object = None, **facts: object
    ) -> None:
        """What this start is made of; call it once before the first step. A later call replaces the sections that it gives.

        config: any mapping, dataclass, argparse or ``TrainingArguments``; secrets are masked. layout: tp, pp, dp, cp, ep, batch
        sizes. ranks: mappings with rank, host, local_rank, gpu_uuid. script: the trainer's file (default: ``sys.argv[0]``).
        facts: precision, max_grad_norm, tokens_per_step, peak_flops_per_gpu and the like. Script, git, packages, software,
        environment and job are looked up in a thread. Nothing raises and nothing waits; the hook's file is all that is written.
        """
        try:
            if self._closed:
                self._failed("describe() after close()", lost=1)
                return
            self._metadata.describe(config, layout, ranks, script, facts, self._world_size)
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and warned of
            self._failed(f"describe: {type(error).__name__}: {error}")

    def resumed(self, step: object = None, **data: object) -> None:
        """Training continues from the checkpoint of this step; call it once, before the first step.

        path: of the checkpoint (``checkpoint`` is taken too). If it has a manifest, a ``message`` event with ``resume_check``
        follows: whether step, config, script and files are as they were, and the loss of then. A thread looks; nothing waits.
        """
        self._event("resume", step, "", data)
        path = data.get("checkpoint") if data.get("path") is None else data["path"]
        if path is not None and not self._closed:
            self._saves.resumed(step, path)

    def saving(self, path: object, step: object = None, *, is_async: bool = False, **facts: Any) -> Save:
        """A save begins; call it before the first byte is written, on every rank that writes. Use it as a context manager.

            with recorder.saving(path, step, has_optimizer=True, has_rng=True):
                torch.save(state, path)

        Leaving the block means that this rank's files are on the disk; with ``is_async`` only that training goes on: then
        ``save.follow(future)``, or ``save.staged()`` and later, from any thread, ``save.persisted()``. A thread then hashes the
        files and writes ``ckpt_manifest.json``. ranks: how many take part (default: all of the run's). files: those that this rank
        writes, where their names do not tell. facts: has_optimizer, has_rng, has_data_position, has_scheduler, trainer, format,
        parallel, keep. Nothing raises, and the loop never waits for a hash or for another rank.
        """
        if self._closed:
            self._failed("saving() after close()")
        self.phase("checkpoint")
        when = self.last_step if step is None else step
        ends = partial(self.phase, "checkpoint", "end")
        return self._saves.begin(path, when, is_async=is_async, on_unblocked=ends, **facts)

    def deleted(self, path: object) -> None:
        """This checkpoint is about to be deleted: nothing of ours is written there any more."""
        self._saves.deleted(path, self.last_step)

    def copied(self, local: object, shared: object, seconds: object = None) -> None:
        """A checkpoint was copied to the shared file system; a thread compares it with the manifest of its source. A ``save``
        event of the copy tells: persisted, with ``copy_of``, or failed. seconds: how long the copy took."""
        self._saves.copied(local, shared, seconds)

    def phase(self, name: str, state: str = "begin") -> None:
        """``start``, ``train``, ``eval``, ``checkpoint``, ``paused`` or ``finished``; state: ``begin`` or ``end``."""
        self._event("phase", self.last_step, "", {"phase": name, "state": state})

    def finish(self, reason: str = "finished") -> None:
        """This start of the trainer ends, and why. Written once."""
        if not self._finished:
            self._finished = True
            totals = {"reason": reason, "last_step": self.last_step, "skipped": self.skipped}
            self._event("attempt_end", self.last_step, "", totals)

    def flush(self, timeout_s: float = 5.0) -> None:
        """In ``queued`` mode wait, at most so long, until what was logged before is written."""
        if self._queue is not None:
            self._queue.flush(timeout_s)

    def close(self) -> None:
        """Write what waits and give the file back; later calls are counted as lost."""
        if self._closed:
            return
        self._saves.close()
        try:
            self._metadata.close()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and warned of
            self._failed(f"{type(error).__name__}: {error}")
        self._closed = True
        try:
            if self._queue is not None:
                self._queue.close()
            else:
                self._appender.close()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and warned of
            self._failed(f"{type(error).__name__}: {error}")

    def close_later(self) -> None:
        """Close now, or, while a checkpoint is hashed, at the end of the process: nothing is waited for here. Ranks that leave at
        different times upset torch.distributed (seen with gloo: the first one aborts at its end)."""
        if self._saves.is_busy:
            _closing_later.add(self)
        else:
            self.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._saves.close(CLOSE_WAIT_S if self.end(kind, error) else FAILED_WAIT_S)
        self.close()

    def end(self, kind: type[BaseException] | None, error: BaseException | None) -> bool:
        """``finish`` with what left a ``with`` block; whether that was planned."""
        is_planned = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        self.finish("finished" if is_planned or kind is None else f"exception: {kind.__name__}")
        return is_planned

    def _tell_metadata(self, data: Mapping[str, object]) -> None:
        self._known.metadata(data)
        self._event("metadata", None, "", data)

    def _event(self, kind: object, step: object, text: object, data: Mapping[str, object]) -> None:
        try:
            if self._closed:
                self._failed("event() after close()", lost=1)
                return
            now_ns = self._time_ns()
            number = None if step is None else encode.step_number(step)
            if step is not None and number is None:
                self._failed("an event's step that is no number")
            line = (
                f'{{"type":"event","kind":{encode.text(kind)},"time_ns":{now_ns},'
                f'"step":{"null" if number is None else number},"text":{encode.text(text)},"data":{encode.data(data)}}}\n'
            )
            if self._queue is not None:
                self._queue.put(lambda: line)
            elif not self._appender.write(line, now_ns):
                self._warn()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and warned of
            self._failed(f"{type(error).__name__}: {error}", lost=1)

    def _step_line(self, step: int, now_ns: int, metrics: Mapping[str, object]) -> str:
        values, (skipped, errors) = encode.values(metrics)
        if skipped or errors:
            self.skipped += skipped
            if errors:
                self._failed("a value that is no number", errors=errors)
        return f'{{"type":"step","step":{step},"time_ns":{now_ns},{values}}}\n'

    def _header(self) -> str:
        job = job_id(os.environ)
        job_field = f',"job":{encode.text(job)}' if job else ""
        return (
            f'{{"type":"header","schema":{SCHEMA},"run":{encode.text(self._run)},"pid":{self._pid},'
            f'"host":{encode.text(os.uname().nodename)},"started_ns":{self._started_ns},"rank":{self._rank},'
            f'"world_size":{self._world_size},"hook_version":{encode.text(__version__)},'
            f'"pid_namespace":{encode.text(pid_namespace())}{job_field}}}\n'
        )

    def _path(self, child: bool = False) -> str:
        name = f"metrics.rank{self._rank:05d}{f'.pid{self._pid}' if child else ''}.jsonl"
        return str(Path(self._directory) / name)

    def _failed(self, reason: str, lost: int = 0, errors: int = 1) -> None:
        self._appender.count(lost=lost, errors=errors, reason=reason)
        self._warn()

    def _warn(self) -> None:
        """At most one line a minute on stderr; a closed stderr is no reason to fail."""
        try:
            now_s = self._clock.monotonic_s()
            if now_s - self._warned_s < WARN_EVERY_S:
                return
            self._warned_s = now_s
            print(  # noqa: T201 - the trainer's own log is where people look first
                f"trainvitals hook: {self.lost} records lost, {self.errors} errors so far in {self.path or 'no file'}; last: "
                f"{self._appender.last_error[:300]}. Training goes on.",
                file=sys.stderr,
            )
        except Exception:  # noqa: BLE001 - stderr is gone; the counters in the file still tell
            self._appender.count(errors=1)

    def _after_fork(self) -> None:
        self._pid = os.getpid()
        self._started_ns = self._time_ns()
        self._finished = False
        self._metadata.after_fork()
        self._saves.after_fork()
        self._appender.after_fork(self._path(child=True))
        if self._queue is not None:
            self._queue.after_fork()


def _gathered(step: object, mappings: tuple[object, ...], metrics: dict[str, object]) -> tuple[object, dict[str, object]]:
    """Other spellings: ``log(step=12, loss=…)`` and ``log(12, {"loss": …})``; raises ``TypeError`` for what is neither."""
    gathered: dict[str, object] = {}
    for mapping in mappings:
        if not isinstance(mapping, Mapping):
            raise TypeError(f"log() takes numbers by name or mappings, not {type(mapping).__name__}")
        if type(mapping) is dict:
            gathered.update(mapping)
        else:  # a class of somebody's own may have no end
            gathered |= {name: mapping[name] for name in itertools.islice(mapping, MAX_METRICS + 1)}
        if len(gathered) > MAX_METRICS:
            raise TypeError(f"log() takes at most {MAX_METRICS:,} numbers at once")
    gathered.update(metrics)
    if step is None:
        step = gathered.pop("step", None)
    return step, gathered


def _close_all() -> None:
    for recorder in list(_live):
        recorder._saves.close(wait_at_exit_s())
        recorder.close()


def _after_fork_all() -> None:
    for recorder in list(_live):
        with contextlib.suppress(Exception):  # a child without records is better than a child that dies
            recorder._after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_all)
