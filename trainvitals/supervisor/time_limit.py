"""A job's time limit: when it is said, and when the last checkpoint before it is asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainvitals.settings_sections import SupervisorSettings

STATE = "time_limit_near"
#: Beside twice the usual time of a save: the step under way, and a slow moment of the file system.
SAVE_MARGIN_S = 120.0
#: A limit that moved by more than this is another one: everything is said anew.
MOVED_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of the limit at ``ends_at_ns``."""

    ends_at_ns: int | None = None
    is_info: bool = False
    is_warning: bool = False
    is_asked: bool = False

    def of(self, ends_at_ns: int) -> Said:
        """The same, or nothing yet when the limit moved."""
        is_same = self.ends_at_ns is not None and abs(ends_at_ns - self.ends_at_ns) <= MOVED_NS
        return replace(self, ends_at_ns=ends_at_ns) if is_same else Said(ends_at_ns)


def due(said: Said, remaining_s: float, settings: SupervisorSettings) -> tuple[str, Said]:
    """(severity of what must be said now, "" = nothing; what is said then)."""
    if not said.is_warning and 0 < remaining_s <= settings.limit_warning_s:
        return "warning", replace(said, is_info=True, is_warning=True)
    if not said.is_info and 0 < remaining_s <= settings.limit_info_s:
        return "info", replace(said, is_info=True)
    return "", said


def wants_save(said: Said, remaining_s: float, save_s: float | None, settings: SupervisorSettings) -> bool:
    """Whether the checkpoint should be asked for now. save_s: what a save usually takes, None = not known."""
    return settings.save_before_limit and not said.is_asked and 0 < remaining_s < 2 * (save_s or 0.0) + SAVE_MARGIN_S


def sentence(remaining_s: float, job: str) -> str:
    """For people."""
    left = f"{remaining_s / 60:.0f} min" if remaining_s >= 90 else f"{remaining_s:.0f} s"
    return f"the time limit of job {job} ends the trainer in {left}; an administrator can move it: scontrol update JobId={job} TimeLimit=+60"
