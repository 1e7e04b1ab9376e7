"""The saves of one rank: each is told as it goes, and gets its manifest.

What may take a while happens in one thread of low priority (``save_worker``). Nothing raises into the trainer, and nothing but
``wait`` and ``close`` makes it wait.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import itertools
import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

from trainvitals.clock import Clock, SystemClock
from trainvitals.hook import encode
from trainvitals.hook.checkpoint_files import MAX_FILES
from trainvitals.hook.durable import remove
from trainvitals.hook.hashing import Algorithm, best
from trainvitals.hook.manifest_job import ManifestJob
from trainvitals.hook.save import Save
from trainvitals.hook.save_jobs import CopyJob, ResumeJob
from trainvitals.hook.save_worker import CLOSE_WAIT_S, SaveWorker, wait_at_exit_s
from trainvitals.manifest import NAME, RANK_NAME, Manifest, Timing, beside, rank_name
from trainvitals.masking import mask_json, mask_text

#: What tells one launch of a job from the next, on all ranks alike.
_LAUNCH = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_TEXTS = ("trainer", "format", "keep", "git", "config_sha256", "script_sha256")
_HASH = re.compile(r"[0-9a-f]{7,128}(?:-dirty)?", re.ASCII)
_NUMBERS = ("loss", "loss_ema", "lr", "grad_norm")
_FLAGS = ("has_optimizer", "has_rng", "has_data_position", "has_scheduler")
_live: weakref.WeakSet[Saves] = weakref.WeakSet()


class Emit(Protocol):
    """Writes an event of the hook's file."""

    def __call__(self, kind: object, step: object, text: object, data: Mapping[str, object], /) -> None: ...


class Facts(Protocol):
    """What the recorder knows: members of ``Manifest`` by name, numbers as they were at that step."""

    def __call__(self, step: int | None = None, /) -> Mapping[str, Any]: ...


def _nothing(step: int | None = None, /) -> Mapping[str, Any]:
    return {}


def _silent(kind: object, step: object, text: object, data: Mapping[str, object], /) -> None:
    """A rank without a file of its own; rank 0 tells when its part does not come."""


class Guard:
    """A block that no ``Exception`` leaves; ``fail`` takes a sentence about it. KeyboardInterrupt passes through."""

    def __init__(self, fail: Callable[[str], None], where: str) -> None:
        self._fail, self._where = fail, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        with contextlib.suppress(Exception):  # an exception whose text raises
            self._fail(f"{self._where}: {type(error).__name__}: {error}")
        return True


class Saves:
    """The saves of one rank. emit: writes events (rank 0's tell of the save, the others' only of failures); fail: counts one."""

    def __init__(
        self,
        run: str,
        rank: int = 0,
        world_size: int = 1,
        emit: Emit = _silent,
        fail: Callable[[str], None] = lambda reason: None,
        facts: Facts = _nothing,
        clock: Clock | None = None,
    ) -> None:
        self._run, self._rank, self._world_size = run, rank, world_size
        self._emit, self._fail, self._facts = emit, fail, facts
        self._clock: Clock = clock or SystemClock()
        self._algorithm: Algorithm | None = None
        self._worker = SaveWorker(fail)
        self._open: list[Save] = []
        self._resumed_from: Mapping[str, Any] = {}
        self._is_closed = False
        self.errors = 0
        _live.add(self)

    def begin(
        self,
        path: object,
        step: object = None,
        *,
        ranks: int | None = None,
        files: Iterable[str | bytes | os.PathLike[str]] | None = None,
        is_async: bool = False,
        parallel: object = None,
        on_unblocked: Callable[[], None] = lambda: None,
        **members: Any,
    ) -> Save:
        """Call it before the first byte is written: a manifest of an earlier save of this checkpoint goes away here.

        ranks: how many take part, each calling this (default: all). files: those that this rank writes, where their names do not
        tell. members: of ``Manifest``. A path that is none, or a URL, gives a save of which only times are told.
        """
        save = Save(self, "", None, 1, False, on_unblocked)
        with self.guard("saving"):
            place = _absolute(path)
            if self._algorithm is None:
                self._algorithm = best()
            if isinstance(path, str) and "://" in path:
                place = path
            number = None if step is None else encode.step_number(step)
            taking = max(1, int(ranks)) if ranks is not None else self._world_size
            save = Save(self, place, number, taking, bool(is_async), on_unblocked)
            save.members = self._checked({**members, "parallel": parallel})
            save.facts = self._checked(self._facts(number))
            if files is not None:
                save.given = tuple(os.fsdecode(file) for file in itertools.islice(files, MAX_FILES))
            self._open = [*(one for one in self._open if not one.has_ended), save]
            with self.guard("the manifest of an earlier save cannot be removed"):
                self._forget_earlier(save)
            self.tell(save, "begun", "", {"is_async": save.is_async, "ranks": taking})
        return save

    def _checked(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Those that were said and can be used; the others are counted, and the checkpoint gets its manifest without them."""
        found: dict[str, Any] = {}
        for name, value in members.items():
            with self.guard("saving"):
                if (usable := _usable(name, value)) is not None:
                    found[name] = usable
        return found

    def _forget_earlier(self, save: Save) -> None:
        """No manifest may speak of files that are about to be replaced. (The trainer is about to write there itself.)"""
        if "://" in save.path:
            return
        for job in self._worker.jobs_of(save.path):
            if isinstance(job, ManifestJob):
                job.is_cancelled = True
        remove(beside(save.path))
        if self._rank == 0:
            _remove_orphans(os.path.dirname(save.path))  # noqa: PTH120
        if not os.path.isdir(save.path):  # noqa: PTH112
            return
        remove(os.path.join(save.path, NAME))  # noqa: PTH118
        remove(os.path.join(save.path, rank_name(self._rank)))  # noqa: PTH118
        if self._rank == 0:  # a larger world may have been here
            for name in os.listdir(save.path):  # noqa: PTH208
                found = RANK_NAME.match(name)
                if found and (int(found[1]) >= save.ranks or save.ranks == 1):
                    remove(os.path.join(save.path, name))  # noqa: PTH118

    def hash(self, save: Save) -> ManifestJob | None:
        """Begin what follows a save that is persisted."""
        assert self._algorithm is not None
        if "://" in save.path or self._is_closed or self._rank >= save.ranks:
            return None
        if save.step is None:
            raise TypeError("a save without its step gets no manifest")
        save_id = self._save_id(save)

        def tell(state: str, text: str, data: Mapping[str, object]) -> None:
            if not data.get("is_written", True):
                self.failed(f"{save.path}: {text}")
            self.tell(save, state, text, data, any_rank=state == "manifest")

        job = ManifestJob(
            save.path, self._rank, save.ranks, self._algorithm, lambda: self._template(save), save_id, save.given, tell
        )
        self._worker.put(job)
        return job

    def _save_id(self, save: Save) -> str:
        parts = [str(save.step), os.path.basename(save.path), *(os.environ.get(name, "") for name in _LAUNCH)]  # noqa: PTH119
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def _template(self, save: Save) -> Manifest:
        timing = save.timing()
        # A step may be recorded, and a start described, after its save began. The data position is that of the begin.
        late = self._checked({name: value for name, value in self._facts(save.step).items() if name != "data_position"})
        return Manifest(
            **{"run": self._run, "attempt": None, "step": save.step, "algorithm": "", "files": ()}
            | {
                "created": datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC).isoformat(),
                "resumed_from": self._resumed_from,
            }
            | {"world_size": self._world_size if save.ranks == self._world_size else None, "ranks": tuple(range(save.ranks))}
            | {"timing": Timing(timing["staged_s"], timing["persisted_s"], timing["blocked_s"], save.is_async)}
            | _masked({**save.facts, **late, **save.members})
        )

    def tell(self, save: Save, state: str, text: str, data: Mapping[str, object], *, any_rank: bool = False) -> None:
        """One event of kind ``save``."""
        if self._rank and not (any_rank and state in ("failed", "manifest")):
            return
        more = {name: round(value, 6) if isinstance(value, float) else value for name, value in data.items() if value is not None}
        if self._rank:
            more["rank"] = self._rank
        self._emit("save", save.step, text, {"state": state, "path": shown(save.path)} | more)

    def deleted(self, path: object, step: object = None) -> None:
        """A checkpoint is about to be deleted, or was: nothing is read or written there any more."""
        with self.guard("deleted"):
            place = _absolute(path)
            for job in self._worker.jobs_of(place):
                if isinstance(job, ManifestJob):
                    job.is_cancelled = True
            self._worker.look_again()
            if self._rank == 0:
                self._emit("save", step, "", {"state": "deleted", "path": shown(place)})

    def copied(self, local: object, shared: object, seconds: object = None) -> CopyJob | None:
        """A checkpoint was copied to the file system that counts: compare it with the manifest of its source, in the thread."""
        with self.guard("copied"):
            places = [_absolute(local), _absolute(shared)]
            best()
            took_s = None if seconds is None else float(seconds)  # type: ignore[arg-type]
            job = CopyJob(places[0], places[1], took_s, lambda: bool(self._worker.jobs_of(places[0])), self._told)
            self._worker.put(job)
            return job
        return None

    def resumed(self, step: object, path: object) -> ResumeJob | None:
        """Compare this start with the manifest of the checkpoint it goes on from, in the thread."""
        with self.guard("resumed"):
            place = _absolute(path)
            number = encode.step_number(step)
            self._resumed_from = {"step": number, "path": shown(place)}
            job = ResumeJob(place, number, self._facts, self._know_origin, self._told)
            self._worker.put(job)
            return job
        return None

    def _know_origin(self, manifest_sha256: str) -> None:
        self._resumed_from = {**self._resumed_from, "manifest_sha256": manifest_sha256}

    def _told(self, kind: str, step: int | None, text: str, data: Mapping[str, object]) -> None:
        if self._rank == 0:
            self._emit(kind, step, text, data)

    def now_s(self) -> float:
        """Monotonic."""
        return self._clock.monotonic_s()

    def guard(self, where: str) -> Guard:
        """Nothing that happens in the block leaves it; it is counted and told."""
        return Guard(self.failed, where)

    def failed(self, reason: str) -> None:
        """Count what went wrong, and tell."""
        self.errors += 1
        self._fail(reason)

    @property
    def is_busy(self) -> bool:
        """Something is saved, hashed or compared just now."""
        return self._worker.is_busy or any(not save.has_ended for save in self._open)

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Say which saves were never finished, and wait, at most so long, for manifests that are under way."""
        if self._is_closed:
            return
        with self.guard("close"):
            for save in self._open:
                save.settle()
                if not save.has_ended:
                    save.failed("it was not finished when the trainer ended")
            self._worker.close(timeout_s)
        self._is_closed = True

    def after_fork(self) -> None:
        """A forked child saves nothing that its parent began."""
        self._open = []
        self._worker.after_fork()


def _remove_orphans(directory: str) -> None:
    """Manifests beside files that a trainer deleted: it knows nothing of them."""
    if not os.path.isdir(directory):  # noqa: PTH112
        return
    names = frozenset(os.listdir(directory))  # noqa: PTH208
    for name in names:
        if name.endswith(f".{NAME}") and name.removesuffix(f".{NAME}") not in names:
            remove(os.path.join(directory, name))  # noqa: PTH118


def shown(path: str) -> str:
    """As checkpoints are named in the store: bytes that are no UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _absolute(path: object) -> str:
    """Raises ``TypeError`` for what is no path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"a path is needed, not {type(path).__name__}")
    name = os.fsdecode(path)
    if not name:
        # It would stand for the current directory, and all that is in it.
        raise TypeError("a path is needed, not an empty text: is a variable not set?")
    return os.path.abspath(name)  # noqa: PTH100 - names may hold any byte


def _usable(name: str, value: Any) -> Any:
    """A member of the manifest in its type, None = not said; raises what the value raises, ``TypeError`` for an unknown name."""
    if value is None:
        return None
    if name in _FLAGS:
        return value if isinstance(value, bool) else None
    if name in _TEXTS:
        return str(value)[:200]
    if name in _NUMBERS:
        number = encode.number(value)
        return float(number) if number is not None and abs(number) < 1e308 else None
    if name == "tokens":
        return encode.step_number(value)
    if name in ("parallel", "data_position") and isinstance(value, Mapping):
        found = json.loads(encode.data(value))
        return {key[:20]: size for key, size in found.items() if isinstance(size, int)} if name == "parallel" else found
    raise TypeError(f"saving() takes no {name!r} of this kind")


def _masked(members: dict[str, Any]) -> dict[str, Any]:
    """Without secrets: the manifest travels with the weights, also to where the run's own files never go."""
    safe: dict[str, Any] = {
        name: mask_text(value) for name, value in members.items() if name in _TEXTS and not _HASH.fullmatch(value)
    }
    if "data_position" in members:
        safe["data_position"] = mask_json(members["data_position"])
    return members | safe


def _close_all() -> None:
    for saves in list(_live):
        saves.close(wait_at_exit_s())


def _after_fork_all() -> None:
    for saves in list(_live):
        with contextlib.suppress(Exception):  # a child without manifests is better than a child that dies
            saves.after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_all)
