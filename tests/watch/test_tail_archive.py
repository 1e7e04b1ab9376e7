"""The ends of logs that are kept: bounded, causes first, whole directories or none."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import threading

from trainvitals.watch.tail_archive import KeptTail, TailBudget, write_archive

WRITER = """
import gzip, sys
from trainvitals.watch.tail_archive import KeptTail, write_archive
content = gzip.compress(bytes(range(256)) * 2000)
print("ready", flush=True)
while True:
    for attempt in (1, 2):
        tails = [KeptTail((0, 0), f"/x/rank{number}.err", content, 1, 0, {}) for number in range(20)]
        write_archive(sys.argv[1], attempt, tails, {}, 1)
"""


def test_the_size_is_limited_and_causes_are_kept_before_victims():
    budget = TailBudget(1000)
    for number in range(50):
        budget.add(KeptTail((99, number), f"noise{number}", b"x" * 100, 100, 0, {}))
    budget.add(KeptTail((0, 5), "cause", b"x" * 400, 400, 0, {}))
    budget.add(KeptTail((2, 7), "victim", b"x" * 400, 400, 0, {}))
    kept = budget.kept()
    assert [tail.path for tail in kept[:2]] == ["cause", "victim"]
    assert sum(len(tail.content) for tail in kept) <= 1000 and budget.given_up == 52 - len(kept)
    assert not budget.wants((99, 99)) or sum(len(tail.content) for tail in kept) < 1000


def test_only_the_newest_attempts_are_kept_and_what_a_kill_left_is_removed(tmp_path):
    left = tmp_path / "tails" / ".attempt-00001.4321"
    left.mkdir(parents=True)
    (left / "half.log.gz").write_bytes(b"x")
    tail = KeptTail((0, 0), "/x/rank0.err", gzip.compress(b"text"), 4, 0, {"faults": []})
    for attempt in (1, 2, 3, 10, 2):
        write_archive(str(tmp_path), attempt, [tail], {"run": "r"}, 3)
    assert sorted(path.name for path in (tmp_path / "tails").iterdir()) == ["attempt-00002", "attempt-00003", "attempt-00010"]


def test_a_kill_at_any_moment_leaves_whole_directories_or_none(tmp_path):
    chance = random.Random(4)
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            threading.Event().wait(chance.uniform(0.01, 0.15))
            process.kill()
        whole = list((tmp_path / "tails").glob("attempt-*"))
        for folder in whole:
            files = json.loads((folder / "index.json").read_text())["files"]
            assert len(files) == 20 and all(
                len(gzip.decompress((folder / file["name"]).read_bytes())) == 512_000 for file in files
            )
    write_archive(str(tmp_path), 3, [], {}, 1)
    assert [path.name for path in (tmp_path / "tails").iterdir()] == ["attempt-00003"]
