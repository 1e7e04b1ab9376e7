"""What a save left behind: its events in the hook's file and its manifest, compared with the files on the disk."""

from __future__ import annotations

import json

from trainvitals import manifest
from trainvitals.hook import hashing
from trainvitals.hook.checkpoint_files import files_of

WAIT_S = 30.0


def events(run_dir, kind="save", rank=0):
    lines = (run_dir / f"metrics.rank{rank:05d}.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record.get("kind") == kind]


def states(run_dir, rank=0):
    return [event["data"]["state"] for event in events(run_dir, rank=rank)]


def read(checkpoint):
    name = checkpoint / manifest.NAME if checkpoint.is_dir() else checkpoint.with_name(checkpoint.name + "." + manifest.NAME)
    return manifest.parse(name.read_bytes())


def assert_true(checkpoint):
    """The manifest says what is on the disk, and nothing of it is left out."""
    found = read(checkpoint)
    root = checkpoint if checkpoint.is_dir() else checkpoint.parent
    make = hashing.of_name(found.algorithm).make
    for file in found.files:
        content = (root / file.path).read_bytes()
        digest = make()
        digest.update(content)
        assert (file.size, file.hash) == (len(content), digest.hexdigest())
    assert [file.path for file in found.files] == sorted(files_of(str(checkpoint)))
    return found


def write(checkpoint, **files):
    checkpoint.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (checkpoint / name.replace("__", ".")).write_bytes(content)
