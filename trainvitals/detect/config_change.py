"""What is not as it was at the trainer's last start: settings, code, libraries, layout, compared key by key.

Every ``metadata`` event is one part of one section of one attempt. An attempt's sections come before its first step or shortly
after; each is compared once, when it is complete and the attempt has a step, with the newest earlier attempt that has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.config_keys import CUT_KEYS, NO_KEYS, Change, arguments_as_keys, as_text, rank_of, sentence
from trainvitals.detect.findings import Context
from trainvitals.records import Event, Finding, Severity, Step

RULE = "resume_config_changed"
MAX_SECTIONS = 24
MAX_PARTS = 256
MAX_NAME_CHARACTERS = 300
#: Kept of one attempt: values up to this size, then only a checksum of each, then only one over all the rest.
MAX_TEXT_CHARACTERS = 64_000
MAX_HASHED_CHARACTERS = 24_000
MAX_KEPT_CHANGES = 50
#: Thousands of places that differ at every start: only whether they do is kept.
_SUMMED_SECTIONS = frozenset({"ranks"})
#: The command line as keys: compared only where no settings were told.
_ARGUMENTS = "arguments"

#: {"values": {key: text, or [checksum]}, "rest": [number of further keys, checksum], "attempt": …}
Section = dict[str, Any]
Sections = dict[str, Section]


class ConfigChangeDetector(FamilyDetector):
    """``resume_config_changed``: one finding an attempt, told again with more when a later section brings more."""

    family = "config"
    rules = (RULE,)
    STATE = (
        "ledger", "_attempt", "_earlier", "_own", "_next", "_reading", "_compared", "_finding", "_changes", "_is_waiting",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._shown = int(min(20.0, max(1.0, self.numbers[RULE]["shown_changes"])))
        self._attempt = 0
        self._earlier: Sections = {}  # the newest of each section that was not compared yet
        self._own: Sections = {}
        self._next: Sections = {}  # told before the first step of an attempt that has no number yet
        self._reading: dict[str, Any] = {}  # section whose parts are coming in -> what came; threads may write several at once
        self._compared: list[str] = []
        self._finding: dict[str, Any] | None = None
        self._changes: list[dict[str, Any]] = []
        self._is_waiting = False

    @property
    def has_told(self) -> bool:
        """Whether this attempt has a finding."""
        return self._finding is not None

    def has_compared(self, section: str) -> bool:
        """Whether both this attempt and an earlier one told this section."""
        return section in self._compared

    def on_step(self, step: Step) -> None:
        if step.attempt > self._attempt:
            self._begin(step.attempt)
        if self._is_waiting:
            self._is_waiting = False
            self._compare()

    def on_event(self, event: Event) -> None:
        if event.kind == "attempt_start" and event.attempt is not None and event.attempt > self._attempt:
            self._begin(event.attempt)
        elif event.kind == "metadata":
            self._take(event)

    def _begin(self, attempt: int) -> None:
        """The next start: what the last one told is what this one is compared with."""
        self._earlier = {**self._earlier, **self._own}
        self._own, self._next = self._next, {}
        self._attempt, self._finding, self._changes, self._compared = attempt, None, [], []
        self._is_waiting = True

    # -- reading --------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        data, attempt = event.data, event.attempt
        name, values, part, count = data.get("section"), data.get("values"), data.get("part", 0), data.get("parts", 1)
        if not isinstance(name, str) or not isinstance(values, Mapping) or not _is_part(part, count):
            return
        if attempt is not None and attempt < self._attempt:
            return  # of an old attempt, read again
        name = name[:100]
        if part == 0 and (name in self._reading or len(self._reading) < MAX_SECTIONS):
            self._reading[name] = {"attempt": attempt, "part": 0, "section": _empty()}
        reading = self._reading.pop(name, None)
        if reading is None or [reading["attempt"], reading["part"]] != [attempt, part]:
            return  # a part is missing: the section is not whole, and is not compared
        _add(reading["section"], values, is_summed=name in _SUMMED_SECTIONS)
        reading["part"] = part + 1
        if part + 1 < count:
            self._reading[name] = reading
            return
        whole = {name: _closed(reading["section"])}
        if name == "script":
            whole[_ARGUMENTS] = _arguments(values)
        self._complete(whole, attempt, event.source)

    def _complete(self, sections: Sections, attempt: int | None, source: str) -> None:
        # A trainer prints its arguments once a start: the second time is the next start, before its first step.
        is_told_again = attempt == self._attempt and source == "log" and any(name in self._own for name in sections)
        if attempt is None or is_told_again:
            _put(self._next, sections)
            return
        if attempt > self._attempt:
            self._begin(attempt)
        _put(self._own, sections)
        self._is_waiting = True
        if self.context.attempt == attempt and self.context.attempt_points:
            self._is_waiting = False
            self._compare()

    # -- comparing ------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        found: list[Change] = []
        compared_with = 0
        for name, after in self._own.items():
            after["attempt"] = self._attempt
            before = self._earlier.get(name)
            if before is None or _is_unavailable(before) or _is_unavailable(after):
                continue
            del self._earlier[name]
            self._compared.append(name)
            compared_with = max(compared_with, int(before.get("attempt", 0)))
            if name != _ARGUMENTS or "config" not in self._own:
                found += _differences(name, before, after)
        if found:
            self._tell(compared_with, found)

    def _tell(self, compared_with: int, found: list[Change]) -> None:
        known = None if self._finding is None else Finding(**{**self._finding, "severity": Severity(self._finding["severity"])})
        counted = len(found) + (int(known.data["changed"]) if known else 0)
        earlier = compared_with if known is None else int(known.data["compared_with"])
        changes = sorted([*(Change(**change) for change in self._changes), *found], key=rank_of)[: 2 * MAX_KEPT_CHANGES]
        self._changes = [asdict(change) for change in changes]
        shown = list(dict.fromkeys(sentence(change) for change in changes))[: self._shown]
        more = counted - len(shown)
        message = f"settings differ from attempt {earlier}: {'; '.join(shown)}" + (f"; {more:,} more" if more > 0 else "")
        data = {
            "compared_with": earlier,
            "changed": counted,
            "changes": [{**asdict(change), "severity": change.severity.value} for change in changes[:MAX_KEPT_CHANGES]],
            "not_compared": sorted({*self._earlier, *self._own} - {*self._compared, _ARGUMENTS}),
        }
        severity = changes[0].severity
        if known is None:
            told = self.ledger.mark(RULE, severity, message, value=float(counted), data=data)
        else:
            is_worse = severity.rank > known.severity.rank
            told = replace(
                known, severity=severity, message=message, value=float(counted), data=data,
                detected_step=self.context.step if is_worse else known.detected_step,
            )  # fmt: skip
            self.ledger.tell_again(told)
        self._finding = None if told is None else asdict(told)


def _is_part(part: object, count: object) -> bool:
    return (
        isinstance(part, int) and isinstance(count, int) and not isinstance(part, bool) and not isinstance(count, bool)
        and 0 <= part < count <= MAX_PARTS
    )  # fmt: skip


def _empty() -> Section:
    return {"values": {}, "rest": [0, 0], "text": 0, "hashed": 0}


def _closed(section: Section) -> Section:
    return {"values": section["values"], "rest": section["rest"]}


def _put(sections: Sections, new: Sections) -> None:
    for name, section in new.items():
        if name in sections or len(sections) < MAX_SECTIONS:
            sections[name] = section


def _add(section: Section, values: Mapping[Any, Any], *, is_summed: bool) -> None:
    """As text while there is room, then as a checksum, then in the sum of the rest (which needs no order)."""
    for raw_key, raw in values.items():
        key = str(raw_key)[:MAX_NAME_CHARACTERS]
        if raw is not None and not isinstance(raw, (bool, int, float, str)):
            continue
        text = as_text(raw)
        if not is_summed and section["text"] + len(key) + len(text) <= MAX_TEXT_CHARACTERS:
            section["values"][key] = text
            section["text"] += len(key) + len(text)
        elif not is_summed and section["hashed"] + len(key) + 16 <= MAX_HASHED_CHARACTERS:
            section["values"][key] = [_checksum(text)]
            section["hashed"] += len(key) + 16
        else:
            count, total = section["rest"]
            section["rest"] = [count + 1, total ^ int(_checksum(f"{key}={text}"), 16)]


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _arguments(values: Mapping[Any, Any]) -> Section:
    pieces = [str(values["argv"])] if "argv" in values else []
    while (piece := values.get(f"argv.{len(pieces)}")) is not None:
        pieces.append(str(piece))
    section = _empty()
    _add(section, arguments_as_keys("".join(pieces)), is_summed=False)
    return _closed(section)


def _is_unavailable(section: Section) -> bool:
    return "unavailable" in section["values"]


def _differences(name: str, before: Section, after: Section) -> Iterator[Change]:
    old, new = before["values"], after["values"]
    is_whole = before["rest"][0] == after["rest"][0] == 0 and not any(key in side for side in (old, new) for key in CUT_KEYS)
    is_other_commit = name == "git" and old.get("commit") != new.get("commit")
    is_any = False
    for key in dict.fromkeys([*old, *new]):
        if key in NO_KEYS or (name == "script" and key.startswith("argv")) or (is_other_commit and key == "diffstat"):
            continue
        if not is_whole and (key not in old or key not in new):
            continue  # it may stand in the rest on the other side, or in what was left out there
        if not _is_same(old.get(key), new.get(key)):
            is_any = True
            yield Change(name, key, _as_told(old.get(key)), _as_told(new.get(key)))
    is_other_rest = before["rest"] != after["rest"]
    # The sum is over what was looked at: a trainer that was busy may have looked at less.
    is_comparable = _is_same(old.get("config_keys_left_out"), new.get("config_keys_left_out"))
    is_other_sum = not is_any and is_comparable and not _is_same(old.get("config_sha256"), new.get("config_sha256"))
    if is_other_rest or is_other_sum:
        key = "places" if name in _SUMMED_SECTIONS else "keys beyond the limit"
        yield Change(name, key, f"{before['rest'][0]} keys", f"{after['rest'][0]} keys")


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, str):
        return bool(old[0] == _checksum(new))
    if isinstance(new, list) and isinstance(old, str):
        return bool(new[0] == _checksum(old))
    return bool(old == new)


def _as_told(value: Any) -> str | None:
    return f"(checksum {value[0]})" if isinstance(value, list) else value
