"""What a start of the trainer changed against the one before, out of the finding ``resume_config_changed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainvitals.records import Finding
from trainvitals.web.configuration import masked
from trainvitals.web.death import Line

RULE = "resume_config_changed"
NOT_SET = "not set"
#: Of a value on one line; all of it stands behind it.
SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Changed:
    """One key. before, after: None = not set there. is_steering: it may change what is learnt, not only how the run is kept."""

    section: str
    key: str
    before: str | None
    after: str | None
    is_steering: bool

    @property
    def name(self) -> str:
        """``git`` for a commit, ``git branch``, the bare key of a setting, ``environment NCCL_ALGO``."""
        if self.section == "git" and self.key == "commit":
            return "git"
        return self.key if self.section in ("config", "arguments") else f"{self.section} {self.key}"


@dataclass(frozen=True)
class Changes:
    """All of one start, what matters most first. count: how many keys, of which ``keys`` holds the first fifty.
    not_compared: sections that one of the two starts did not tell."""

    attempt: int
    compared_with: int | None
    count: int
    keys: tuple[Changed, ...]
    not_compared: tuple[str, ...] = ()


def changes_of(finding: Finding) -> Changes | None:
    """The changes that a finding tells; None when it is of another rule. A change that is none is left out, and still counted."""
    if finding.rule != RULE:
        return None
    data = finding.data
    told = data.get("changes")
    keys = tuple(_changed(one) for one in told if isinstance(one, Mapping)) if isinstance(told, (list, tuple)) else ()
    count, earlier, missing = data.get("changed"), data.get("compared_with"), data.get("not_compared")
    return Changes(
        finding.attempt,
        earlier if isinstance(earlier, int) and not isinstance(earlier, bool) else None,
        count if isinstance(count, int) and not isinstance(count, bool) and count >= len(keys) else len(keys),
        keys,
        tuple(str(name) for name in missing) if isinstance(missing, (list, tuple)) else (),
    )


def changes_at(findings: Sequence[Finding], attempt: int | None) -> Changes | None:
    """What the start of ``attempt`` changed; None when no change is known. Findings come newest first."""
    found = next((f for f in findings if f.rule == RULE and f.attempt == attempt), None)
    return changes_of(found) if found is not None else None


def title(changes: Changes) -> str:
    """``Attempt 4 changed 7 settings of attempt 3 (2 that steer the training)``."""
    steering = sum(one.is_steering for one in changes.keys)
    of = f" of attempt {changes.compared_with}" if changes.compared_with is not None else ""
    told = f"{changes.count:,} {'setting' if changes.count == 1 else 'settings'}{of}"
    kind = f"{steering:,} may change what is learnt" if steering else "all of a kind that a restart usually changes"
    return f"Attempt {changes.attempt} changed {told}: {kind}"


def short(value: str | None, key: str = "") -> str:
    """A value on one line, cut: seven characters of a commit or a checksum, sixty of anything else."""
    if value is None:
        return NOT_SET
    if key in ("commit", "sha256"):
        return value[:7]
    line = " ".join(masked(value).split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"


def arrow(changed: Changed) -> str:
    """``3e-4 → 1e-4``."""
    if changed.section == "ranks":
        return "placed elsewhere"
    before, after = short(changed.before, changed.key), short(changed.after, changed.key)
    is_text = changed.key in ("diffstat", "keys beyond the limit")
    return "changed" if is_text or before == after else f"{before} → {after}"


def full(changed: Changed) -> str:
    """Both values whole, when the line could not hold them; else empty."""
    shown = (short(changed.before, changed.key), short(changed.after, changed.key))
    whole = tuple(NOT_SET if value is None else masked(value) for value in (changed.before, changed.after))
    return "" if shown == whole and changed.key != "diffstat" else f"before: {whole[0]}\nnow:    {whole[1]}"


def lines_of(changes: Changes, most: int = 0) -> tuple[Line, ...]:
    """One line a key, ``most`` of them (0 = all that are known), and one for what is not among them."""
    shown = changes.keys[:most] if most else changes.keys
    lines = [Line(one.name, arrow(one), full(one), tone="warning" if one.is_steering else "") for one in shown]
    if changes.count > len(shown):
        lines.append(Line("", f"and {changes.count - len(shown):,} more"))
    if changes.not_compared:
        lines.append(Line("not compared", ", ".join(changes.not_compared) + ": not told by both starts"))
    return tuple(lines)


def nothing_changed(attempt: int, told: Sequence[int]) -> str:
    """The sentence for a start of which no change is known. told: attempts that told what they were made of."""
    if attempt in told and any(number < attempt for number in told):
        return f"Attempt {attempt} told the same settings, code and versions as the start before."
    return f"Not known: attempt {attempt} or the start before did not tell its settings (docs/metadata.md says how)."


def _changed(one: Mapping[str, Any]) -> Changed:
    before, after = one.get("before"), one.get("after")
    return Changed(
        str(one.get("section", "")), str(one.get("key", "")), None if before is None else str(before),
        None if after is None else str(after), one.get("severity") != "info",
    )  # fmt: skip
