"""Random and damaged log lines, made from every grammar's own example and from the sample logs: new grammars are met by themselves."""

from __future__ import annotations

import random
from pathlib import Path

from trainvitals.logs.registry import GRAMMARS

_DATA = Path(__file__).parent / "data"
_NOISE = (
    b"\r", b"\x1b[32m", b"\x1b[0m", b"\x1b]0;", b"\0", b"\xff", b"12: ", b"[rank3]:", b"|", b"%|", b"{", b"}", b"'", b'"', b"[", b"nan",
    b"inf", b"1e999", b"-1", b"9" * 30, b"\xd9\xa1", b" ", b",", b":", b"=", b"Traceback", b"CUDA out of memory", b"\xe2\x96\x88",
)  # fmt: skip


def real_lines() -> list[bytes]:
    """Whole lines in the shape of every known format."""
    examples = [line.encode() for grammar in GRAMMARS.values() for line in grammar.example.splitlines()]
    samples = [line[:2000] for path in sorted(_DATA.iterdir()) if path.is_file() for line in path.read_bytes().split(b"\n")[:60]]
    return [line for line in dict.fromkeys(examples + samples) if line]


def mutated_lines(generator: random.Random, count: int, lines: list[bytes] | None = None) -> list[bytes]:
    """``count`` lines: a fifth as they are, a tenth of random bytes, the rest cut, joined, with noise, bytes lost or doubled."""
    known = lines or real_lines()
    made = []
    for _ in range(count):
        line = generator.choice(known)
        kind = generator.randrange(10)
        at = generator.randrange(len(line) + 1)
        if kind == 2:
            line = generator.randbytes(generator.randrange(200)).replace(b"\n", b" ")
        elif kind == 3:
            line = line[:at]
        elif kind == 4:
            line = line[at:]
        elif kind == 5:
            line = line[:at] + generator.choice(known)[at:]
        elif kind == 6:
            line = line[:at] + generator.choice(_NOISE) + line[at:]
        elif kind == 7:
            line = line[:at] + line[at + generator.randrange(1, 9) :]
        elif kind == 8:
            line = line[:at] + generator.choice(known) + line[at:]
        elif kind == 9:
            line = bytes(byte ^ (1 << generator.randrange(8)) if generator.randrange(40) == 0 else byte for byte in line)
        made.append(line)
    return made
