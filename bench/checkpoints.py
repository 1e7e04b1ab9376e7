"""What looking at checkpoints costs: every byte at the speed of disk or hash, 2,048 shards in seconds, little memory.

    python bench/checkpoints.py [--directory DIR] [--gib 2] [--files 8] [--shards 2048] [--repeat 3]

Each part runs in its own process, so that its peak memory is its own. ``read`` and ``hash`` are measured in the same run and on the
same files as ``content``, one right after the other, ``--repeat`` times; the share is the median of the rounds, since others may load
the machine.
Before each reading the files are dropped from the page cache. Writes a table for people, then one JSON line. Exit code 1 when a goal
is not met: content at 80 % of the lower of disk and hash, structure of the shards within 2 s, memory within 200 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "checkpoints"))

from trainvitals import manifest  # noqa: E402
from trainvitals.checkpoints import hashes, inspect  # noqa: E402
from trainvitals.checkpoints.content import Work  # noqa: E402
from trainvitals.checkpoints.files import opened  # noqa: E402
from trainvitals.checkpoints.hashes import BLOCK_BYTES, Pace  # noqa: E402
from trainvitals.checkpoints.verification import verify  # noqa: E402
from trainvitals.clock import SystemClock  # noqa: E402
from trainvitals.manifest import Manifest, ManifestFile  # noqa: E402
from trainvitals.records import VerificationLevel  # noqa: E402

GOALS = {"share": 0.8, "structure_s": 2.0, "memory_mb": 200.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", help="where the files are made (default: the system's directory for temporary files)")
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--shards", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--part", nargs=3, metavar=("NAME", "PATH", "ALGORITHM"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(measured(*arguments.part)))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="bench-checkpoints-", dir=arguments.directory))
    try:
        return run(directory, arguments)
    finally:
        shutil.rmtree(directory)


def run(directory: Path, arguments: argparse.Namespace) -> int:
    algorithms = [name for name in ("xxh3_128", "sha256") if hashes.is_available(name)]
    print(
        f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {arguments.gib} GiB in {arguments.files} files",
        flush=True,
    )
    results: dict[str, float] = {"load": os.getloadavg()[0]}
    failed = []
    print(
        f"{'proof':<22} {'read MB/s':>10} {'hash MB/s':>10} {'content MB/s':>13} {'share':>7}"
        f" {'read CPU':>9} {'hash CPU':>9} {'content CPU':>12} {'peak MB':>8}   (CPU: seconds a GiB)"
    )
    for kind, algorithm in [*(("manifest", name) for name in algorithms), ("checksum", "crc32"), ("first sight", "xxh3_128")]:
        if algorithm == "xxh3_128" and algorithm not in algorithms:
            continue
        path = make(directory / f"{kind}-{algorithm}" / "step_500", kind, algorithm, int(arguments.gib * 2**30), arguments.files)
        rounds = [{part: child(part, path, algorithm) for part in ("read", "hash", kind)} for _ in range(arguments.repeat)]
        shares = [one[kind]["mb_per_s"] / min(one["read"]["mb_per_s"], one["hash"]["mb_per_s"]) for one in rounds]
        share = statistics.median(shares)
        speeds = [statistics.median(one[part]["mb_per_s"] for one in rounds) for part in ("read", "hash", kind)]
        cpu = [min(one[part]["cpu_s"] for one in rounds) / arguments.gib for part in ("read", "hash", kind)]
        peak_mb = max(one[kind]["peak_mb"] for one in rounds)
        name = f"{kind} {algorithm}"
        print(
            f"{name:<22} {speeds[0]:>10.0f} {speeds[1]:>10.0f} {speeds[2]:>13.0f} {share:>7.0%}"
            f" {cpu[0]:>9.2f} {cpu[1]:>9.2f} {cpu[2]:>12.2f} {peak_mb:>8.0f}",
            flush=True,
        )
        results |= {f"{name} share": round(share, 3), f"{name} peak_mb": round(peak_mb)}
        if share < GOALS["share"]:
            failed.append(f"{name}: {share:.0%} of the limit")
        if peak_mb > GOALS["memory_mb"]:
            failed.append(f"{name}: {peak_mb:.0f} MB")
        shutil.rmtree(path.parent)
    sharded = make_shards(directory, arguments.shards)
    for part in ("structure", "structure content"):
        found = min((child(part, sharded, "") for _ in range(arguments.repeat)), key=lambda one: one["seconds"])
        print(
            f"{part} of {arguments.shards} shards: {found['seconds']:.2f} s ({found['cpu_s']:.2f} s of CPU), peak {found['peak_mb']:.0f} MB",
            flush=True,
        )
        results |= {f"{part} s": round(found["seconds"], 3), f"{part} cpu_s": round(found["cpu_s"], 3)}
        results |= {f"{part} peak_mb": round(found["peak_mb"])}
        if part == "structure" and found["seconds"] > GOALS["structure_s"]:
            failed.append(f"{part}: {found['seconds']:.2f} s")
        if found["peak_mb"] > GOALS["memory_mb"]:
            failed.append(f"{part}: {found['peak_mb']:.0f} MB")
    for text in failed:
        print(f"goal missed: {text}")
    print(json.dumps(results | {"failed": failed}))
    return 1 if failed else 0


def child(part: str, path: Path, algorithm: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--part", part, str(path), algorithm]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def measured(part: str, path: str, algorithm: str) -> dict[str, float]:
    size = sum(file.stat().st_size for file in Path(path).iterdir() if not file.name.startswith("ckpt_manifest"))
    if part != "hash":
        forget(path)
    begin_cpu_s = time.process_time()
    seconds = {"read": read, "hash": hash_only}.get(part, look)(part, path, algorithm)
    # Not ru_maxrss: that one starts with what the parent had.
    status = Path("/proc/self/status").read_text()
    peak_mb = int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    cpu_s = time.process_time() - begin_cpu_s
    return {"seconds": seconds, "cpu_s": cpu_s, "mb_per_s": size / seconds / 1e6, "peak_mb": peak_mb}


def look(part: str, path: str, algorithm: str) -> float:
    """What the product does."""
    clock = SystemClock()
    keeps = part in ("first sight", "structure content")
    work = Work(clock, Pace(clock), keeps_hashes=keeps)
    began_s = time.perf_counter()
    if part == "structure":
        report = inspect(path, "structure")
        expected = "structure"
    else:
        report = verify(path, VerificationLevel.CONTENT, work)[0].report
        expected = "structure" if keeps else "content"
    seconds = time.perf_counter() - began_s
    assert (report.state, report.level) == ("verified", expected), report
    return seconds


def read(part: str, path: str, algorithm: str) -> float:
    """The disk alone: blocks of the same size, given back in the same way, nothing done with them."""
    buffer = bytearray(BLOCK_BYTES)
    began_s = time.perf_counter()
    for file in sorted(Path(path).iterdir()):
        descriptor = os.open(file, os.O_RDONLY)
        offset = 0
        while count := os.readv(descriptor, [buffer]):
            os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)
            offset += count
        os.close(descriptor)
    return time.perf_counter() - began_s


def hash_only(part: str, path: str, algorithm: str) -> float:
    """The hash alone: one block in memory, as often as the files have blocks."""
    block = memoryview(os.urandom(BLOCK_BYTES))
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    taken = None if algorithm == "crc32" else hashes.new(algorithm)
    began_s = time.perf_counter()
    value = 0
    for _ in range(size // BLOCK_BYTES):
        if taken is None:
            value = hashes.crc32(block, value)
        else:
            taken.update(block)
    return time.perf_counter() - began_s


def forget(path: str) -> None:
    """Drop the files from the page cache: a checkpoint that is verified was written by another node, or long ago."""
    for file in Path(path).iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def make(path: Path, kind: str, algorithm: str, size: int, files: int) -> Path:
    """torch zips of one tensor each, with a manifest where that is the proof."""
    import zipfile

    path.mkdir(parents=True)
    block = os.urandom(BLOCK_BYTES)
    for number in range(files):
        with zipfile.ZipFile(path / f"mp_rank_{number:02d}.pt", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}.")
            with archive.open("archive/data/0", "w", force_zip64=True) as member:
                for _ in range(max(1, size // files // BLOCK_BYTES)):
                    member.write(block)
    if kind == "first sight":
        for file in path.iterdir():
            without_checksums(file)
    if kind == "manifest":
        listed = []
        for file in sorted(path.iterdir()):
            with opened(str(file)) as reader:
                digest = hashes.digest(reader, algorithm, Pace(SystemClock()))
            listed.append(ManifestFile(file.name, file.stat().st_size, digest))
        made = Manifest(run="bench", attempt=None, step=500, algorithm=algorithm, files=tuple(listed))
        (path / manifest.NAME).write_text(manifest.dump(made))
    return path


def without_checksums(file: Path) -> None:
    """As torch.serialization.set_crc32_options(False) leaves it."""
    import zipfile

    with zipfile.ZipFile(file) as archive:
        begin = archive.start_dir
    with file.open("r+b") as raw:
        raw.seek(begin)
        directory = bytearray(raw.read())
        at = directory.find(b"PK\x01\x02")
        while at >= 0:
            directory[at + 16 : at + 20] = bytes(4)
            at = directory.find(b"PK\x01\x02", at + 4)
        raw.seek(begin)
        raw.write(directory)


def make_shards(directory: Path, shards: int) -> Path:
    """A sharded checkpoint as torch writes it: one file a rank, 20 tensors in each."""
    import dcp_makers

    tensors = {f"model.layers.{number}.weight": 64 for number in range(10)}
    tensors |= {f"optimizer.state.layers.{number}.weight.exp_avg": 64 for number in range(10)}
    return dcp_makers.write(directory / "step-500", dcp_makers.parts(tensors, shards, dcp_makers.TORCHTITAN_OBJECTS))


if __name__ == "__main__":
    sys.exit(main())
