"""Ways back that people asked for: taken from their files once, refused in words when they cannot be; and what an end leaves to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from trainvitals.checkpoints.files import printable
from trainvitals.clock import Clock
from trainvitals.control import files, supervised
from trainvitals.control.records import ControlRequest
from trainvitals.control.requests import Answer, WatchRequest
from trainvitals.errors import ControlError, InputError
from trainvitals.incidents.amounts import span
from trainvitals.settings import RunSettings
from trainvitals.supervisor.choice import Choice
from trainvitals.supervisor.command import checked_skip
from trainvitals.supervisor.history import History, Start, Wish
from trainvitals.supervisor.loss_memory import LEAST
from trainvitals.supervisor.progress import Progress
from trainvitals.supervisor.recovery import is_level

#: A way back that nobody took for so long was asked of the run as it was then, not as it is now.
STALE_S = 600.0
DAY_S = 86_400.0
#: A clock that was set back by more than this tells nothing of how old a way back is.
CLOCK_SLACK_S = 300.0


def take(
    run: RunSettings, history: History, clock: Clock, look: Callable[[str], Choice], keep: Callable[[Wish], None]
) -> list[tuple[str, str, str]]:
    """(state, sentence, id of the request) of what was taken or refused. ``look`` is ``choice.named`` of a path; what it raises as
    ``InputError`` is a refusal. ``keep`` remembers a wish before its file is taken away."""
    told: list[tuple[str, str, str]] = []
    try:
        names = supervised.waiting(run.dir)
    except OSError as error:
        return [("trouble", f"the requests cannot be read: {error.strerror or error}", "")] if names_matter(error) else []
    wish = history.wish
    for name in names:
        request: WatchRequest | None = None
        try:
            request = supervised.read(run.dir, name)
            if request is None:
                continue
            if wish is None or wish.id != request.id:
                _check_age(run, name, request, clock)
            new = wish if wish is not None and wish.id == request.id else _checked(run, request, clock, look)
        except (InputError, ControlError, OSError) as error:
            told += _answer(run, name, request, "refused", str(error), clock)
            continue
        if wish is None:
            wish = new
            keep(new)
        outcome, sentence = "applied", f"going back to {printable(new.to, 300)}, as {new.by} asked: {new.reason}"
        if new.id != wish.id:
            outcome, sentence = "refused", f"the way back to {printable(wish.to, 300)} that {wish.by} asked for is under way"
        told += _answer(run, name, request, outcome, sentence, clock)
    return told


def is_to_end(run: RunSettings, request: ControlRequest | None) -> bool:
    """The trainer is asked to end and to stay so until a resume: also by a pause, where its own way of control can only park it."""
    return request is not None and (request.desired == "stopped" or (request.desired == "paused" and run.control != "hook"))


def names_matter(error: OSError) -> bool:
    """A directory that nobody made yet holds no request."""
    return not isinstance(error, FileNotFoundError)


def _checked(run: RunSettings, request: WatchRequest, clock: Clock, look: Callable[[str], Choice]) -> Wish:
    """Raises ``InputError`` for what must not be carried out; the trainer goes on then."""
    if request.kind != supervised.ROLLBACK:
        raise InputError(f"The supervisor does not know requests of the kind {request.kind!r}.")
    if request.run and request.run != run.name:
        raise InputError(f"This is the supervisor of {run.name!r}, not of {request.run!r}.")
    to, reason, skip = (request.data.get(key, "") for key in ("to", "reason", "skip_samples"))
    if not isinstance(to, str) or not isinstance(reason, str) or not isinstance(skip, str) or not to or not reason:
        raise InputError("A way back needs the path of a checkpoint and a reason.")
    path = os.path.abspath(to)  # noqa: PTH100 - names of any bytes, as in ``checkpoints``
    if not any(_is_below(path, directory) for directory in run.checkpoints):
        raise InputError(f"{printable(path, 300)} lies in none of the run's checkpoint directories.")
    if skip:
        checked_skip(skip)
    choice = look(path)
    if choice.report is None:
        raise InputError(choice.why)
    return Wish(request.id, request.by, reason[:2_000], path, skip, clock.time_ns())


def _check_age(run: RunSettings, name: str, request: WatchRequest, clock: Clock) -> None:
    """By the file system's clock, as whoever asked may have another one; but none is a day behind, and a copied file looks
    new. Raises ``InputError`` or ``OSError``."""
    directory = supervised.directory_of(run.dir)
    asked_s = (directory / name).lstat().st_mtime
    try:
        now_s = files.file_system_time_s(directory)
    except OSError:  # a full disk takes no file whose time could be looked at
        now_s = clock.time_ns() / 1e9
    issued_s = request.issued_at_ns / 1e9
    if clock.time_ns() / 1e9 - issued_s > DAY_S:
        now_s, asked_s = clock.time_ns() / 1e9, issued_s
    if now_s - asked_s > STALE_S:
        raise InputError(
            f"It was asked {(now_s - asked_s) / 60:,.0f} minutes ago and nobody took it then; the run may have gone on since. Ask again if it "
            "still holds."
        )


def too_old(wish: Wish | None, now_ns: int, within_s: float) -> str:
    """Why a way back that an earlier supervisor took is not carried out any more, as a sentence; "" = it is, or there is none."""
    if wish is None:
        return ""
    age_s = (now_ns - wish.taken_ns) / 1e9
    if wish.taken_ns and -CLOCK_SLACK_S <= age_s <= within_s:
        return ""
    ago = span(age_s) + " ago" if wish.taken_ns and age_s > 0 else "nobody knows when"
    return (
        f"the way back to {printable(wish.to, 300)} that {wish.by} asked for was taken {ago} and never carried out, as the supervisor died; "
        "the run may have gone on since, so it is not carried out now. Ask again if it still holds"
    )


def switched_off(run: RunSettings) -> str:
    """Why a trainer that is started now would end at once, with exit code 0 like one that is finished; "" = it would not."""
    if run.control == "kill_switch" and os.path.exists(run.kill_switch_path):  # noqa: PTH110 - as the trainers look
        return f"the kill switch {run.kill_switch_path} is still there, so the trainer is not started; watch removes it after a resume"
    return ""


def _is_below(path: str, directory: str) -> bool:
    place = os.path.realpath(directory)
    try:
        return os.path.commonpath([os.path.realpath(path), place]) == place and os.path.realpath(path) != place
    except ValueError:
        return False


def _answer(
    run: RunSettings, name: str, request: WatchRequest | None, outcome: str, sentence: str, clock: Clock
) -> list[tuple[str, str, str]]:
    identifier = request.id if request is not None else ""
    try:
        supervised.settle(run.dir, Answer(name, outcome, sentence, clock.time_ns(), request))
    except (ControlError, OSError) as error:
        return [("trouble", f"the request {name} cannot be answered: {error}", identifier)]
    return [("taken" if outcome == "applied" else "refused", sentence, identifier)]


def after_end(history: History, progress: Progress, start: Start) -> History:
    """With the highest step there was, and the curve that a recovery must come back to: that of healthy steps only."""
    peak = max((one for one in (history.peak_step, start.last_step) if one is not None), default=None)
    was_bad = start.kind in ("numerics", "rollback")
    # Of a start that had to be left, what stood after the safe checkpoint is no level to come back to; without one nothing is.
    healthy = (
        progress.memory.until(start.safe_step if start.safe_step is not None else -1) if was_bad else progress.memory.until(None)
    )
    is_usual = len(healthy) >= LEAST and (not history.curve or start.caught_up_ns is not None or history.peak_step is None)
    if is_usual and was_bad and history.curve:  # it may have gone on from weights that were damaged before
        is_usual = is_level(healthy, history.curve)
    rate = progress.rate_beyond(None)
    return replace(
        history,
        peak_step=peak,
        curve=healthy if is_usual else history.curve,
        usual_rate=rate if rate is not None and (is_usual or history.usual_rate is None) else history.usual_rate,
    )
