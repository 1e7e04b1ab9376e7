"""What can happen to a checkpoint, what must find it, and at which level (checkpoint research, A2).

Damage that no level can see without the writer's hashes is tried with a manifest; what a layout's own files show, without one.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import checkpoint_makers as make
import content_makers as made
import dcp_makers as dcp
import large_run_makers as large
import layout_makers
import pytest

from trainvitals.checkpoints import CheckpointWatcher, inspect, load
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.schedule import Policy
from trainvitals.checkpoints.verifier import Verifier
from trainvitals.clock import ManualClock

BAD = ("incomplete", "corrupt")
#: Whole checkpoint directories of every layout: how to write one below a directory.
WHOLE: dict[str, Callable[[Path], Path]] = {
    name: write for name, (_, _, write) in layout_makers.SAMPLES.items() if write.__qualname__.startswith("in_directory")
} | {
    "megatron dist": layout_makers.in_directory("iter_0000500", lambda: large.megatron_dist()),
    "megatron dist with integrity.json": layout_makers.in_directory("iter_0000500", lambda: large.megatron_dist(integrity=True)),
    "megatron legacy": layout_makers.in_directory("iter_0000500", lambda: large.megatron_legacy()),
    "deepspeed": layout_makers.in_directory("global_step500", lambda: large.deepspeed()),
    "deepspeed stage 3": layout_makers.in_directory("global_step500", lambda: large.deepspeed(stage=3)),
    "accelerate fsdp": layout_makers.in_directory("checkpoint_3", lambda: large.accelerate()),
    "huggingface fsdp": layout_makers.in_directory("checkpoint-500", lambda: large.huggingface_fsdp()),
    "huggingface deepspeed": layout_makers.in_directory("checkpoint-500", lambda: large.huggingface_deepspeed()),
}  # fmt: skip
DIRECTORIES = list(WHOLE)


def hole(raw: bytes) -> bytes:
    begin, end = len(raw) // 3, 2 * len(raw) // 3
    return raw[:begin] + bytes(end - begin) + raw[end:]


#: What -> (how it changes a file's bytes, whether the manifest's sizes show it without reading).
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "bit flip": (lambda raw: made.flipped(raw, len(raw) // 2), False),
    "zero hole": (hole, False),
    "zero tail": (lambda raw: raw[: len(raw) * 3 // 4] + bytes(len(raw) - len(raw) * 3 // 4), False),
    "another step of the same size": (lambda raw: bytes(byte ^ 0x55 for byte in raw), False),
    "one byte less": (lambda raw: raw[:-1], True),
    "one byte more": (lambda raw: raw + b"\0", True),
    "half": (lambda raw: raw[: len(raw) // 2], True),
    "empty": (lambda raw: b"", True),
}


def whole(sample: str, parent: Path) -> tuple[Path, int]:
    """A whole checkpoint directory with a manifest, and its step."""
    path = WHOLE[sample](parent)
    step = inspect(str(path)).step or 0
    made.write_manifest(path, step)
    return path, step


@pytest.mark.parametrize("sample", DIRECTORIES)
def test_every_whole_checkpoint_with_a_manifest_is_proven_at_level_content(tmp_path, sample):
    path, _ = whole(sample, tmp_path)
    report = inspect(str(path), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "manifest")
    assert not any("compared" in reason or "proven" in reason for reason in report.reasons)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("sample", DIRECTORIES)
def test_every_damage_to_any_file_is_found_by_the_manifest_and_the_file_is_named(tmp_path, sample, damage):
    path, _ = whole(sample, tmp_path)
    change, shows_in_size = DAMAGES[damage]
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name == "ckpt_manifest.json":
            continue
        before = file.read_bytes()
        if change(before) == before:
            continue
        file.write_bytes(change(before))
        report = inspect(str(path), "content")
        assert report.state in BAD, (file.name, report)
        assert any(file.name in reason for reason in report.reasons), (file.name, report.reasons)
        if shows_in_size:
            assert inspect(str(path), "structure").state in BAD, file.name
        file.write_bytes(before)
    assert inspect(str(path), "content").level == "content"


@pytest.mark.parametrize("sample", DIRECTORIES)
def test_every_missing_file_is_found_by_the_manifest_at_level_structure(tmp_path, sample):
    path, _ = whole(sample, tmp_path)
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.name != "ckpt_manifest.json":
            before = file.read_bytes()
            file.unlink()
            report = inspect(str(path))
            assert report.state in BAD, (file.name, report)
            file.write_bytes(before)


@pytest.mark.parametrize("sample", [name for name in layout_makers.SAMPLES if name not in DIRECTORIES])
def test_a_flipped_bit_in_a_tensor_of_any_torch_file_is_found_by_its_own_checksum(tmp_path, sample):
    path = layout_makers.SAMPLES[sample][2](tmp_path)
    before = path.read_bytes()
    if not before.startswith(b"PK"):
        pytest.skip("no checksums in this format: only hashes show it")
    assert inspect(str(path), "content").level == "content"
    path.write_bytes(made.flipped(before, made.data_offset(before) + 3))
    assert inspect(str(path), "structure").state == "verified"
    report = inspect(str(path), "content")
    assert report.state == "corrupt"
    assert "does not match its checksum" in report.reasons[0]


def test_a_flipped_bit_in_a_shard_is_found_by_the_checksums_of_its_entries_without_a_manifest(tmp_path):
    path = dcp.torchtitan(tmp_path)
    before = (path / "__1_0.distcp").read_bytes()
    (path / "__1_0.distcp").write_bytes(made.flipped(before, before.index(bytes(range(20))) + 5))
    assert inspect(str(path), "structure").state == "verified"
    report = inspect(str(path), "content")
    assert report.state == "corrupt"
    assert "__1_0.distcp: zip member archive/data/0 does not match its checksum" in report.reasons[0]


def test_a_shard_of_another_step_with_the_same_size_is_found_by_the_manifest_only(tmp_path):
    path = dcp.torchtitan(tmp_path)
    made.write_manifest(path, 500)
    other = path / "__1_0.distcp"
    stat = other.stat()
    entry = dcp.entry_bytes(64)
    values = bytes(index % 251 for index in range(256))
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", values[::-1])
        archive.writestr("archive/version", "3\n")
    assert len(buffer.getvalue()) == len(entry)
    other.write_bytes(other.read_bytes().replace(entry, buffer.getvalue()))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert inspect(str(path), "structure").state == "verified"
    report = inspect(str(path), "content")
    assert report.state == "corrupt"
    assert "__1_0.distcp: its content is not what ckpt_manifest.json says" in report.reasons[0]


def test_old_metadata_beside_new_shards_is_suspect_at_structure_and_damage_by_the_manifest(tmp_path):
    path = dcp.torchtitan(tmp_path, modified_s=1_000)
    made.write_manifest(path, 500)
    os.utime(path / "ckpt_manifest.json", (1_500, 1_500))
    for name in ("__0_0.distcp", "__1_0.distcp"):
        raw = (path / name).read_bytes()
        (path / name).write_bytes(raw.replace(bytes(range(1, 9)), bytes(range(2, 10))))
        os.utime(path / name, (2_000, 2_000))
    report = inspect(str(path), "structure")
    assert report.state != "verified", report
    report = inspect(str(path), "content")
    assert report.state == "corrupt"
    assert "changed after ckpt_manifest.json was written" in report.reasons[0]


@pytest.mark.parametrize(
    ("what", "level", "change", "expected"),
    [
        ("step inside", "structure", lambda parts: parts | {"trainer_state.json": b'{"global_step": 400}'}, BAD),
        ("missing rng", "presence", lambda parts: {n: c for n, c in parts.items() if not n.startswith("rng_state")}, BAD),
        ("one rank's rng", "presence", lambda parts: {n: c for n, c in parts.items() if n != "rng_state_0.pth"}, BAD),
        ("missing shard", "presence", lambda parts: {n: c for n, c in parts.items() if "00001-of" not in n}, BAD),
        ("marker", "presence", lambda parts: {n: c for n, c in parts.items() if n != "trainer_state.json"}, BAD),
        ("leftover", "structure", lambda parts: parts | {".tmpAbCdE": b"x"}, ("verified",)),
    ],
)  # fmt: skip
def test_what_the_names_and_the_documents_show_needs_no_hashes(tmp_path, what, level, change, expected):
    path = make.write_parts(tmp_path / "checkpoint-500", change(make.huggingface_parts(500, shards=2, ranks=2)))
    assert inspect(str(path), level).state in expected, what


def test_a_missing_optimizer_is_a_fact_at_structure_and_no_damage(tmp_path):
    report = inspect(str(made.huggingface_with_manifest(tmp_path, 500, optimizer=False)), "content")
    assert (report.state, report.has_optimizer, report.level) == ("verified", False, "content")


def test_weights_that_are_not_finite_are_found_at_level_load_behind_a_manifest_that_agrees(tmp_path):
    path = tmp_path / "step_500"
    path.mkdir()
    (path / "model.pt").write_bytes(made.torch_zip_with({"w.weight": [float("nan")] * 2_000}, optimizer=True))
    made.write_manifest(path, 500)
    assert inspect(str(path), "content").level == "content"
    report = inspect(str(path), "load", limits=load.Limits(tries_torch=False))
    assert (report.state, report.level) == ("corrupt", "content")
    assert "model.w.weight in model.pt holds NaN" in report.reasons[0]


class Watched:
    """The whole watcher with contents, in the calling thread, and a clock that is moved."""

    def __init__(self, directory: Path, kept: Path) -> None:
        self.clock = ManualClock()
        verifier = Verifier(HashStore(str(kept)), self.clock, Policy(loads="off"), in_thread=False)
        self.watcher = CheckpointWatcher([str(directory)], self.clock, verifier=verifier)
        self.seen: set[str] = set()

    def scan(self, times: int = 1) -> dict[str, str]:
        for _ in range(times):
            self.clock.advance(10)
            self.watcher.scan()
            states = {os.path.basename(one.path): str(one.state) for one in self.watcher.reports}
            self.seen |= set(states.values())
        return states


@pytest.mark.parametrize("sample", [name for name in DIRECTORIES if name != "olmo unsharded"])
def test_a_save_in_progress_is_no_damage_at_any_byte_and_one_that_died_at_a_file_is_never_proven(tmp_path, sample):
    """With the manifest last, as the hook writes it, and an older checkpoint beside it that stays proven."""
    source, _ = whole(sample, tmp_path / "source")
    mtimes = {file: file.stat().st_mtime_ns for file in source.rglob("*") if file.is_file()}
    order = sorted(mtimes, key=lambda file: (file.name == "ckpt_manifest.json", mtimes[file]))
    target = tmp_path / "run" / source.name
    target.mkdir(parents=True)
    watched = Watched(tmp_path / "run", tmp_path / "kept")
    for number, file in enumerate(order):
        content = file.read_bytes()
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        for kept in (0, len(content) // 2, len(content)):
            copy.write_bytes(content[:kept])
            os.utime(copy, (2_000_000_000 + number,) * 2)
            watched.scan()
        if file is not order[-1]:
            died = inspect(str(target), "content")
            assert died.level != "content" or died.proof != "manifest", (file.name, died)
    assert not watched.seen & set(BAD), watched.seen
    watched.scan(4)
    report = watched.watcher.reports[0]
    assert (str(report.state), report.level, report.proof) == ("verified", "content", "manifest"), report.reasons


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("sample", DIRECTORIES)
def test_a_deletion_in_progress_is_no_damage(tmp_path, sample, order):
    path, _ = whole(sample, tmp_path / "run")
    make.huggingface(tmp_path / "run", 900_000)
    watched = Watched(tmp_path / "run", tmp_path / "kept")
    watched.scan(3)
    watched.seen.clear()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for file in files if order == "forward" else files[::-1]:
        file.unlink()
        watched.scan()
    import shutil

    shutil.rmtree(path)
    watched.scan(3)
    assert not watched.seen & set(BAD), watched.seen


def test_the_whole_matrix_is_told_as_json_too(tmp_path, capsys):
    from trainvitals.__main__ import main

    path = made.huggingface_with_manifest(tmp_path, 500)
    raw = (path / "optimizer.pt").read_bytes()
    (path / "optimizer.pt").write_bytes(made.flipped(raw, made.data_offset(raw)))
    assert main(["checkpoint", "verify", str(tmp_path), "--level", "content", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["level"], told["proof"]) == ("corrupt", "structure", None)
