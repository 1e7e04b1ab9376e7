"""A user-defined format: one regular expression with named groups, from a ``[formats.NAME]`` table of the settings.

The expression is RE2's (github.com/google/re2): it is matched in time linear in the line, whatever line and expression are, so a
pattern can neither hang nor slow down the watchdog. Look-around and back-references, which cannot be matched so, are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, ClassVar, Protocol

from trainvitals.errors import SettingsError
from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.step_rows import step_number, time_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Step
from trainvitals.schema import TRAIN_METRICS

#: So many characters of a line are looked at; a step's line is shorter.
MAX_LINE = 8192
_MAX_PATTERN = 2000
_MAX_MEMORY_BYTES = 1 << 20
_GROUP = re.compile(r"(?<!\\)\(\?P?<([A-Za-z_]\w{0,99})>")
_VALIDATION = "validation_"


class FormatTable(Protocol):
    """What is read of a ``[formats.NAME]`` table."""

    @property
    def pattern(self) -> str: ...


class HomeMade(LineByLine):
    """Base of the classes that ``make_grammar`` makes; each line stands for itself."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = "a format of the settings"
    example: ClassVar[str] = ""
    pattern: ClassVar[Any] = None
    #: group -> (metric, factor); those of a validation are apart
    metrics: ClassVar[dict[str, tuple[str, float]]] = {}
    validations: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @classmethod
    def claims(cls, line: str) -> bool:
        """Whether the line gives a record."""
        return bool(cls(LineTimes()).feed(line))

    def feed(self, line: str) -> list[Record]:
        line = line[:MAX_LINE]
        found = self.pattern.search(line)
        if found is None:
            return []
        groups = found.groupdict()
        step = step_number(groups["step"])
        if step is None:
            self.bad_records += 1
            return []
        time_ns = time_of(groups["time"], self._times) if groups.get("time") else self._times.find(line[: found.start()])
        records: list[Record] = []
        metrics = Metrics()
        for group, (metric, factor) in self.metrics.items():
            value = parse_number(groups[group]) if groups[group] else None
            if value is not None:
                metrics.put(metric, value * factor)
        if metrics:
            records.append(Step(step, 0, time_ns, metrics.values, metrics.nonfinite))
        told = {name: value for name in self.validations if groups[name] and (value := parse_number(groups[name])) is not None}
        if told:
            records.append(message(line.strip(), json_safe(told), step, time_ns))
        return records


def make_grammar(name: str, table: FormatTable) -> type[HomeMade]:
    """The grammar of a ``[formats.NAME]`` table. Raises ``SettingsError`` that names the table and says what to write."""
    where = f"[formats.{name}]"
    try:
        import re2
    except ImportError as error:
        raise SettingsError(
            f"{where} needs the package google-re2 ({error}); install it with `pip install google-re2`."
        ) from error
    text = table.pattern
    if not isinstance(text, str) or not text:
        raise SettingsError(rf"{where} needs a pattern, for example pattern = 'step (?P<step>\d+) loss (?P<loss>\S+)'.")
    if len(text) > _MAX_PATTERN:
        raise SettingsError(f"{where}: the pattern has {len(text)} characters; at most {_MAX_PATTERN} are allowed.")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        told = error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        raise SettingsError(
            f"{where}: the pattern is no regular expression of RE2: {told}. Look-around and back-references do not exist there."
        ) from error
    twice = next((name for name, count in Counter(_GROUP.findall(text)).items() if count > 1), None)
    if twice is not None:
        raise SettingsError(
            f"{where}: the group {twice} is named twice, and only one of them would be read. Name it once, with what differs around it "
            r"made optional: (?:eval loss=(?P<validation_loss>\S+) at )?step=(?P<step>\d+)(?: loss=(?P<loss>\S+))?"
        )
    groups = set(pattern.groupindex)
    if "step" not in groups:
        raise SettingsError(rf"{where}: the pattern needs a group named step: (?P<step>\d+).")
    metrics = {
        group: _metric(group, where)
        for group in pattern.groupindex
        if group not in ("step", "time") and not group.startswith(_VALIDATION)
    }
    validations = tuple(group for group in pattern.groupindex if group.startswith(_VALIDATION))
    if not metrics and not validations:
        raise SettingsError(rf"{where}: the pattern names no metric; give it a group as (?P<loss>\S+).")
    if len({metric for metric, _ in metrics.values()}) < len(metrics):
        raise SettingsError(f"{where}: two groups of the pattern name the same metric.")
    return type(f"HomeMade_{name}", (HomeMade,), {
        "name": name, "title": f"{where} of the settings", "pattern": pattern, "metrics": metrics, "validations": validations,
    })  # fmt: skip


def _metric(group: str, where: str) -> tuple[str, float]:
    """A metric of the schema, or an extra one; ``step_time_ms`` is ``step_time_s`` in milliseconds."""
    if group in TRAIN_METRICS:
        return group, 1.0
    if group.endswith("_ms") and group.removesuffix("ms") + "s" in TRAIN_METRICS:
        return group.removesuffix("ms") + "s", 1e-3
    extra = slug(group)
    if extra is None:
        raise SettingsError(f"{where}: {group!r} is no name for a metric; write letters, digits and underscores.")
    return extra, 1.0
