import contextlib
import hashlib
import json
import os

import checkpoint_makers as make
import content_makers as made
import dcp_makers as dcp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals import manifest
from trainvitals.checkpoints import hash_record, hash_store
from trainvitals.checkpoints.content import Work, share_of
from trainvitals.checkpoints.files import Entry
from trainvitals.checkpoints.hash_record import FileRecord, HashRecord
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.verification import inspect, verify
from trainvitals.clock import ManualClock
from trainvitals.records import ContentProof, VerificationLevel

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


def test_shares_are_disjoint_together_all_and_of_about_equal_size():
    entries = [Entry(f"f{number}", (number * 7919) % 1_000, 0) for number in range(300)]
    parts = [share_of(entries, (number, 7)) for number in range(1, 8)]
    assert sorted(entry.name for part in parts for entry in part) == sorted(entry.name for entry in entries)
    sizes = [sum(entry.size for entry in part) for part in parts]
    assert max(sizes) - min(sizes) < 1_100


def test_shares_of_other_nodes_need_not_be_read_again_and_are_not_believed_when_they_contradict(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path / "shared", 500, shards=3)
    records = []
    for number in (1, 2):
        inspection, record = verify(str(directory), CONTENT, work_of(keeps_hashes=True, read_since_ns=1, share=(number, 2)))
        assert inspection.report.level == "structure"
        records.append(record)
    clock = ManualClock()
    own = hash_record.with_shares(HashRecord(str(directory)), records, verify_listing(directory), clock.time_ns())
    pace = Pace(clock)
    inspection, _ = verify(str(directory), CONTENT, Work(clock, pace, own, True, clock.time_ns()))
    assert (inspection.report.level, inspection.report.proof, pace.bytes) == ("content", "manifest", 0)
    # A lie: the file is read here, and the manifest decides.
    lie = HashRecord(
        str(directory),
        {
            name: FileRecord(one.size, one.modified_at_ns, "sha256", "0" * 64, 1, clock.time_ns())
            for name, one in records[0].files.items()
        },
    )
    own = hash_record.with_shares(HashRecord(str(directory)), [lie, records[1]], verify_listing(directory), clock.time_ns())
    pace = Pace(clock)
    inspection, _ = verify(str(directory), CONTENT, Work(clock, pace, own, True, clock.time_ns()))
    assert (inspection.report.state, inspection.report.level) == ("verified", "content")
    assert pace.bytes > 0


def verify_listing(directory):
    from trainvitals.checkpoints.files import listing

    return listing(str(directory)).entries


def test_a_kept_record_is_read_as_it_was_written_and_a_damaged_one_is_taken_anew(tmp_path):
    directory = make.huggingface(tmp_path / "run", 500)
    store = HashStore(str(tmp_path / "kept"))
    _, record = looked(directory)
    store.save(record)
    assert store.load(str(directory)) == record
    (next((tmp_path / "kept").iterdir())).write_text("{")
    assert store.load(str(directory)).files == {}
    assert store.errors == 1
    assert "cannot be used" in store.text


def test_a_store_that_cannot_be_written_is_counted_and_told(tmp_path):
    (tmp_path / "kept").write_text("a file")
    store = HashStore(str(tmp_path / "kept"))
    store.save(HashRecord("/x"))
    assert store.errors == 1
    assert "cannot be kept" in store.text


def test_the_store_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(hash_store, "MAX_RECORDS", 5)
    store = HashStore(str(tmp_path))
    for number in range(12):
        store.save(HashRecord(f"/c/{number}"))
        os.utime(tmp_path / hash_store.name_of(f"/c/{number}"), (number, number))
    assert len(list(tmp_path.iterdir())) <= 6


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda c: st.lists(c, max_size=3) | st.dictionaries(
    st.sampled_from(["schema", "path", "files", "name", "size", "hash", "samples", "algorithm", "mtime_ns"]), c, max_size=5), max_leaves=20
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_text_is_a_record_or_refused(text):
    with contextlib.suppress(hash_record.BadRecord):
        hash_record.parse(text)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_single_changed_byte_of_tensor_data_is_found_with_either_proof(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("c")
    raw = make.torch_zip_bytes(storages=(40, 20))
    at = made.data_offset(raw) + data.draw(st.integers(0, 159))
    (directory / "c_500.pt").write_bytes(made.flipped(raw, at))
    assert inspect(str(directory / "c_500.pt"), "content").state == "corrupt"


def test_a_single_file_is_proven_by_the_manifest_beside_it(tmp_path):
    path = tmp_path / "step_500.safetensors"
    path.write_bytes(make.safetensors_bytes({"w": ("F32", (8, 4))}))
    made.write_manifest(path, 500)
    report = inspect(str(path), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "manifest"), report
    renamed = path.rename(tmp_path / "step_500-best.safetensors")
    (tmp_path / "step_500.safetensors.ckpt_manifest.json").rename(tmp_path / "step_500-best.safetensors.ckpt_manifest.json")
    assert inspect(str(renamed), "content").proof == "manifest"
    renamed.write_bytes(made.flipped(renamed.read_bytes(), renamed.stat().st_size - 1))
    assert inspect(str(renamed), "content").state == "corrupt"


def with_integrity(directory, **changes):
    """What Megatron-Core writes with --verify-integrity."""
    hashes_ = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir() if file.is_file()}
    document = {"algorithm": "sha256", "files": hashes_} | changes
    (directory / "integrity.json").write_text(json.dumps(document, indent=2))
    return directory


def test_the_hashes_of_megatron_prove_a_checkpoint_without_our_manifest(tmp_path):
    directory = with_integrity(dcp.torchtitan(tmp_path))
    report = inspect(str(directory), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "integrity_json"), report
    shard = directory / "__1_0.distcp"
    shard.write_bytes(made.flipped(shard.read_bytes(), 200))
    report = inspect(str(directory), "content")
    assert report.state == "corrupt"
    assert "__1_0.distcp: its content is not what integrity.json says" in report.reasons[0]
    shard.unlink()
    assert inspect(str(directory)).state == "incomplete"


@pytest.mark.parametrize(
    ("changes", "state"),
    [({"algorithm": "md5"}, "verified"), ({"files": []}, "verified"), ({"files": {"a": "x"}}, "corrupt"), ({"files": {"../a": "0" * 64}}, "corrupt")],
)  # fmt: skip
def test_an_integrity_file_that_makes_no_sense_proves_nothing(tmp_path, changes, state):
    report = inspect(str(with_integrity(dcp.torchtitan(tmp_path), **changes)), "content")
    assert (report.state, report.proof) == (state, "")


def test_manifests_of_the_hook_and_of_this_test_are_one_format():
    assert manifest.SCHEMA == 1
    assert ContentProof("manifest") is ContentProof.MANIFEST


def test_shares_in_a_directory_that_everyone_may_write_to_are_not_believed(tmp_path):
    directory, shares = make.huggingface(tmp_path / "c", 5), tmp_path / "shares"
    shares.mkdir()
    hash_store.write(str(shares / hash_store.name_of("checkpoint-5")), HashRecord(str(directory)))
    store = hash_store.HashStore(None, str(shares))
    shares.chmod(0o775)
    assert len(store.shared("checkpoint-5")) == 1 and store.errors == 0
    for mode in (0o777, 0o1777):
        shares.chmod(mode)
        assert store.shared("checkpoint-5") == [] and "chmod o-w" in store.text
    assert store.errors == 2
