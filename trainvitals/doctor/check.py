"""One thing to look at, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

OK, WARNING, FAULT = "ok", "warning", "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """state: ok, warning (works, with a risk or unused) or fault (something will not work). advice: what to do, "" = nothing."""

    state: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Checkup:
    """check: its name in docs/doctor.md. subject: the run, target or file it is about, "" = this machine. look: yields what it finds."""

    check: str
    subject: str
    look: Callable[[], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Result:
    """A finding of a checkup."""

    check: str
    subject: str
    finding: Finding


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(OK, text)


def warning(text: str, advice: str) -> Finding:
    """It works, with a risk, or is not used."""
    return Finding(WARNING, text, advice)


def fault(text: str, advice: str) -> Finding:
    """Something will not work."""
    return Finding(FAULT, text, advice)
