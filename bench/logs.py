"""How fast logs are read, beside a bare ``split("|")`` of the same lines; and what following live files costs.

    python bench/logs.py [--lines 200000] [--repeats 3] [--follow-s 20] [--directory DIR]
    python bench/logs.py --fuzz [--lines 1000000]

Makes its own Megatron log of full-size lines (about 400 bytes) and reads it on one core: framing, framing + records, and
the ``parse`` command writing JSON lines to /dev/null. Following: a file that grows by a line a second, looked at each 0.5 s as
``watch`` does, alone and among 63 others, a tenth of which grow. Prints a table and one JSON line. ``--fuzz`` reads random and
mutated lines of every grammar instead, and says what they cost and how much memory stayed. Compare within one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.logs.mutations import mutated_lines, real_lines  # noqa: E402
from trainvitals.logs.framing import LineFramer  # noqa: E402
from trainvitals.logs.parser import Parser  # noqa: E402
from trainvitals.logs.registry import GRAMMARS  # noqa: E402
from trainvitals.logs.tail import LogSource  # noqa: E402
from trainvitals.records import Step  # noqa: E402

CHUNK_BYTES = 1 << 18
POLL_S = 0.5


def megatron_line(step: int) -> str:
    """A full-size iteration line with made-up numbers, one second after the one before."""
    hour, minute, second = step // 3600 % 24, step // 60 % 60, step % 60
    return (
        f" [2026-01-02 {hour:02d}:{minute:02d}:{second:02d}.{step * 7919 % 1_000_000:06d}] iteration {step:8d}/ 5000000 |"
        f" consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {900 + step * 37 % 1000 / 10:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {150 + step * 13 % 100 / 10:.1f} | learning rate: {3e-4 / (1 + step / 1e5):.6E} |"
        f" global batch size: {512:5d} | lm loss: {2 + 1 / (1 + step / 1000) + step * 31 % 997 / 1e4:.6E} | loss scale: 1.0 |"
        f" grad norm: {0.5 + step * 17 % 101 / 500:.3f} | num zeros: {step * 3 % 1000:.1f} | params norm: {1000 + step / 1e3:.3f} |"
        f" number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |\n"
    )


def best_s(work: Callable[[], None], repeats: int) -> float:
    """CPU seconds of the fastest of some repeats."""
    took = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def reading(path: Path, lines: int, repeats: int) -> dict[str, float]:
    """Lines a second on one core."""
    data = path.read_bytes()
    chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    text = data.decode().split("\n")

    def split() -> None:
        for line in text:
            line.split("|")

    def frame() -> None:
        framer = LineFramer()
        for chunk in chunks:
            framer.feed_located(chunk)

    def parse() -> None:
        parser = Parser()
        steps = sum(isinstance(record, Step) for chunk in chunks for record in parser.feed(chunk))
        if steps != lines:
            raise SystemExit(f"{steps} steps were read from {lines} lines")

    def command() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Path(os.devnull).open("w") as sink:
            subprocess.run([sys.executable, "-m", "trainvitals", "parse", str(path)], cwd=ROOT, stdout=sink, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return {
        'split("|")': lines / best_s(split, repeats),
        "framing": lines / best_s(frame, repeats),
        "framing + records": lines / best_s(parse, repeats),
        "parse command, start included": lines / min(command() for _ in range(repeats)),
    }


def following(directory: Path, files: int, seconds: float) -> float:
    """Share of a core, in percent."""
    paths = [directory / f"follow-{files}" / f"rank{number}.log" for number in range(files)]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        path.write_text("".join(megatron_line(step) for step in range(1 + number, 200 + number)))
    source = LogSource([str(paths[0].parent / "*.log")])
    while source.poll():
        pass
    began_s = time.monotonic()
    used_s = 0.0
    step = 1000
    while (now_s := time.monotonic()) - began_s < seconds:
        step += 1
        for path in paths[:: 1 if files == 1 else 10] if step % 2 else ():
            with path.open("a") as file:
                file.write(megatron_line(step))
        before_s = time.process_time()
        source.poll()
        used_s += time.process_time() - before_s
        time.sleep(max(0.0, now_s + POLL_S - time.monotonic()))
    source.close()
    return 100 * used_s / (time.monotonic() - began_s)


def fuzz(lines: int, seed: int) -> dict[str, float]:
    """Random and mutated lines through a parser that finds the format, and through one of each format, in turns."""
    generator = random.Random(seed)
    known = real_lines()
    parsers = [Parser(format) for format in ("auto", *GRAMMARS)]
    fed = steps = turn = base_kib = 0
    began_s = time.process_time()
    while fed < lines:
        parser = parsers[0] if turn % 2 else parsers[turn // 2 % len(parsers)]
        turn += 1
        batch = mutated_lines(generator, 1000, known)
        fed += len(batch)
        steps += sum(isinstance(record, Step) for record in parser.feed(b"\n".join(batch) + b"\n"))
        if not base_kib and (fed >= lines // 2 or turn >= 6 * len(parsers)):
            base_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base_kib
    counters: dict[str, float] = {}
    for parser in parsers:
        for name, count in parser.counters.items():
            counters[name] = counters.get(name, 0) + count
    took_s = round(time.process_time() - began_s, 1)
    return {
        "lines": fed,
        "steps": steps,
        "CPU s": took_s,
        "peak memory grew once all formats had three turns, MiB": grown_kib / 1024,
        **counters,
    }


def main() -> None:
    """Prints a table and one JSON line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=0)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--follow-s", type=float, default=20.0)
    options.add_argument("--directory")
    options.add_argument("--fuzz", action="store_true")
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    if args.fuzz:
        print(json.dumps(fuzz(args.lines or 1_000_000, args.seed)))
        return
    lines = args.lines or 200_000
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        directory = Path(name)
        path = directory / "megatron.log"
        path.write_text("".join(megatron_line(step) for step in range(1, lines + 1)))
        rates = reading(path, lines, args.repeats)
        shares = {f"following {files} file{'s' * (files > 1)}": following(directory, files, args.follow_s) for files in (1, 64)}
    print(f"{lines:,} lines of {len(megatron_line(lines))} bytes, best of {args.repeats}, CPU time\n")
    for what, rate in rates.items():
        print(f"{what:32}{rate:12,.0f} lines/s {1e6 / rate:8.2f} us a line")
    for what, share in shares.items():
        print(f"{what:32}{share:12.2f} % of a core")
    print(
        json.dumps(
            {**{what: round(rate) for what, rate in rates.items()}, **{what: round(share, 3) for what, share in shares.items()}}
        )
    )


if __name__ == "__main__":
    main()
