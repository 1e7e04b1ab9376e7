import hashlib
import json
import os
import random

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.checkpoints import hashes
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import opened
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hashes import Pace, Stopped
from trainvitals.checkpoints.verification import inspect, verify
from trainvitals.clock import ManualClock
from trainvitals.records import VerificationLevel

CONTENT = VerificationLevel.CONTENT
CLOCK = ManualClock()


def work_of(clock=None, **options):
    clock = clock or ManualClock()
    return Work(clock, Pace(clock), **options)


def looked(path, record=None, clock=None):
    """A look that keeps hashes, as watch does it."""
    clock = clock or CLOCK
    clock.advance(1)
    work = work_of(clock, record=record or HashRecord(str(path)), keeps_hashes=True, read_since_ns=clock.time_ns())
    inspection, kept = verify(str(path), CONTENT, work)
    return inspection.report, kept


def test_a_checkpoint_is_proven_by_its_manifest(tmp_path):
    report = inspect(str(made.huggingface_with_manifest(tmp_path, 500, shards=2)), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "manifest")
    assert report.verified_at_ns is not None
    assert report.reasons == ()


def test_a_flipped_bit_in_any_file_is_found_by_the_manifest_and_named(tmp_path):
    for name, content in make.huggingface_parts(500, shards=2, ranks=2).items():
        directory = made.huggingface_with_manifest(tmp_path / name, 500, shards=2, ranks=2)
        at = len(content) * 2 // 3
        (directory / name).write_bytes(made.flipped(content, at))
        report = inspect(str(directory), "content")
        assert report.state == "corrupt", name
        assert name in report.reasons[0]


@pytest.mark.parametrize("change", ["missing", "longer", "of another step"])
def test_a_file_that_is_not_what_the_manifest_says_is_told_with_what_was_expected(tmp_path, change):
    directory = made.huggingface_with_manifest(tmp_path, 500)
    other = make.huggingface_parts(500)
    file = directory / "optimizer.pt"
    if change == "missing":
        file.unlink()
        (directory / "scheduler.pt").unlink()
        (directory / "rng_state.pth").unlink()
    elif change == "longer":
        file.write_bytes(make.torch_zip_bytes(storages=(17, 8)))
    else:
        file.write_bytes(other["optimizer.pt"].replace(bytes(range(1, 9)), bytes(range(2, 10))))
    report = inspect(str(directory), "structure")
    if change == "of another step":
        assert report.state == "verified"  # same size: only the hash tells
        report = inspect(str(directory), "content")
    assert report.state == ("incomplete" if change == "missing" else "corrupt")
    assert any("optimizer.pt" in reason for reason in report.reasons)


def test_a_manifest_of_another_step_or_run_is_told(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    made.write_manifest(directory, 400, run="elsewhere")
    report = inspect(str(directory))
    assert report.state == "complete"
    assert "ckpt_manifest.json is of step 400, the checkpoint is of step 500" in report.reasons[0]
    made.write_manifest(directory, 500, run="elsewhere")
    inspection, _ = verify(str(directory), CONTENT, work_of(run="mine"))
    assert (inspection.report.state, inspection.report.level) == ("verified", "content")
    assert "ckpt_manifest.json was written by run elsewhere" in inspection.report.reasons


def test_the_parts_of_the_ranks_prove_a_checkpoint_whose_manifest_was_not_merged(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    names = sorted(path.name for path in directory.iterdir())
    made.write_manifest(directory, 500, rank=0, names=names[:3])
    made.write_manifest(directory, 500, rank=1, names=names[3:])
    assert inspect(str(directory), "content").proof == "manifest"


def test_a_manifest_that_names_nothing_proves_nothing(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    made.write_manifest(directory, 500, names=[])
    report = inspect(str(directory), "content")
    assert (report.state, report.level, report.proof) == ("verified", "structure", "")


def test_a_shard_that_the_manifest_does_not_name_must_be_proven_otherwise_and_a_readme_not(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path, 500)
    (directory / "README.md").write_text("hello")
    report = inspect(str(directory), "content")
    assert (report.level, report.reasons) == ("content", ("README.md is not in ckpt_manifest.json and not compared",))
    (directory / "extra.safetensors").write_bytes(make.safetensors_bytes({"w": ("F32", (4,))}))
    report = inspect(str(directory), "content")
    assert report.level == "structure"
    assert "extra.safetensors" in " ".join(report.reasons)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[" * 300_000, b"[1," * 100_000, b'{"schema":1}', b'{"schema":9}', b"\xff\xfe", b"{" * 100_000, b"null"],
    ids=["empty", "torn", "deep", "deep commas", "bare", "future", "binary", "braces", "null"],
)
def test_a_hostile_manifest_is_damage_in_a_sentence(tmp_path, text):
    directory = make.huggingface(tmp_path, 500)
    (directory / "ckpt_manifest.json").write_bytes(text)
    report = inspect(str(directory), "content")
    assert report.state == "corrupt"
    assert "ckpt_manifest.json" in report.reasons[0]


def test_a_manifest_never_makes_anybody_open_a_file_outside(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    (tmp_path / "secret").write_bytes(b"x")
    for path in ("../secret", "/etc/passwd", "a/../../secret"):
        document = {"schema": 1, "algorithm": "sha256", "step": 500, "files": [{"path": path, "size": 1, "hash": "0" * 64}]}
        (directory / "ckpt_manifest.json").write_text(json.dumps(document))
        assert inspect(str(directory), "content").state == "corrupt"


def test_a_manifest_that_is_a_fifo_or_a_link_out_is_not_opened(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    os.mkfifo(directory / "ckpt_manifest.json")
    assert inspect(str(directory), "content").state == "incomplete"


def test_checksums_inside_torch_zips_prove_a_single_file(tmp_path):
    path = tmp_path / "ckpt_500.pt"
    raw = make.torch_zip_bytes()
    path.write_bytes(raw)
    report = inspect(str(path), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "checksum")
    path.write_bytes(made.flipped(raw, made.data_offset(raw) + 9))
    assert inspect(str(path)).state == "verified"  # as torch.load does not see it
    report = inspect(str(path), "content")
    assert (report.state, report.level) == ("corrupt", "structure")
    assert "zip member archive/data/0 does not match its checksum" in report.reasons[0]


def test_a_zero_hole_in_tensor_data_is_found_by_the_checksum(tmp_path):
    raw = make.torch_zip_bytes(storages=(4_096,))
    at = made.data_offset(raw)
    path = tmp_path / "ckpt_500.pt"
    path.write_bytes(raw[: at + 4096] + bytes(4096) + raw[at + 8192 :])
    assert inspect(str(path), "content").state == "corrupt"


def test_checksums_that_torch_was_told_not_to_write_are_no_damage_and_no_proof(tmp_path):
    path = tmp_path / "ckpt_500.pt"
    path.write_bytes(made.without_checksums(make.torch_zip_bytes()))
    report = inspect(str(path), "content")
    assert (report.state, report.level, report.proof) == ("verified", "structure", "")
    assert "without any checksum" in " ".join(report.reasons)


def test_without_any_proof_the_level_stays_structure_and_the_reason_names_files(tmp_path):
    report = inspect(str(make.huggingface(tmp_path, 500)), "content")
    assert (report.state, report.level) == ("verified", "structure")
    assert "config.json, model.safetensors, trainer_state.json are without any checksum" in report.reasons[0]


def test_hashes_of_the_first_sight_count_from_the_second_look_on(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    clock = ManualClock()
    report, record = looked(directory, clock=clock)
    assert report.level == "structure"
    assert "hashed now for the first time" in " ".join(report.reasons)
    report, record = looked(directory, record, clock)
    assert (report.level, report.proof) == ("content", "first_seen")
    assert record.files["model.safetensors"].comparisons == 1


def test_a_change_without_a_new_modification_time_is_found_by_the_first_hash(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    _, record = looked(directory)
    file = directory / "model.safetensors"
    before = file.stat()
    file.write_bytes(made.flipped(file.read_bytes(), before.st_size - 5))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    report, _ = looked(directory, record)
    assert report.state == "corrupt"
    assert "model.safetensors: changed since it was first seen" in report.reasons[0]


def test_a_file_that_was_written_again_is_seen_for_the_first_time_again(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    _, record = looked(directory)
    file = directory / "model.safetensors"
    file.write_bytes(made.flipped(file.read_bytes(), file.stat().st_size - 5))
    os.utime(file, ns=(1, 2))
    report, record = looked(directory, record)
    assert (report.state, report.level) == ("verified", "structure")
    assert record.files["model.safetensors"].comparisons == 0
    assert record.files["config.json"].comparisons == 1


def test_a_touched_file_with_the_same_bytes_keeps_its_history(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    _, record = looked(directory)
    os.utime(directory / "model.safetensors", ns=(1, 2))
    report, record = looked(directory, record)
    assert report.proof == "first_seen"


def test_a_hash_that_needs_a_library_that_is_not_here_is_no_proof_and_no_damage(tmp_path, monkeypatch):
    directory = made.huggingface_with_manifest(tmp_path, 500)
    path = directory / "ckpt_manifest.json"
    path.write_text(path.read_text().replace('"sha256"', '"blake3"'))
    monkeypatch.setitem(hashes._MAKERS, "blake3", None)
    report = inspect(str(directory), "content")
    assert (report.state, report.level) == ("verified", "structure")
    assert "hashed by the writer with blake3, which is not installed here" in " ".join(report.reasons)


def test_hashes_of_every_library_are_the_hashes_of_the_standard(tmp_path):
    content = random.Random(1).randbytes(hashes.BLOCK_BYTES + 12_345)
    (tmp_path / "f").write_bytes(content)
    import zlib

    xxhash = pytest.importorskip("xxhash")
    with opened(str(tmp_path / "f")) as reader:
        pace = Pace(ManualClock())
        assert hashes.digest(reader, "sha256", pace) == hashlib.sha256(content).hexdigest()
        assert hashes.digest(reader, "xxh3_128", pace) == xxhash.xxh3_128(content).hexdigest()
        assert hashes.checksum(reader, pace, 5, 1_000_000) == zlib.crc32(content[5:1_000_005])


def test_a_legacy_torch_file_is_proven_by_a_manifest_although_its_structure_cannot_be(tmp_path):
    from trainvitals.checkpoints.torch_file import LEGACY_START

    directory = make.huggingface(tmp_path, 500)
    (directory / "optimizer.pt").write_bytes(LEGACY_START + b"rest")
    assert inspect(str(directory)).state == "complete"
    made.write_manifest(directory, 500)
    report = inspect(str(directory), "content")
    assert (report.state, report.level, report.reasons) == ("verified", "content", ())


def test_the_pace_is_kept_over_many_small_files_and_unused_time_is_not_saved_up(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(bytes(500_000))
    clock = ManualClock()
    pace = Pace(clock, mb_per_s=1.0)
    clock.advance(1_000)
    began_s = clock.monotonic_s()
    for number in range(20):
        with opened(str(tmp_path / f"{number}")) as reader:
            hashes.digest(reader, "sha256", pace)
    assert 9.0 <= clock.monotonic_s() - began_s <= 10.5
    assert pace.bytes == 10_000_000


def test_a_look_that_is_stopped_goes_on_where_it_was(tmp_path):
    directory = make.huggingface(tmp_path, 500, shards=3)
    clock = ManualClock()
    kept = []
    budget = 8

    def stop():
        nonlocal budget
        budget -= 1
        return budget < 0

    began_ns = clock.time_ns()
    work = Work(clock, Pace(clock, stop=stop), HashRecord(str(directory)), True, began_ns, kept.append)
    with pytest.raises(Stopped):
        verify(str(directory), CONTENT, work)
    assert 0 < len(kept[-1].files) < 9
    clock.advance(60)
    pace = Pace(clock)
    _, record = verify(str(directory), CONTENT, Work(clock, pace, kept[-1], True, began_ns))
    assert len(record.files) == 10
    assert pace.bytes == sum(one.size for name, one in record.files.items() if name not in kept[-1].files)


def test_a_wrong_read_that_is_right_the_second_time_is_told_and_no_damage(tmp_path, monkeypatch):
    from trainvitals.checkpoints.file_pass import FilePass

    directory = made.huggingface_with_manifest(tmp_path, 500)
    real = FilePass.run
    calls = []

    def once_wrong(self, reader, pace):
        result = real(self, reader, pace)
        calls.append(1)
        if len(calls) == 1:
            result.hash = "0" * 64
        return result

    monkeypatch.setattr(FilePass, "run", once_wrong)
    report = inspect(str(directory), "content")
    assert (report.state, report.level) == ("verified", "content")
    assert "read wrong once and right the second time" in report.reasons[0]
