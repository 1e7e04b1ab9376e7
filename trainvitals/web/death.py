"""What the ends of a dead run's logs say, out of its ``postmortem`` event: one sentence for the verdict, a few lines for the incident."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainvitals.incidents.verdict import HUNG_RULES, STOPPED_RULES, Verdict, VerdictWord
from trainvitals.records import Event, Finding, Incident
from trainvitals.settings import RunSettings
from trainvitals.web import format as fmt

#: Reading and keeping the ends takes 45 s at most; nothing by then means that nobody reads.
READING_NS = 90 * 10**9
#: Steps that were written before a death and read after it.
LATE_STEPS_NS = 60 * 10**9
SHOWN_RANKS = 16
#: A hang is told with a death this near to it.
HANG_RULES = HUNG_RULES | {"out_of_memory"}
NEAR_NS = 30 * 60 * 10**9


@dataclass(frozen=True)
class Death:
    """One post-mortem. cause_name is empty when no cause was found. victims: class -> how often told, most often first."""

    attempt: int
    at_ns: int | None
    cause_name: str = ""
    cause_class: str = ""
    text: str = ""
    host: str = ""
    rank: int | None = None
    place: str = ""
    cause_ns: int | None = None
    file: str = ""
    suspects: tuple[int, ...] = ()
    victims: tuple[tuple[str, int], ...] = ()
    followers: int = 0
    read: int = 0
    unreadable: int = 0
    skipped: int = 0
    left: int = 0
    seconds: float | None = None
    troubles: tuple[str, ...] = ()
    tails: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a told thing. value: what is shown first; full: all of it, when that is more. is_verbatim: text of a log."""

    label: str
    value: str
    full: str = ""
    is_verbatim: bool = False
    tone: str = ""


def death_of(event: Event) -> Death:
    """The post-mortem that an event carries. A part that is not of its kind is left out, so that the rest is still told."""
    data = event.data
    cause = data.get("cause")
    cause = cause if isinstance(cause, Mapping) else {}
    files = data.get("files")
    files = files if isinstance(files, Mapping) else {}
    victims = data.get("victims")
    told = {str(name): _count(n) for name, n in victims.items()} if isinstance(victims, Mapping) else {}
    seconds = files.get("seconds")
    return Death(
        attempt=_count(data.get("attempt") if event.attempt is None else event.attempt), at_ns=event.time_ns,
        cause_name=_text(cause.get("name") or cause.get("class")), cause_class=_text(cause.get("class")), text=_text(cause.get("text")),
        host=_text(cause.get("host")), rank=_whole(cause.get("rank")), place=_text(cause.get("place")),
        cause_ns=_time(cause.get("time_ns")), file=_text(cause.get("file")),
        suspects=tuple(rank for rank in map(_whole, _list(data.get("suspects"))) if rank is not None),
        victims=tuple(sorted(((name, n) for name, n in told.items() if n), key=lambda one: (-one[1], one[0]))),
        followers=_count(data.get("followers")), read=_count(files.get("read")), unreadable=_count(files.get("unreadable")),
        skipped=_count(files.get("skipped")), left=_count(files.get("left")),
        seconds=float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None,
        troubles=tuple(str(trouble) for trouble in _list(files.get("troubles"))), tails=_text(data.get("tails")),
    )  # fmt: skip


def newest_death(events: Sequence[Event], attempt: int, last_step_ns: int | None = None) -> Death | None:
    """The newest post-mortem of an attempt, None when there is none, or when the attempt went on after it."""
    told = [
        event
        for event in events
        if event.kind == "postmortem"
        and event.attempt == attempt
        and (last_step_ns is None or last_step_ns <= (event.time_ns or 0) + LATE_STEPS_NS)
    ]
    return death_of(max(told, key=lambda event: event.time_ns or 0)) if told else None


def death_near(events: Sequence[Event], incident: Incident, findings: Sequence[Finding]) -> Death | None:
    """The post-mortem that belongs to an incident: of the attempt that died, or of a hang's attempt when it died within half an
    hour. A broken checkpoint or a jump of the loss has a story of its own."""
    rules = set(incident.rules)
    attempts = {finding.attempt for finding in findings}
    found = [
        event
        for event in events
        if event.kind == "postmortem"
        and event.attempt in attempts
        and (rules & STOPPED_RULES or (rules & HANG_RULES and abs((event.time_ns or 0) - incident.opened_at_ns) <= NEAR_NS))
    ]
    return death_of(max(found, key=lambda event: event.time_ns or 0)) if found else None


def sentence(death: Death, zone: str) -> str:
    """``CUDA out of memory on node17 rank 12 at 09:14:03 UTC; 63 others only followed``; without a cause how many logs say so."""
    if not death.cause_name:
        return f"no cause found in the ends of {_files(death.read)}" + _left(death)
    who = f" on {death.host}" if death.host else ""
    who += f" rank {death.rank}" if death.rank is not None else ""
    when = f" at {moment(death.cause_ns, zone)}" if death.cause_ns is not None else ""
    is_silence = bool(death.suspects) and death.cause_class == "nccl_timeout"
    silent = f"; {_ranks(death.suspects)} said nothing" if is_silence else ""
    followed = f"; {death.followers:,} {'other' if death.followers == 1 else 'others'} only followed" if death.followers else ""
    return f"{death.cause_name}{who}{when}{silent or followed}{_left(death)}"


def told_in(
    verdict: Verdict, death: Death | None, reading: str, attempt: int | None, last_step: int | None, zone: str
) -> Verdict:
    """The verdict of a run that died by itself, with its cause in place of the bare fact. reading: that the ends are being read."""
    if verdict.word is not VerdictWord.STOPPED or verdict.tone != "critical":
        return verdict
    if death is None:
        return replace(verdict, headline=f"{verdict.headline}; {reading}") if reading else verdict
    if not death.cause_name:
        return replace(verdict, headline=f"{verdict.headline}; {sentence(death, zone)}") if death.read else verdict
    number = f"attempt {attempt}" if attempt is not None else "the run"
    at = f" at step {last_step:,}" if last_step is not None else ""
    # What the breaker did stays; that nothing paused a process that is gone is no news.
    automatic = verdict.automatic if verdict.automatic.startswith("Breaker:") else ""
    return replace(verdict, headline=f"{number} died{at}: {sentence(death, zone)}", automatic=automatic)


def reading_words(
    run: RunSettings, findings: Sequence[Finding], incidents: Sequence[Incident], attempt: int | None, now_ns: int
) -> str:
    """``reading the ends of 3 logs`` while a death is fresh and its logs can be read; else empty."""
    open_ids = {f.id for f in findings if f.rule == "run_dead" and f.is_open and f.attempt == attempt}
    # The finding bears the time of the deadly line; the incident that of when the run was called dead.
    found_ns = [one.updated_at_ns for one in incidents if open_ids & set(one.finding_ids)]
    patterns = (*run.logs, *run.rank_logs)
    if not patterns or not found_ns or now_ns - max(found_ns) > READING_NS:
        return ""
    is_exact = not any(set("*?[") & set(pattern) for pattern in patterns)
    return f"reading the ends of {_files(len(patterns))}" if is_exact else "reading the ends of all its logs"


def lines_of(death: Death, zone: str, now_ns: int) -> tuple[Line, ...]:
    """The block "what the logs say", in the order in which a person asks: what, where, when, who else, how sure, where to look on."""
    lines: list[Line] = []
    if death.cause_name:
        kind = f" ({death.cause_class.replace('_', ' ')})" if death.cause_class.replace("_", " ") not in death.cause_name else ""
        lines.append(Line("cause", f"{death.cause_name}{kind}", tone="critical"))
        if death.text:
            lines.append(Line("the line", death.text, is_verbatim=True))
        lines.append(Line("where", _where(death)))
        if death.cause_ns is not None:
            lines.append(Line("when", fmt.moment(death.cause_ns, zone, now_ns=now_ns)))
        if death.file:
            lines.append(Line("log", death.file, is_verbatim=True))
    else:
        lines.append(Line("cause", f"none found in the ends of {_files(death.read)}"))
    if death.suspects:
        is_known = death.rank in death.suspects
        look_at = "the cause was found there" if is_known and len(death.suspects) == 1 else f"look at {_them(death)}"
        lines.append(
            Line(
                "silent",
                f"{_ranks(death.suspects)} told no timeout while the others waited: {look_at}",
                tone="" if is_known else "warning",
            )
        )
    if death.followers or death.victims:
        classes = ", ".join(f"{name.replace('_', ' ')} × {n:,}" for name, n in death.victims)
        who = f"{death.followers:,} {'rank or file' if death.followers == 1 else 'ranks and files'}" if death.followers else ""
        lines.append(Line("followed", " · ".join(part for part in (who, classes) if part)))
    lines.append(
        Line("read", _reading(death), "\n".join(death.troubles), tone="warning" if death.left or death.unreadable else "")
    )
    if death.tails:
        lines.append(Line("kept in", death.tails, f"zless {shlex.quote(death.tails)}/*.log.gz", is_verbatim=True))
    return tuple(lines)


def nothing_read(run: RunSettings, is_reading: bool) -> str:
    """Why there is no post-mortem of a run that died, and what to do."""
    if is_reading:
        return "The ends of the logs are being read; the cause stands here within a minute."
    if not (run.logs or run.rank_logs):
        return "No log is named for this run, so nothing could be read. Name them in trainvitals.toml: logs and rank_logs."
    return "The ends of the logs were not read: the watchdog did not see this death happen, or is not running."


def moment(time_ns: int, zone: str) -> str:
    """``09:14:03 UTC``, in the run's zone."""
    local = datetime.fromtimestamp(time_ns // 10**9, fmt.zone(zone))
    return f"{local:%H:%M:%S} {local:%Z}"


def _where(death: Death) -> str:
    if not death.host and death.rank is None:
        return "not told: neither the line nor the file's name has a host or a rank"
    parts = [death.host or "host not told", f"rank {death.rank}" if death.rank is not None else "rank not told"]
    rest = death.place.split("/")[1:]
    parts += [f"local rank {rest[0]}"] if rest and rest[0] else []
    parts += [rest[1]] if len(rest) > 1 and rest[1] else []
    return " · ".join(parts)


def _reading(death: Death) -> str:
    parts = [_files(death.read)]
    parts += [f"{death.unreadable:,} unreadable"] if death.unreadable else []
    parts += [f"{death.skipped:,} not of this attempt"] if death.skipped else []
    parts += [f"{death.left:,} not read in time: the cause may be in one of them"] if death.left else []
    parts += [f"{death.seconds:.1f} s"] if death.seconds is not None else []
    return " · ".join(parts)


def _left(death: Death) -> str:
    return f"; {_files(death.left)} not read in time" if death.left else ""


def _files(count: int) -> str:
    return f"{count:,} {'log' if count == 1 else 'logs'}"


def _ranks(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:SHOWN_RANKS])) + (
        f" and {len(ranks) - SHOWN_RANKS:,} more" if len(ranks) > SHOWN_RANKS else ""
    )
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"


def _them(death: Death) -> str:
    return "its host and its log first" if len(death.suspects) == 1 else "their hosts and their logs first"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> int | None:
    time_ns = _whole(value)
    return time_ns if time_ns is not None and 0 <= time_ns < 2**63 else None


def _count(value: Any) -> int:
    return max(0, _whole(value) or 0)
