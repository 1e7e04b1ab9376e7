"""One line of an unknown trainer into its counters and its numbers: ``Step 120/5000 | loss 2.31 | lr 3e-4 | 12.5k tok/s``.

Every number is named by what stands before it and measured by what stands behind it, whatever separates them: ``=``, ``:``, blanks, bars,
commas, brackets. A line is read when it holds a step (or a position in an epoch) and a training loss; everything else is a metric beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from trainvitals.logs.grammars.shape_words import (
    LEVELS,
    OTHER_SUBJECTS,
    UNITS,
    VALIDATION,
    counter_of,
    is_of_schema,
    is_unit_of_loss,
    loss_rank,
    step_rank,
    words_of,
)

MAX_LINE = 2000
_MAX_NUMBERS = 120
_NUM = (
    r"(?<![\w.])[+-]?(?:1\.#(?:QNAN|SNAN|IND|INF)0{0,6}|(?:\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,30})?|\d{1,30}(?:\.\d{1,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?(?!\d|\.\d)"
    r"|(?:nan|NaN|Nan|NAN|inf|Inf|INF|[Ii]nfinity)x{0,8}(?!\w))"
)
_NUMBER = re.compile(_NUM, re.ASCII)
_MAY_COUNT = re.compile(r"(?:step|iter|update).{0,40}\d", re.IGNORECASE)
_MAY_HAVE_LOSS = re.compile(r"loss|cost|xent|nll|entropy|objf|\btrain\b.{1,60}\bval", re.IGNORECASE)
#: ``tensor(2.31, device='cuda:0', grad_fn=<NllLossBackward0>)``, ``Array(2.31, dtype=float32)``
_TENSOR = re.compile(
    rf"(?:[Tt]ensor|[Aa]rray|np\.float\d\d|numpy\.float\d\d)\(\s{{0,4}}\[{{0,2}}\s{{0,4}}({_NUM})[^()]{{0,200}}(?:\([^()]{{0,100}}\)[^()]{{0,60}})?\)",
    re.ASCII,
)
#: Dates, times and durations; places in source code. None of their numbers is a metric.
_NO_METRIC = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} {1,2}\d\d? \d\d:\d\d:\d\d(?: [A-Z]{3,4})? \d{4}"
    r"|\d{4}[-/]\d\d?[-/]\d\d?(?:[T ,]{1,2}\d\d?:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?|\d\d?/\d\d?(?:/\d{2,4})?(?=[ ,]{1,2}\d\d?:\d\d)"
    r"|(?<![\d.:])\d{1,4}(?::[0-5]\d){1,2}(?:[.,]\d{1,9})?(?![\d:])|[\w/.-]{1,200}\.py:\d{1,6}|\(\w{1,60}:\d{1,6}\)"
    r"|\A\s?[IWEF]\d{4,8} \d\d:\d\d:\d\d\.\d{1,9} {1,8}\d{1,10} [\w.-]{1,60}:\d{1,6}\]",
    re.ASCII,
)
_SEPARATOR = re.compile(r"[|,;\t()\[\]{}<>*•·\\]|\s{2,}|\s-{1,3}\s|:\s|=|\s->\s")
_TAIL = " \t:=({[<>#~→-"
#: Between a name and its number: ``loss is 2.3``, ``loss of 2.3``
_VERBS = (" is", " was", " of", " at")
_TOTAL = re.compile(r"\s{0,8}(?:/|of|out of)\s{0,12}\Z")
#: What follows a word that names the next number.
_IS_NAME = re.compile(r"\s{0,2}[:=]|\s{1,8}[-+]?\d", re.ASCII)
_UNIT = re.compile(r"[A-Za-z%\u00b5\u03bc][A-Za-z%/]{0,20}")
_BAR = re.compile(
    r"\A(.{0,300}?)\s{0,3}(?<!\d)\d{1,3}%\|[^|]{0,400}\|\s{0,10}(\d{1,15})/(\d{1,15}) \[([^\]]{1,1500})\]?(.{0,1000})", re.ASCII
)
_CIFAR = re.compile(r"\A\s{0,8}\[\s{0,4}(\d{1,6}),\s{0,8}(\d{1,9})(?:/\s{0,8}(\d{1,9}))?\]", re.ASCII)
_ESPNET = re.compile(r"(?<!\w)(\d{1,6})epoch:train:(\d{1,9})-(\d{1,9})batch:", re.ASCII)
_ESPNET_NAMES = {"iter_time": "data_time", "optim_step_time": "optimizer_time"}
_EPOCH_LINE = re.compile(r"\bepoch\b[\s:#\[(]{0,6}(\d{1,6})\]?(?:\s?(?:/|of)\s?(\d{1,6}))?", re.ASCII | re.IGNORECASE)
_NO_EPOCH_LINE = re.compile(r"best|last|resum|load|max|total|warm|sav", re.IGNORECASE)
_COMMAND = re.compile(r"\s--[A-Za-z]")
#: A line of a patch, of a list of files, of a table of configurations.
_LISTED = re.compile(
    r"\A(?:[+-][A-Za-z]|[dl-][rwxsStT-]{9}[.+@]?\s)|\bconfig(?:uration)? #?\d|\bcommit [0-9a-f]{1,40}(?![\w.])",
    re.ASCII | re.IGNORECASE,
)
#: The name of a file is no place to read a step from.
_FILE = re.compile(r"[^\s,;]{0,300}\.(?:ckpt|pth?|safetensors|npz|pkl|distcp|hdf5|h5|keras|msgpack|onnx|gguf)(?!\w)")
_MAY_NAME_FILE = re.compile(r"\.(?:ckpt|pt|safet|npz|pkl|distcp|h\w{1,3}5|h5|keras|msgpack|onnx|gguf)")


@dataclass(frozen=True, slots=True)
class Pair:
    """A number: its name, its text, the word behind it."""

    key: str
    raw: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """``kind``: step, batch, block (a line above told the step), bare (a number at the line's start), bar, or epoch (it counts nothing else); ``position`` of ``total``.

    ``shape`` is equal for lines of one kind. ``start``: where the record begins in the line. ``rounded_to``: 1000 where the step is printed as ``2K``.
    """

    shape: str
    kind: str
    position: int
    total: int | None
    epoch: int | None
    epochs: int | None
    step_name: str
    loss: Pair
    pairs: tuple[Pair, ...] = ()
    start: int = 0
    is_validation: bool = False
    rounded_to: int = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """A step and where it stands."""

    name: str
    position: int
    total: int | None
    epoch: int | None
    epochs: int | None


@dataclass(slots=True)
class _Found:
    """What the scan of a line has met so far."""

    epoch: int | None = None
    epochs: int | None = None
    counters: list[tuple[int, str, str, int, int | None]] = field(default_factory=list)  # rank, kind, name, position, total
    places: list[tuple[int, int]] = field(default_factory=list)  # positions in an epoch that no word names: [120/500]
    pairs: list[Pair] = field(default_factory=list)
    words: set[str] = field(default_factory=set)  # that name no number, up to the loss
    has_loss: bool = False
    first: int | None = None
    rounded: dict[int, int] = field(default_factory=dict)  # position -> what it was rounded to
    before: list[Pair] = field(default_factory=list)  # numbers in front of the first counter or loss
    lone: int | None = None  # a whole number without a name, before anything else

    def begin(self, at: int) -> None:
        if self.first is None:
            self.first = at


def epoch_line(line: str) -> tuple[int, int | None] | None:
    """(epoch, epochs) of a line that only says which epoch begins."""
    if len(line) > 120 or "poch" not in line.lower() or _NO_EPOCH_LINE.search(line):
        return None
    found = _EPOCH_LINE.search(line)
    return (int(found[1]), int(found[2]) if found[2] else None) if found else None


def step_line(line: str) -> Counted | None:
    """The step of a line that tells little else; None for any other, and for one about a validation."""
    if len(line) > 160 or _MAY_COUNT.search(line) is None or "%|" in line or _COMMAND.search(line):
        return None
    text = _cleaned(line)
    found = _Found()
    _scan(text, 0, found)
    steps = [counter for counter in found.counters if counter[1] == "step"]
    spoken = {*words_of(text[: found.first or 0])[:12], *found.words}
    if len(steps) != 1 or len(found.pairs) > 1 or found.rounded.get(steps[0][3], 1) > 1:
        return None
    if not spoken.isdisjoint(VALIDATION) or not spoken.isdisjoint(OTHER_SUBJECTS):
        return None
    return Counted(steps[0][2], steps[0][3], steps[0][4], found.epoch, found.epochs)


def read_line(line: str, above: Counted | None = None) -> Reading | None:
    """The step and the loss that a line tells; None when it does not tell both. A reading may be of a validation.

    ``above``: the step that a line above it told, for one that tells the loss only.
    """
    if len(line) > MAX_LINE and "%|" not in line:
        return None
    if (
        not _MAY_HAVE_LOSS.search(line, 0, 2 * MAX_LINE)
        or _COMMAND.search(line, 0, MAX_LINE)
        or _LISTED.search(line, 0, MAX_LINE)
    ):
        return None
    if "%|" in line and (bar := _BAR.match(line)) is not None:
        return _read_bar(line, bar)
    if len(line) > MAX_LINE:
        return None
    text = _cleaned(line)
    found = _Found()
    at = 0
    if (special := _ESPNET.search(text)) is not None:
        found.epoch, at = int(special[1]), special.end()
        found.counters.append((0, "batch", "batch", int(special[3]), None))
        found.begin(special.start())
    elif (special := _CIFAR.match(text)) is not None:
        found.epoch, at = int(special[1]), special.end()
        found.counters.append((0, "batch", "batch", int(special[2]), int(special[3]) if special[3] else None))
        found.begin(special.start())
    _scan(text, at, found)
    if special is not None and found.counters[0][4] is None and "epoch:train:" in text:
        # Its ``iter_time`` waits for data, ``train_time`` is the whole step.
        found.pairs = [replace(pair, key=_ESPNET_NAMES.get(pair.key, pair.key)) for pair in found.pairs]
    return _reading(text, found, above=above)


def _read_bar(line: str, bar: re.Match[str]) -> Reading | None:
    position, total = int(bar[2]), int(bar[3])
    postfix = ", ".join(part for part in bar[4].split(", ")[1:])
    found = _Found(first=0)
    _scan(_cleaned(f"{bar[1]} , {postfix} , {bar[5]}"), 0, found)
    named = min(found.counters, key=lambda counter: counter[0], default=None)
    if named is None or named[1] != "step":
        found.counters = [(0, "bar", "the bar", position, total)]
    reading = _reading("", found, words_of(bar[1])[:8])
    return replace(reading, kind="bar") if reading is not None and position > 0 else None


def _cleaned(line: str) -> str:
    text = line
    if _MAY_NAME_FILE.search(text):
        text = _FILE.sub(lambda found: " " * len(found[0]), text)
    if "ensor(" in text or "rray(" in text or "float" in text:
        text = _TENSOR.sub(lambda found: found[1].ljust(len(found[0])), text)
    text = _GLUED.sub("", text.translate(_QUOTES)) if "poch" in text else text.translate(_QUOTES)
    return _NO_METRIC.sub(lambda found: " " * len(found[0]), text) if _has_marks(text) else text


#: Keras begins the bar of a validation on the line of the training's.
_GLUED = re.compile(r"(?<=[\w.\])])Epoch \d{1,6}/\d{1,6}\s{0,8}\Z", re.ASCII)
_QUOTES = str.maketrans({"'": " ", '"': " ", "`": " "})


def _has_marks(text: str) -> bool:
    return ":" in text or "-" in text or "/" in text


def _scan(text: str, at: int, found: _Found) -> None:
    numbers = [(match.start(), match.end()) for match in _NUMBER.finditer(text, at)][:_MAX_NUMBERS]
    ends = [at, *(end for _, end in numbers)]
    is_total = False
    waits_for_loss = False
    for index, (start, end) in enumerate(numbers):
        gap, raw = text[ends[index] : start], text[start:end]
        behind = text[end : numbers[index + 1][0]] if index + 1 < len(numbers) else text[end : end + 60]
        if is_total:
            is_total = False
            continue
        if behind == "," and raw.isdigit() and text[end + 1 : end + 2].isdigit():
            is_total = True  # a decimal comma (5,9409), or one list or another: no value is better than a wrong one
            continue
        key, residue = _key_of(gap[-200:], index == 0)
        if not found.has_loss:  # what follows the loss is about something else
            found.words.update(residue)
        has_total = index + 1 < len(numbers) and _TOTAL.match(behind) is not None
        total = _whole(text[numbers[index + 1][0] : numbers[index + 1][1]]) if has_total else None
        unit = _unit_of(behind)
        whole, rounded_to = _whole(raw), 1
        if unit[:1] in _THOUSANDS and unit[1:2] in ("", " ") and behind[:1] == unit[:1]:
            whole, rounded_to = rounded(raw, _THOUSANDS[unit[:1]])
        counter = counter_of(key) if key and whole is not None else None
        if counter is not None and found.counters and not VALIDATION.isdisjoint(words_of(key)):
            counter = None  # eval_step=100 among the settings of a step
        if counter is not None and whole is not None:
            is_total = total is not None
            found.begin(start)
            kind, name = counter
            found.words.update(word for word in words_of(key)[:-1] if word in VALIDATION or word in OTHER_SUBJECTS)
            if kind == "epoch":
                if found.epoch is None:
                    found.epoch, found.epochs = whole, total
            else:
                found.counters.append((step_rank(name), kind, name, whole, total))
                found.rounded[whole] = rounded_to
                waits_for_loss = (
                    loss_rank(" ".join(word for word in words_of(key) if word in ("loss", "cost", "train"))) is not None
                )
            continue
        is_tag = gap[-1:] in ("[", "(") and 0 < len(words_of(key)) <= 2 and loss_rank(key) is None
        if total is not None and whole is not None and (not key or is_tag):
            found.words.update(words_of(key))
            is_total = True
            found.places.append((whole, total))
            found.begin(start)
            continue
        if key and key[:1] == "/":
            continue
        if not key and waits_for_loss:
            key, waits_for_loss = "loss", False
        if not key and whole is not None and found.first is None and found.lone is None and not has_total:
            found.lone = whole
            found.begin(start)
        elif not key and whole is not None and found.lone is not None and index == 1 and found.epoch is None and not gap.strip():
            found.epoch, found.lone = found.lone, whole
        if key or unit:
            if loss_rank(key) is not None:
                found.begin(start)
                found.has_loss = True
            (found.before if found.first is None else found.pairs).append(Pair(key, raw, unit))


@lru_cache(maxsize=1024)
def _key_of(gap: str, is_first: bool) -> tuple[str, tuple[str, ...]]:
    """The name of the number behind a gap, and the words of it that name nothing: between two bars, or before a separator."""
    trimmed = gap.rstrip(_TAIL)
    if trimmed.endswith(_VERBS):
        trimmed = trimmed.rpartition(" ")[0].rstrip(_TAIL)
    if not is_first and trimmed[:1] not in ("", " ", "\t", ",", "|", ";", ")", "]", "}", "(", "[", ":", "-"):
        unit = _UNIT.match(trimmed)  # it stands at the number before
        trimmed = trimmed[unit.end() :] if unit else trimmed
    parts = _SEPARATOR.split(trimmed)
    key = parts[-1].strip(" .*#")
    if not is_first and len(parts) == 1:
        first, _, rest = key.partition(" ")
        key = rest.strip() if rest and first.lower() in UNITS else key
    elif not is_first and parts[0].strip().lower() in UNITS:
        parts = parts[1:]
    words = key.split()
    residue = [word for part in parts[:-1] for word in words_of(part)[:12]]
    if len(words) > 5:
        residue += words_of(" ".join(words[:-4]))[:12]
        key = " ".join(words[-4:])
    return key, tuple(residue)


def _unit_of(behind: str) -> str:
    text = behind[1:] if behind[:1] == " " else behind
    found = _UNIT.match(text)
    if found is None:
        return ""
    if found[0] in _THOUSANDS and text[found.end() : found.end() + 1] == " ":
        of = _UNIT.match(text, found.end() + 1)  # 12.5k tok/s
        if of is not None and "/" in of[0] and of[0].lower() in UNITS:
            return f"{found[0]} {of[0]}"
    if behind[:1] == " " and (found[0].lower() not in UNITS or _IS_NAME.match(text, found.end())):
        return ""
    return found[0]


def _whole(raw: str) -> int | None:
    text = raw.replace(",", "")
    return int(text) if text.isdigit() and len(text) <= 15 else None


def _is_cut_by_comma(raw: str) -> bool:
    """``5,940`` may be 5940 or 5.94: as a loss it is neither."""
    return "," in raw and "." not in raw


_THOUSANDS = {"k": 1_000, "K": 1_000, "M": 1_000_000}


def rounded(raw: str, unit: int) -> tuple[int | None, int]:
    """``1.25`` thousands are 1250, rounded to 10; None for what is no such number."""
    whole, _, fraction = raw.partition(".")
    if not whole.isdigit() or len(whole) > 9 or len(fraction) > 6:
        return None, 1
    rounded_to = max(1, unit // 10 ** len(fraction))
    return int(whole) * unit + int(fraction or "0") * unit // 10 ** len(fraction), rounded_to


def _reading(text: str, found: _Found, head: tuple[str, ...] | None = None, above: Counted | None = None) -> Reading | None:
    losses = [
        (rank, index)
        for index, pair in enumerate(found.pairs)
        if pair.key
        and is_unit_of_loss(pair.unit)
        and not _is_cut_by_comma(pair.raw)
        and (rank := loss_rank(pair.key)) is not None
    ]
    if not losses and any(pair.key.lower() in VALIDATION for pair in found.pairs):
        losses = [(0, index) for index, pair in enumerate(found.pairs) if pair.key.lower() in ("train", "training")]
    if not losses:
        return None
    loss = found.pairs[min(losses)[1]]
    places = list(found.places)
    counted = min(found.counters, key=lambda counter: counter[0], default=None)
    if counted is None and places:
        if found.epoch is None and len(places) > 1:
            found.epoch, found.epochs = places.pop(0)
        counted = (0, "batch", "[a/b]", *places[0])
    elif counted is None and found.lone is not None:
        counted = (0, "bare", "the first number", found.lone, None)
    elif counted is None and found.epoch is not None:
        counted = (0, "epoch", "epoch", found.epoch, found.epochs)
    if counted is None and above is not None:
        counted = (0, "block", above.name, above.position, above.total)
        found.epoch, found.epochs = above.epoch, above.epochs
    if counted is None:
        return None
    _, kind, name, position, total = counted
    if kind in ("step", "batch") and total is None and places and places[0][0] == position:
        total = places[0][1]
    start = found.first or 0
    words = [word for word in (words_of(text[:start])[:12] if head is None else head) if word not in LEVELS and len(word) > 1]
    spoken = {*words, *found.words}
    is_other = not spoken.isdisjoint(OTHER_SUBJECTS)
    if is_other:
        return None
    key = " ".join(words_of(loss.key))
    shape = f"{kind}|{name}|{key}|{' '.join(re.sub(r'[0-9]', '', word) for word in words[:8])}"
    epoch = None if kind == "epoch" else found.epoch
    pairs = (*(pair for pair in found.before if is_of_schema(pair.key, pair.unit)), *found.pairs)
    is_validation = not spoken.isdisjoint(VALIDATION)
    rounded_to = found.rounded.get(position, 1)
    return Reading(shape, kind, position, total, epoch, found.epochs, name, loss, pairs, start, is_validation, rounded_to)
