"""Of one run: its directory, what the trainer writes there, control, its logs and its checkpoints."""

from __future__ import annotations

import glob
import itertools
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.control import files, inbox, read_request, read_status, supervised
from trainvitals.control.request_keys import read_keys
from trainvitals.control.view import SILENT_AFTER_S, describe
from trainvitals.doctor import places
from trainvitals.doctor.check import Checkup, Finding, fault, ok, warning
from trainvitals.doctor.log_format import log_format
from trainvitals.errors import ControlError, InputError
from trainvitals.settings import RunSettings, Settings

#: A log or a hook's file that grew so long ago belongs to a run that stands still or is over.
QUIET_S = 600.0
#: Share of a file system that ought to be free for the next checkpoint, where no checkpoint tells how much one needs.
MIN_FREE = 0.05
MAX_FILES = 10_000
HOOK_FILE = "metrics.rank00000.jsonl"
OWN_WAYS = ("kill_switch", "signal")


def checkups(settings: Settings, run: RunSettings, clock: Clock) -> list[Checkup]:
    """All of one run."""
    looks: dict[str, Callable[[], Iterator[Finding]]] = {
        "run directory": lambda: run_directory(run, clock),
        "hook": lambda: hook(run, clock),
        "control": lambda: control(run, clock),
        "watch": lambda: watch(run, clock),
        "supervisor": lambda: supervisor(run),
        "logs": lambda: logs(run, clock),
        "log format": lambda: log_format(settings, run, clock),
        "checkpoints": lambda: checkpoints(settings, run),
    }
    here = [Checkup(name, run.name, partial(_if_here, run, look)) for name, look in looks.items()]
    return [*here, Checkup("signed requests", run.name, lambda: signed_requests(settings, run))]


def _if_here(run: RunSettings, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A dashboard that asks through the store shares no directory with the run: nothing of it is missing there."""
    if run.control_road == "store" and not Path(run.dir).exists():
        yield ok(f"{run.dir} is not on this host: people ask through the store")
    else:
        yield from look()


def run_directory(run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """Rights, the shared group, root_squash, the umask of what was written, the file system's clock."""
    path = Path(run.dir)
    yield from places.directory(path, "run directory", f"mkdir -p {shlex.quote(run.dir)}, or correct dir in the settings.")
    if not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
        return
    now_s = clock.time_ns() / 1e9
    probed = places.probe(path)
    if probed.error:
        yield warning(
            f"this user may not write into {path}: {probed.error}",
            "watch and supervisor must; for the dashboard alone it is right.",
        )
    yield from places.of_probe(path, probed, now_s)
    hidden, seen, first = places.unreadable_for_group(path)
    if hidden:
        yield warning(
            f"{hidden} of {seen} files in {path} cannot be read by their group ({first}): they were written with a umask of 077",
            "run watch as the trainer's own user, or start the trainer with umask 027.",
        )


def hook(run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """The file that the hook in the trainer writes."""
    path = Path(run.dir) / HOOK_FILE
    try:
        found = path.stat()
    except FileNotFoundError:
        if run.steps_from == "hook" or not run.logs:
            text = f"there is no {path}, and {'steps_from = hook' if run.logs else 'no logs are named'}: no step can be read"
            advice = "put the recorder into the trainer (docs/hook.md), or name logs."
            started = _has_begun(run) or read_status(run.dir) is not None
            yield fault(text, advice) if started else warning(text, f"before the first start it is right; else {advice}")
        else:
            yield ok("none; the steps come from the log")
        return
    if not stat.S_ISREG(found.st_mode):
        yield fault(f"{path} is no regular file: nothing is read from it", "move it away; the hook makes a new one.")
        return
    if not os.access(path, os.R_OK):
        yield fault(
            f"{path} cannot be read by this user", "run watch as the trainer's own user, or start the trainer with umask 027."
        )
        return
    yield _age(f"{path.name}, {found.st_size:,} bytes", clock.time_ns() / 1e9 - found.st_mtime)


def control(run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """The control directory, the trainer's status, and the trainer's own way where one is set."""
    path = files.control_dir(run.dir)
    if run.control in OWN_WAYS:
        yield from _own_way(run)
    if not path.is_dir():
        yield warning(
            f"there is no {path}: nobody can pause this run",
            f"python -m trainvitals control init {shlex.quote(run.dir)} --run {shlex.quote(run.name)} --group GROUP",
        )
        return
    files.check_directory(path)
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & files.DIRECTORY_MODE != files.DIRECTORY_MODE:
        yield warning(
            f"{path} has mode {mode:o}, not {files.DIRECTORY_MODE:o}: another user of the group cannot act",
            f"python -m trainvitals control init {shlex.quote(run.dir)} --group GROUP",
        )
    if not os.access(path, os.W_OK):
        yield warning(
            f"this user may not write into {path}", "for pausing from here: control init --group, and be a member of that group."
        )
    request, status = read_request(run.dir), read_status(run.dir)
    for what, name in (("control.json", request.run), ("control_status.json", status.run if status is not None else "")):
        if name and name != run.name:
            yield fault(f"{what} belongs to the run {name!r}", "give each run a directory of its own.")
    if status is None:
        yield warning(
            "no trainer has reported here: not wired", "put the control client into the training loop: docs/control.md."
        )
        return
    age_s = clock.time_ns() / 1e9 - (path / files.STATUS_FILE).stat().st_mtime
    state = describe(request, status, clock.time_ns(), heartbeat_age_s=max(0.0, age_s), supervisor="")
    if not status.ended and age_s > SILENT_AFTER_S:
        yield warning(
            state.sentence, "look whether the trainer still runs; if it does, its control thread or its file system hangs."
        )
    else:
        yield ok(state.sentence)
    if status.error or status.bad_reads:
        yield warning(f"the trainer says: {status.error or f'{status.bad_reads} unusable reads'}", "see docs/control.md, Rules.")


def _own_way(run: RunSettings) -> Iterator[Finding]:
    if run.control == "kill_switch":
        place = Path(run.kill_switch_path)
        if not place.parent.is_dir() or not os.access(place.parent, os.W_OK | os.X_OK):
            yield fault(f"{place.parent} takes no kill switch from this user", "make it, or correct kill_switch_path.")
        elif place.exists():
            yield warning(f"the kill switch {place} is there: the trainer does not start", "remove it, or resume the run.")
        else:
            yield ok(f"the kill switch would be {place}")
    elif run.signal_pid_file:
        place = Path(run.signal_pid_file)
        if place.is_file() and places.file_system(place).startswith("network") and not _names_a_host(place):
            yield warning(
                f"{place} lies on a file system of several hosts and names none: its number may be another host's process",
                'let the trainer\'s script write the host, too: echo "$PID $(uname -n)"',
            )
        elif place.is_file():
            yield ok(f"SIG{run.signal} to the process in {place}")
        else:
            yield warning(
                f"there is no {place}: nobody would be signalled", "let the trainer's script write its process id there."
            )
    else:
        yield ok(f"SIG{run.signal} to the process that the hook's file names, on its host {os.uname().nodename} only")


def _names_a_host(path: Path) -> bool:
    with path.open("rb") as file:
        return len(file.read(300).split()) > 1


def watch(run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """Is there a watchdog, and does it know what people may ask of it."""
    if not inbox.requests_dir(run.dir).is_dir():
        yield warning(
            "no watchdog has ever looked after this run", f"python -m trainvitals watch --run {shlex.quote(run.name)}, or up."
        )
        return
    known = inbox.watcher_of(run.dir)
    if known is None:
        yield warning("nobody watches this run now", f"python -m trainvitals watch --run {shlex.quote(run.name)}, or up.")
        return
    path = inbox.requests_dir(run.dir) / inbox.WATCHER_FILE
    try:
        now_s = files.file_system_time_s(path.parent)
    except ControlError:  # a user who may only read: the clock of this machine has to do
        now_s = clock.time_ns() / 1e9
    age_s = now_s - path.lstat().st_mtime
    if age_s > inbox.SILENT_AFTER_S:
        text = f"the watchdog (process {known.pid} on {known.host}) was heard of {age_s:.0f} s ago"
        yield fault(text, "look whether it still runs there, and start it again.")
    elif known.run and known.run != run.name:
        yield fault(f"the watchdog here watches {known.run!r}", "give each run a directory of its own.")
    else:
        yield ok(f"process {known.pid} on {known.host}, breaker {known.breaker or run.breaker}")


def supervisor(run: RunSettings) -> Iterator[Finding]:
    """Who starts the trainer again."""
    if not files.control_dir(run.dir).is_dir():
        yield ok("none")
        return
    try:
        known = supervised.supervisor_of(run.dir)
    except ControlError as error:
        yield warning(f"whether one is there cannot be told: {error}", "be a member of the group of the control directory.")
        return
    if known is None:
        yield ok("none: a person starts the trainer again (python -m trainvitals run -- COMMAND)")
    elif known.run and known.run != run.name:
        yield fault(f"the supervisor here runs {known.run!r}", "give each run a directory of its own.")
    else:
        yield ok(f"process {known.pid} on {known.host}")


def logs(run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """Each glob finds files that can be read; the newest one grows."""
    now_s = clock.time_ns() / 1e9
    for pattern in (*run.logs, *run.rank_logs):
        found = [Path(name) for name in itertools.islice(glob.iglob(pattern), MAX_FILES)]  # noqa: PTH207 - absolute patterns
        unreadable = [path for path in found if not os.access(path, os.R_OK) or not path.is_file()]
        if not found:
            yield warning(f"nothing matches {pattern}", "correct logs in the settings; before the first start it is right.")
        elif unreadable:
            yield fault(
                f"{len(unreadable)} of {len(found)} files of {pattern} cannot be read by this user, or are no files ({unreadable[0]})",
                "run watch as the trainer's own user, or let its group read them; correct a glob that finds directories.",
            )
        else:
            newest_s = max(path.stat().st_mtime for path in found)
            yield _age(f"{pattern}, {len(found)} files", now_s - newest_s)
    if not run.logs:
        yield ok("none named")


def signed_requests(settings: Settings, run: RunSettings) -> Iterator[Finding]:
    """Whether this host has the key that a run on another host needs. Whether both hosts have the same one no host can see."""
    if run.control_road != "store":
        yield ok("not needed: people ask in the run directory")
        return
    try:
        keys = read_keys([settings.resolve(path) for path in settings.requests.key_files])
    except InputError as error:
        yield fault(str(error), "put the same secret on the dashboard's host and on the run's (docs/control.md).")
        return
    yield ok(f"{len(keys)} key{'s' if len(keys) > 1 else ''}; the first one signs")


def checkpoints(settings: Settings, run: RunSettings) -> Iterator[Finding]:
    """Readable, with room for another one, and on a file system where the safe one can be kept by a second name."""
    if not run.checkpoints:
        yield warning("no checkpoint directory is named: no checkpoint is verified or kept", "name checkpoints in [[runs]].")
    for name in run.checkpoints:
        path = Path(name)
        if not path.exists() and not _has_begun(run):
            yield warning(
                f"there is no checkpoint directory {path}",
                "correct checkpoints in the settings; before the first start it is right.",
            )
            continue
        yield from places.directory(
            path, "checkpoint directory", "correct checkpoints in the settings, or wait for the first one."
        )
        if not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
            continue
        told = os.statvfs(path)
        free, total = told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize
        if total and free < MIN_FREE * total:
            yield warning(
                f"{free:,} of {total:,} bytes are free in {path}",
                "make room: a checkpoint that is not written is the night's work.",
            )
        else:
            yield ok(f"{free / 2**30:,.1f} GiB free in {path}")
        if told.f_files and told.f_favail < 1_000:
            yield warning(
                f"{told.f_favail:,} inodes are free in {path}", "remove small files: a sharded checkpoint makes thousands."
            )
        probed = places.probe(path)
        if settings.watch.pin_safe_checkpoint and probed.error:
            yield warning(
                f"this user may not write into {path} ({probed.error}): the safe checkpoint cannot be kept from deletion",
                "let watch write there, or set pin_safe_checkpoint = false.",
            )
        elif settings.watch.pin_safe_checkpoint and not probed.has_link:
            yield warning(
                f"{path} makes no hard links: the safe checkpoint is copied to be kept",
                "see that there is room for a copy (pin_copy_max_bytes).",
            )


def _has_begun(run: RunSettings) -> bool:
    """Something of a start lies there."""
    is_logged = any(next(glob.iglob(pattern), None) is not None for pattern in run.logs)  # noqa: PTH207 - absolute patterns
    return is_logged or (Path(run.dir) / HOOK_FILE).exists()


def _age(what: str, age_s: float) -> Finding:
    if age_s > QUIET_S:
        return warning(f"{what}: not written for {age_s / 60:,.0f} min", "if the run is not over: look at the trainer.")
    return ok(f"{what}, written {max(0.0, age_s):.0f} s ago")
