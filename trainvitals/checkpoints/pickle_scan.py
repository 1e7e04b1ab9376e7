"""What a pickle would do if somebody loaded it, without loading it: a symbolic walk over its opcodes.

``pickletools.genops`` yields opcodes and constants and executes nothing. A small stack machine follows them, so that names
of globals, keys of the state and sizes of tensor storages are known. It is a structure check, not a proof of safety.
"""

from __future__ import annotations

import io
import pickletools
import re
from dataclasses import dataclass, field
from typing import Any

MAX_PICKLE_BYTES = 16 * 1024 * 1024
MAX_OPCODES = 3_000_000
MAX_TABLE_KEYS = 256
#: Dictionaries and lists of one pickle, and values that wait for one: bounds memory to about 100 MB.
MAX_CONTAINERS = 400_000
MAX_STACK = 300_000
#: Values that it may come back to: chains of tuples cost twice what all else does.
MAX_MEMO = 1_000_000
MAX_KEPT_TEXT = 200
#: Longer ones (a pickle may hold one of a million digits, which Python does not even print) are not kept.
MAX_NUMBER = 1 << 63

#: Globals seen in files of torch and of the trainers around it (checkpoint research: optimizer, scheduler, rng state, DCP).
EXPECTED_GLOBALS = re.compile(
    r"""(?:
      collections\.(?:OrderedDict|defaultdict|deque|Counter) | _codecs\.encode | copyreg\._reconstructor
    | (?:builtins|__builtin__)\.(?:set|frozenset|dict|list|tuple|int|float|complex|bool|str|bytes|bytearray|object|slice|range)
    | datetime\.\w+ | pathlib\.\w+ | argparse\.Namespace | typing\.Any | uuid\.UUID
    | torch\.(?:\w+Storage|Size|device|dtype|Tensor|Generator|ByteTensor|u?int\d+|float\w*|bfloat16|bool|complex\d+|q\w+)
    | torch\._utils\._rebuild_\w+ | torch\._tensor\._rebuild_from_type_v2 | torch\.storage\.\w*Storage
    | torch\.serialization\._get_layout | torch\.torch_version\.TorchVersion | torch\.nn\.parameter\.\w+
    | torch\.distributed\.\w[\w.]* | numpy\.(?:_core|core)\.(?:multiarray\.(?:_reconstruct|scalar)|numeric\._frombuffer)
    | numpy\.(?:ndarray|dtype|\w*\d+|bool_?) | numpy\.dtypes\.\w+ | numpy\.random\.\w[\w.]*
    | (?:transformers|accelerate|lightning|lightning_fabric|pytorch_lightning|omegaconf|megatron|deepspeed|peft)\.\w[\w.]*
    )\Z""",
    re.VERBOSE,
)
#: Modules that no state of a trainer needs and that a payload needs.
DANGEROUS_MODULES = frozenset(
    ("os", "posix", "nt", "subprocess", "sys", "socket", "shutil", "runpy", "importlib", "pickle", "_pickle", "ctypes", "pty",
     "webbrowser", "marshal", "code", "codeop", "operator", "http", "urllib", "requests", "asyncio", "threading",
     "multiprocessing", "signal", "pdb", "bdb", "timeit", "trace", "tempfile")
)  # fmt: skip
DANGEROUS_BUILTINS = frozenset(("eval", "exec", "compile", "open", "__import__", "globals", "breakpoint", "input", "vars"))
#: Keys under which trainers keep the optimizer.
OPTIMIZER_NAMES = frozenset(("optimizer", "optimizers", "optimizer_state", "optimizer_states", "optimizer_state_dict", "optim"))
#: Any of these anywhere in a pickle: also what optimizers keep for each parameter.
OPTIMIZER_KEYS = OPTIMIZER_NAMES | {"exp_avg", "momentum_buffer"}
STORAGE_ITEM_BYTES = {
    "DoubleStorage": 8, "LongStorage": 8, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16, "FloatStorage": 4, "IntStorage": 4,
    "HalfStorage": 2, "BFloat16Storage": 2, "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
    "UntypedStorage": 1,
}  # fmt: skip


def is_dangerous(name: str) -> bool:
    """Whether a class or function of this full name belongs to a payload and to no trainer's state."""
    module, _, attribute = name.partition(".")
    is_builtin = module in ("builtins", "__builtin__") and attribute.split(".")[0] in DANGEROUS_BUILTINS
    return is_builtin or module in DANGEROUS_MODULES


class BadPickle(Exception):
    """The opcodes are no valid pickle. The text says why."""


class PickleTooLong(Exception):
    """More than is looked at here: nothing is wrong, nothing is proven."""


@dataclass(slots=True)
class Table:
    """A dictionary of the pickle: its text keys, at most ``MAX_TABLE_KEYS`` of them. A value is a text, a number, a bool, None,
    another ``Table``, an ``Items`` or ``OTHER``."""

    keys: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Items:
    """A list of the pickle: how many items it has."""

    count: int = 0


@dataclass
class PickleScan:
    """storages: key -> bytes that the tensors need (None when the type is unknown). top: what the pickle is, when a dictionary."""

    dangerous: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    storages: dict[str, int | None] = field(default_factory=dict)
    names_optimizer: bool = False
    top: Table = field(default_factory=Table)


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


_MARK = object()
#: Stands for every object that is neither a constant nor a container.
OTHER = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def scan(raw: bytes) -> PickleScan:
    """Walk one pickle; raises ``BadPickle`` or ``PickleTooLong``. Never imports, calls or builds anything that the pickle names."""
    if len(raw) > MAX_PICKLE_BYTES:
        raise PickleTooLong(f"it is longer than {MAX_PICKLE_BYTES} bytes")
    machine = _Machine()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(raw))):
            if number >= MAX_OPCODES:
                raise PickleTooLong(f"it has more than {MAX_OPCODES} opcodes")
            machine.step(opcode, argument)
            if number % 4096 == 0:
                machine.check_limits()
    except (ValueError, IndexError, OverflowError, UnicodeError, KeyError, EOFError) as error:
        raise BadPickle(f"its opcodes do not fit together ({type(error).__name__})") from error
    return machine.found


_CONTAINERS = frozenset(("EMPTY_DICT", "EMPTY_LIST", "DICT", "LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "REDUCE"))


def _fill_on_top(stack: list[Any], pairs: list[Any]) -> None:
    if not stack or stack[-1] is _MARK:
        raise IndexError("stack underflow")
    _fill(stack[-1], pairs)


def _fill(table: Any, pairs: list[Any]) -> None:
    if table is _MARK or len(pairs) % 2:
        raise ValueError("its items do not fit together")
    if not isinstance(table, Table):
        return
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if isinstance(key, str) and len(key) <= MAX_KEPT_TEXT and (key in table.keys or len(table.keys) < MAX_TABLE_KEYS):
            is_kept = isinstance(value, (int, float, Table, Items)) or (isinstance(value, str) and len(value) <= MAX_KEPT_TEXT)
            table.keys[key] = value if is_kept or value is None else OTHER


def _count_on_top(stack: list[Any], count: int) -> None:
    if not stack or stack[-1] is _MARK:
        raise IndexError("stack underflow")
    if isinstance(stack[-1], Items):
        stack[-1].count += count


class _Machine:
    """The pickle virtual machine on symbols: constants and small tuples are kept, everything else is ``OTHER``."""

    def __init__(self) -> None:
        self.found = PickleScan()
        self._stack: list[Any] = []
        self._containers = 0
        self._memo: dict[int, Any] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        name = opcode.name
        stack = self._stack
        if name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("GLOBAL", "INST"):
            module, _, attribute = argument.partition(" ")
            if name == "INST":
                self._pop_to_mark()
            stack.append(self._global(module, attribute))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            if not isinstance(module, str) or not isinstance(attribute, str):
                raise ValueError("a global's name is no text")
            stack.append(self._global(module, attribute))
        elif name in ("EXT1", "EXT2", "EXT4"):
            self.found.unexpected.add("a copyreg extension")
            stack.append(OTHER)
        elif name == "BINPERSID":
            self._storage(stack.pop())
            stack.append(OTHER)
        elif name == "TUPLE":
            items = self._pop_to_mark()
            stack.append(tuple(items) if len(items) <= 8 else OTHER)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            if len(stack) < count:
                raise IndexError("stack underflow")
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP":
            stack.pop()
        elif name == "STOP":
            if len(stack) != 1 or stack[0] is _MARK:
                raise ValueError("its result is not one object")
            if isinstance(stack[0], Table):
                self.found.top = stack[0]
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _CONTAINERS:
            self._container(name)
        else:
            self._generic(opcode, argument)

    def check_limits(self) -> None:
        """Raises ``PickleTooLong``."""
        if self._containers > MAX_CONTAINERS or len(self._stack) > MAX_STACK or len(self._memo) > MAX_MEMO:
            raise PickleTooLong("it holds more objects than are looked at")

    def _container(self, name: str) -> None:
        stack = self._stack
        self._containers += 1
        if name == "EMPTY_DICT":
            stack.append(Table())
        elif name == "EMPTY_LIST":
            stack.append(Items())
        elif name == "DICT":
            pairs = self._pop_to_mark()
            stack.append(Table())
            _fill(stack[-1], pairs)
        elif name == "LIST":
            stack.append(Items(len(self._pop_to_mark())))
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _fill(stack[-1], [key, value])
        elif name == "SETITEMS":
            _fill_on_top(stack, self._pop_to_mark())
        elif name == "APPEND":
            stack.pop()
            _count_on_top(stack, 1)
        elif name == "APPENDS":
            _count_on_top(stack, len(self._pop_to_mark()))
        else:
            stack.pop()
            called = stack.pop()
            is_table = isinstance(called, _Global) and called.name == "collections.OrderedDict"
            stack.append(Table() if is_table else OTHER)

    def _generic(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        before, after = opcode.stack_before, opcode.stack_after
        if pickletools.markobject in before:
            below = before.index(pickletools.markobject)
            self._pop_to_mark()
        else:
            below = len(before)
        if len(self._stack) < below:
            raise IndexError("stack underflow")
        if below:
            del self._stack[-below:]
        for _ in after:
            is_kept = isinstance(argument, (str, float)) or (isinstance(argument, int) and abs(argument) < MAX_NUMBER)
            self._stack.append(argument if is_kept else OTHER)
        if isinstance(argument, str) and argument in OPTIMIZER_KEYS:
            self.found.names_optimizer = True

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        items.reverse()
        return items

    def _global(self, module: str, attribute: str) -> _Global:
        name = f"{module}.{attribute}"
        if is_dangerous(name):
            self.found.dangerous.add(name)
        elif not EXPECTED_GLOBALS.match(name):
            self.found.unexpected.add(name)
        return _Global(name)

    def _storage(self, identity: Any) -> None:
        """torch's persistent id: ("storage", storage type, key, location, number of items)."""
        if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage"):
            return
        kind, key, count = identity[1], identity[2], identity[4]
        if not isinstance(key, str):
            return
        if not isinstance(count, int) or count < 0:
            raise ValueError("a storage of an impossible length")
        item_bytes = STORAGE_ITEM_BYTES.get(kind.name.rpartition(".")[2]) if isinstance(kind, _Global) else None
        self.found.storages[key] = None if item_bytes is None else count * item_bytes
