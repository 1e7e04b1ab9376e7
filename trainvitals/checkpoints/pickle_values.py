"""The values in a pickle, read without loading it: a machine of our own on symbols, fast enough for metadata of large runs.

Why not ``pickle.Unpickler`` with a strict ``find_class``: the C unpickler allocates whatever index a memo opcode names, hashes
tuples of any depth (a stack overflow that kills the process) and of any sharing (2 ** depth steps), all before ``find_class``
is asked. Here nothing is imported, called or built that the pickle names. A class becomes a ``Global`` (its name), an object
an ``Instance`` (class, arguments, state), plain values become themselves. Time is linear in the length, and memory is
bounded by the limits below, whatever the bytes are.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.checkpoints.pickle_symbols import OPAQUE, BadPickle, Global, Instance, Opaque, PickleTooLarge, hashable

MAX_BYTES = 256 * 1024 * 1024
MAX_DEPTH = 200
MAX_STACK = 300_000
MAX_ITEMS = 8_000_000
MAX_LIVE_BLOCKS = 1_500_000
MAX_TEXT_BYTES = 1024
MAX_LONG_TEXT_BYTES = 16 * 1024 * 1024
_WINDOW = 256 * 1024
#: Longest opcode with a fixed or one-byte length: bytes that must follow the opcode that is read in the fast loop.
_MARGIN = 300

Source = Callable[[int, int], bytes]

__all__ = ["OPAQUE", "BadPickle", "Global", "Instance", "PickleTooLarge", "Pickled", "read", "read_bytes"]


@dataclass(frozen=True, slots=True)
class Pickled:
    """value: the root. globals: every name that it mentions."""

    value: Any
    globals: frozenset[str]


#: Classes that are a plain container and nothing else, made by a call without arguments or with one.
_DICTIONARIES = frozenset(("collections.OrderedDict", "builtins.dict", "__builtin__.dict", "collections.defaultdict"))
_TUPLES = frozenset(("torch.Size", "builtins.tuple", "__builtin__.tuple"))

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_U64 = struct.Struct("<Q")
_F64 = struct.Struct(">d")
#: Bytes of payload length of the opcodes that carry bytes or text of any length.
_LONG_TEXT = {0x58: 4, 0x8D: 8, 0x54: 4}
_LONG_BYTES = {0x42: 4, 0x8E: 8, 0x96: 8}
#: EMPTY_SET and the extensions of copyreg (EXT1, EXT2, EXT4): bytes of argument. A set is not followed.
_PUSH_OPAQUE = {0x8F: 0, 0x82: 1, 0x83: 2, 0x84: 4}
_LINES = frozenset(b"FILSVPgp")
#: LONG_BINGET with its index; looked for at every byte, because any of them may begin an opcode.
_GET = re.compile(rb"j(?=(.{4}))", re.DOTALL)


def read(
    source: Source,
    size: int,
    *,
    builders: Mapping[str, Callable[[Any], Any]] | None = None,
    takes_item: Callable[[Instance, Any], bool] | None = None,
) -> Pickled:
    """Read a pickle of ``size`` bytes; ``source(offset, length)`` gives its bytes.

    builders: class name -> makes the state of an instance smaller as soon as it is complete (memory). takes_item: asked for
    each item of a dict whose key is an instance; True = it was used up and is not kept. Raises ``BadPickle`` or
    ``PickleTooLarge``, nothing else of its own (the source's errors pass through).
    """
    if size > MAX_BYTES:
        raise PickleTooLarge(f"it is {size} bytes long, at most {MAX_BYTES} are looked at")
    machine = _Machine(source, size, builders or {}, takes_item)
    try:
        return machine.run()
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        # UnicodeError is a ValueError. All of these come from operands that do not fit, never from the pickle's own code.
        raise BadPickle(f"its opcodes do not fit together ({type(error).__name__})") from error


def read_bytes(raw: bytes) -> Pickled:
    """As ``read``, of bytes at hand."""
    return read(lambda offset, length: raw[offset : offset + length], len(raw))


class _Machine:
    def __init__(
        self,
        source: Source,
        size: int,
        builders: Mapping[str, Callable[[Any], Any]],
        takes_item: Callable[[Instance, Any], bool] | None,
    ) -> None:
        self._source = source
        self._size = size
        self._builders = builders
        self._takes_item = takes_item
        self._globals: dict[str, Global] = {}
        self._long_text_bytes = 0
        self._items = 0
        self._blocks = sys.getallocatedblocks()
        self._wanted = _wanted_memos(source, size)

    def _window(self, offset: int, needed: int = 0) -> bytes:
        """Bytes from ``offset`` on, padded with zeros (which are no opcode) behind the end of the pickle."""
        wanted = max(_WINDOW, needed) + _MARGIN
        raw = self._source(offset, min(wanted, self._size - offset)) if offset < self._size else b""
        return raw + bytes(_MARGIN) if len(raw) < wanted else raw

    def _check_limits(self, stack: list[Any], marks: list[list[Any]]) -> None:
        # Blocks of the whole process: other threads allocate too, but never millions while one pickle is read.
        if sys.getallocatedblocks() - self._blocks > MAX_LIVE_BLOCKS or self._items > MAX_ITEMS:
            raise PickleTooLarge("it holds more objects than are looked at")
        if len(stack) + sum(len(mark) for mark in marks) > MAX_STACK:
            raise PickleTooLarge("it holds more unfinished values than are looked at")

    def run(self) -> Pickled:
        """The fast loop: the opcodes of every pickle of protocol 2 and up, by frequency in DCP metadata; the rest is ``_rare``."""
        stack: list[Any] = []
        marks: list[list[Any]] = []
        memo: dict[int, Any] = {}
        memos = 0
        wanted = self._wanted
        takes_item = self._takes_item
        u32 = _U32.unpack_from
        base, at = 0, 0
        while True:
            raw = self._window(base)
            safe = len(raw) - _MARGIN
            at = 0
            if safe <= 0 and base >= self._size:
                raise BadPickle("it ends before its last opcode")
            self._check_limits(stack, marks)
            while at < safe:
                code = raw[at]
                at += 1
                if code == 0x94:  # MEMOIZE
                    if memos in wanted:
                        memo[memos] = stack[-1]
                    memos += 1
                elif code == 0x6A:  # LONG_BINGET
                    stack.append(memo[u32(raw, at)[0]])
                    at += 4
                elif code == 0x68:  # BINGET
                    stack.append(memo[raw[at]])
                    at += 1
                elif code == 0x4B:  # BININT1
                    stack.append(raw[at])
                    at += 1
                elif code == 0x28:  # MARK
                    if len(marks) >= MAX_DEPTH:
                        raise PickleTooLarge("it nests deeper than is looked at")
                    marks.append(stack)
                    stack = []
                elif code == 0x29:  # EMPTY_TUPLE
                    stack.append(())
                elif code == 0x81:  # NEWOBJ
                    arguments = stack.pop()
                    stack[-1] = self._made(stack[-1], arguments)
                elif code == 0x7D:  # EMPTY_DICT
                    stack.append({})
                elif code == 0x52:  # REDUCE
                    arguments = stack.pop()
                    stack[-1] = self._made(stack[-1], arguments)
                elif code == 0x85:  # TUPLE1
                    stack[-1] = (stack[-1],)
                elif code == 0x86:  # TUPLE2
                    last = stack.pop()
                    stack[-1] = (stack[-1], last)
                elif code == 0x75:  # SETITEMS
                    items, stack = stack, marks.pop()
                    target = stack[-1]
                    self._items += len(items)
                    if len(items) & 1:
                        raise BadPickle("a key has no value")
                    if type(target) is dict:
                        for number in range(0, len(items), 2):
                            key = items[number]
                            if type(key) is str:
                                target[key] = items[number + 1]
                            elif takes_item is None or type(key) is not Instance or not takes_item(key, items[number + 1]):
                                target[hashable(key)] = items[number + 1]
                            else:
                                self._items -= 2
                elif code == 0x62:  # BUILD
                    state = stack.pop()
                    target = stack[-1]
                    if type(target) is Instance:
                        builder = target.of.builder if type(target.of) is Global else None
                        if builder is None:
                            target.state = state
                        else:
                            target.state = builder(state)
                            self._items -= 2 * len(state)
                elif code == 0x8C:  # SHORT_BINUNICODE
                    end = at + 1 + raw[at]
                    stack.append(raw[at + 1 : end].decode("utf-8", "surrogatepass"))
                    at = end
                elif code == 0x4D:  # BININT2
                    stack.append(raw[at] | raw[at + 1] << 8)
                    at += 2
                elif code == 0x4A:  # BININT
                    stack.append(_I32.unpack_from(raw, at)[0])
                    at += 4
                elif code == 0x8A:  # LONG1
                    end = at + 1 + raw[at]
                    stack.append(int.from_bytes(raw[at + 1 : end], "little", signed=True))
                    at = end
                elif code == 0x87:  # TUPLE3
                    last = stack.pop()
                    middle = stack.pop()
                    stack[-1] = (stack[-1], middle, last)
                elif code == 0x61:  # APPEND
                    last = stack.pop()
                    self._items += 1
                    if type(stack[-1]) is list:
                        stack[-1].append(last)
                elif code == 0x65:  # APPENDS
                    items, stack = stack, marks.pop()
                    self._items += len(items)
                    if type(stack[-1]) is list:
                        stack[-1].extend(items)
                elif code == 0x5D:  # EMPTY_LIST
                    stack.append([])
                elif code == 0x74:  # TUPLE
                    items, stack = stack, marks.pop()
                    self._items += len(items)
                    stack.append(tuple(items))
                elif code == 0x89 or code == 0x88:  # NEWFALSE, NEWTRUE
                    stack.append(code == 0x88)
                elif code == 0x4E:  # NONE
                    stack.append(None)
                elif code == 0x93:  # STACK_GLOBAL
                    attribute = stack.pop()
                    stack[-1] = self._global(stack[-1], attribute)
                elif code == 0x71 or code == 0x72:  # BINPUT, LONG_BINPUT
                    index = raw[at] if code == 0x71 else u32(raw, at)[0]
                    at += 1 if code == 0x71 else 4
                    if index in wanted:
                        memo[index] = stack[-1]
                elif code == 0x2E:  # STOP
                    if base + at > self._size or len(stack) != 1 or marks:
                        raise BadPickle("its result is not one object, or it ends too early")
                    return Pickled(stack[0], frozenset(self._globals))
                elif code == 0x95:  # FRAME
                    at += 8
                elif code == 0x80:  # PROTO
                    at += 1
                elif code == 0x32:  # DUP
                    stack.append(stack[-1])
                elif code == 0x30:  # POP
                    if stack:
                        stack.pop()
                    else:
                        stack = marks.pop()
                elif code == 0x31:  # POP_MARK
                    stack = marks.pop()
                elif code == 0x64 or code == 0x6C or code == 0x90 or code == 0x91:
                    stack = self._from_mark(code, stack, marks)
                else:
                    offset, value = self._rare(code, raw, base, at, stack, memo)
                    if value is not _NOTHING:
                        stack.append(value)
                    if offset - base > safe:
                        base, raw, safe, at = offset, b"", 0, 0
                    else:
                        at = offset - base
            if base + at <= self._size:
                base += at
            else:
                raise BadPickle("it ends inside an opcode")

    def _made(self, of: Any, arguments: Any) -> Any:
        if type(of) is Global:
            if of.name in _TUPLES:
                first = arguments[0] if type(arguments) is tuple and arguments else ()
                return tuple(first) if type(first) in (tuple, list) else OPAQUE
            if of.name in _DICTIONARIES:
                return {}
        if type(arguments) is not tuple:
            raise BadPickle("a call has no arguments")
        return Instance(of, arguments)

    def _global(self, module: Any, attribute: Any) -> Global:
        if type(module) is not str or type(attribute) is not str:
            raise BadPickle("a global's name is no text")
        name = f"{module}.{attribute}"
        known = self._globals.get(name)
        if known is None:
            known = self._globals[name] = Global(name, self._builders.get(name))
        return known

    def _from_mark(self, code: int, items: list[Any], marks: list[list[Any]]) -> list[Any]:
        """DICT, LIST, ADDITEMS and FROZENSET take what lies above the mark; sets are not followed."""
        stack = marks.pop()
        self._items += len(items)
        if code == 0x64:
            stack.append({hashable(key): value for key, value in zip(items[::2], items[1::2], strict=True)})
        elif code == 0x6C:
            stack.append(items)
        elif code == 0x91:
            stack.append(OPAQUE)
        return stack

    def _rare(self, code: int, raw: bytes, base: int, at: int, stack: list[Any], memo: dict[int, Any]) -> tuple[int, Any]:
        """The other opcodes: (offset in the pickle of what follows, value to push or ``_NOTHING``)."""
        if code in _LONG_TEXT or code in _LONG_BYTES:
            width = _LONG_TEXT.get(code) or _LONG_BYTES[code]
            return self._long(int.from_bytes(raw[at : at + width], "little"), base + at + width, code in _LONG_TEXT)
        if code in (0x43, 0x55):  # SHORT_BINBYTES, SHORT_BINSTRING
            return base + at + 1 + raw[at], OPAQUE if code == 0x43 else raw[at + 1 : at + 1 + raw[at]].decode("latin-1")
        if code == 0x47:  # BINFLOAT
            return base + at + 8, _F64.unpack_from(raw, at)[0]
        if code == 0x63:  # GLOBAL
            names, following = _lines(self._window(base + at), 0, 2)
            return base + at + following, self._global(*names)
        if code == 0x8B:  # LONG4: a number of hundreds of digits is no size and no step
            length = _I32.unpack_from(raw, at)[0]
            return self._skipped(length, base + at + 4), OPAQUE
        if code in _PUSH_OPAQUE:
            return base + at + _PUSH_OPAQUE[code], OPAQUE
        if code == 0x51:  # BINPERSID
            stack[-1] = OPAQUE
            return base + at, _NOTHING
        if code == 0x92:  # NEWOBJ_EX
            stack.pop()
            arguments = stack.pop()
            return base + at, self._made(stack.pop(), arguments)
        if code == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            self._items += 1
            takes = self._takes_item
            if type(stack[-1]) is dict and not (takes is not None and type(key) is Instance and takes(key, value)):
                stack[-1][hashable(key)] = value
            return base + at, _NOTHING
        if code in _LINES:
            return self._line(code, raw, base, at, stack, memo)
        raise BadPickle(f"byte {base + at - 1} is no opcode")

    def _line(self, code: int, raw: bytes, base: int, at: int, stack: list[Any], memo: dict[int, Any]) -> tuple[int, Any]:
        """Opcodes of protocol 0, whose argument is a line of text."""
        (text,), following = _lines(self._window(base + at), 0, 1)
        offset = base + at + following
        if len(text) > MAX_TEXT_BYTES or code == 0x50:
            return offset, OPAQUE
        if code in b"IL":
            return offset, {"00": False, "01": True}.get(text, int(text.removesuffix("L")[:40]) if text else 0)
        if code == 0x46:
            return offset, float(text)
        if code == 0x67:
            return offset, memo[int(text[:20])]
        if code == 0x70:
            memo[int(text[:20])] = stack[-1]
            return offset, _NOTHING
        return offset, text.strip("'\"") if code == 0x53 else text.encode("latin-1").decode("raw-unicode-escape")

    def _long(self, length: int, start: int, is_text: bool) -> tuple[int, Any]:
        end = self._skipped(length, start)
        if not is_text or length > MAX_TEXT_BYTES:
            return end, OPAQUE
        self._long_text_bytes += length
        if self._long_text_bytes > MAX_LONG_TEXT_BYTES:
            raise PickleTooLarge("it holds more long texts than are looked at")
        return end, self._source(start, length).decode("utf-8", "surrogatepass")

    def _skipped(self, length: int, start: int) -> int:
        if length < 0 or start + length > self._size:
            raise BadPickle("it ends inside a value")
        return start + length


_NOTHING = Opaque()


def _lines(raw: bytes, at: int, count: int) -> tuple[list[str], int]:
    found = []
    for _ in range(count):
        end = raw.index(b"\n", at)
        found.append(raw[at:end].decode("latin-1"))
        at = end + 1
    return found, at


def _wanted_memos(source: Source, size: int) -> frozenset[int]:
    """Memo numbers that may be asked for again: all bytes that look like a GET. Only those values are kept (memory)."""
    found: set[bytes] = set()
    for offset in range(0, size, _WINDOW):
        raw = source(offset, min(_WINDOW + 4, size - offset))
        found.update(_GET.findall(raw))
        if len(found) > MAX_LIVE_BLOCKS:
            raise PickleTooLarge("it refers back to more values than are looked at")
    return frozenset(range(256)) | {_U32.unpack(index)[0] for index in found}
