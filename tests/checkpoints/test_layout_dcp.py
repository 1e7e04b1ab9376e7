import os
import time
import zipfile
from io import BytesIO

import dcp_makers as make
import pytest

from trainvitals.checkpoints import dcp_directory, dcp_metadata, find, inspect
from trainvitals.checkpoints.files import listing

NOW_S = 1_900_000_000.0


def states(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


def set_time(path, seconds):
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("files_per_rank", [1, 3])
def test_a_whole_checkpoint_is_verified_with_all_that_is_in_it(tmp_path, protocol, index, files_per_rank):
    files = make.parts(make.TORCHTITAN, 4, make.TORCHTITAN_OBJECTS, files_per_rank, protocol, index)
    (path,) = find(str(make.write(tmp_path / "step-500", files).parent))
    report = inspect(path)
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "dcp", 500)
    assert (report.has_optimizer, report.has_scheduler, report.has_data_position, report.has_rng) == (True, True, True, False)
    assert (report.world_size, report.reasons) == (4, ())
    assert inspect(path, "presence").state == "complete"


def test_a_checkpoint_of_weights_alone_has_no_optimizer(tmp_path):
    files = make.parts({"layers.0.weight": 8, "optimus.weight": 8}, 2)
    report = inspect(str(make.write(tmp_path / "step-500", files)))
    assert (report.state, report.has_optimizer, report.has_scheduler) == ("verified", False, False)


def test_every_shard_cut_short_longer_empty_or_missing_is_noticed_and_named(tmp_path):
    directory = make.torchtitan(tmp_path, modified_s=NOW_S)
    for name in ("__0_0.distcp", "__1_0.distcp"):
        content = (directory / name).read_bytes()
        for damaged in (b"", content[:1], content[: len(content) // 2], content[:-1], content + b"\0"):
            (directory / name).write_bytes(damaged)
            set_time(directory / name, NOW_S)
            for level in ("presence", "structure"):
                report = inspect(str(directory), level)
                assert report.state == "corrupt", (name, len(damaged))
                assert name in report.reasons[0]
        (directory / name).unlink()
        assert inspect(str(directory), "presence").state == "incomplete"
        assert f"1 of 2 shards are missing, the first is {name}" in states(directory)[1]
        (directory / name).write_bytes(content)
        set_time(directory / name, NOW_S)
    assert states(directory) == ("verified", "")


def test_a_shard_with_zeros_where_an_entry_begins_or_ends_is_corrupt(tmp_path):
    directory = make.torchtitan(tmp_path, modified_s=NOW_S)
    entries = dcp_directory.ranges(listing(str(directory)))["__0_0.distcp"]
    content = (directory / "__0_0.distcp").read_bytes()
    for offset, length in (*entries, (entries[-1][0] + entries[-1][1] - 60, 60)):
        holed = bytearray(content)
        holed[offset : offset + min(length, 30)] = bytes(min(length, 30))
        (directory / "__0_0.distcp").write_bytes(holed)
        set_time(directory / "__0_0.distcp", NOW_S)
        assert states(directory)[0] == "corrupt", offset
    (directory / "__0_0.distcp").write_bytes(content[:-64] + bytes(64))
    set_time(directory / "__0_0.distcp", NOW_S)
    assert states(directory)[0] == "corrupt"


def test_metadata_that_is_empty_cut_or_of_something_else_is_corrupt(tmp_path):
    directory = make.torchtitan(tmp_path)
    content = (directory / ".metadata").read_bytes()
    for damaged in (b"", content[:-1], content[: len(content) // 2], b"\x80\x04}.", make.dump({"a": 1}), b"PK\x03\x04" + content):
        (directory / ".metadata").write_bytes(damaged)
        assert states(directory)[0] == "corrupt", damaged[:10]


def test_without_metadata_the_save_did_not_finish(tmp_path):
    directory = make.torchtitan(tmp_path)
    (directory / ".metadata").rename(directory / ".metadata.tmp")
    (directory / "__1_0.distcp").write_bytes(b"")
    state, reasons = states(directory)
    assert state == "incomplete"
    assert ".metadata is missing: it is written last" in reasons
    assert "__1_0.distcp" in reasons


def test_older_metadata_beside_newer_shards_is_unproven_and_not_corrupt(tmp_path):
    directory = make.torchtitan(tmp_path, modified_s=NOW_S)
    for shard in directory.glob("*.distcp"):
        set_time(shard, NOW_S + 3600)
    state, reasons = states(directory)
    assert (state, inspect(str(directory)).level) == ("complete", "presence")
    assert "2 of 2 shards are newer than .metadata" in reasons
    for shard in directory.glob("*.distcp"):
        set_time(shard, NOW_S + 2.5)  # written by machines whose clocks differ a little
    assert states(directory)[0] == "verified"


def test_shards_of_an_older_save_with_more_ranks_are_a_note(tmp_path):
    directory = make.torchtitan(tmp_path, ranks=4, modified_s=NOW_S)  # newer: only the shards that belong to it count
    for name, content in make.parts(make.TORCHTITAN, 2, make.TORCHTITAN_OBJECTS).items():
        (directory / name).write_bytes(content)
    state, reasons = states(directory)
    assert state == "verified"
    assert "2 shards belong to no tensor" in reasons
    assert "__2_0.distcp" in reasons
    assert inspect(str(directory)).world_size == 2


def test_a_tensor_that_no_file_holds_is_damage(tmp_path):
    files = make.parts({"a.weight": 8, "b.weight": 8}, 2)
    raw = files[".metadata"]
    assert dcp_metadata.read(lambda offset, length: raw[offset : offset + length], len(raw)).not_stored() == []
    state = {
        "lost": make.TensorStorageMetadata(
            properties=make.TensorProperties(),
            size=make.Size((4,)),
            chunks=[make.ChunkStorageMetadata(offsets=make.Size((0,)), sizes=make.Size((4,)))],
        ),
        "kept": make.BytesStorageMetadata(),
    }
    entry = make.entry_bytes(2)
    info = make.StorageInfo(relative_path="__0_0.distcp", offset=0, length=len(entry))
    metadata = make.Metadata(state_dict_metadata=state, planner_data=None, storage_data={make.MetadataIndex(fqn="kept"): info})
    directory = make.write(tmp_path / "step-5", {"__0_0.distcp": entry, ".metadata": make.dump(metadata)})
    state, reasons = states(directory)
    assert state == "corrupt"
    assert "no file holds 1 of its tensors, such as lost" in reasons


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "", "a\0b"])
def test_a_file_name_that_leads_out_of_the_checkpoint_is_refused(tmp_path, name):
    info = make.StorageInfo(relative_path=name, offset=0, length=10)
    metadata = make.Metadata(
        state_dict_metadata={"a": make.BytesStorageMetadata()}, storage_data={make.MetadataIndex(fqn="a"): info}
    )
    directory = make.write(tmp_path / "step-5", {"__0_0.distcp": b"x" * 10, ".metadata": make.dump(metadata)})
    state, reasons = states(directory)
    assert state == "corrupt"
    assert "outside the checkpoint" in reasons
    assert dcp_directory.ranges(listing(str(directory))) == {}


def test_entries_on_top_of_each_other_and_impossible_places_are_refused(tmp_path):
    for places in ([(0, 20), (10, 20)], [(-1, 5)], [(0, -5)], [(0, 1 << 63)]):
        storage = {
            make.MetadataIndex(fqn=f"a{number}"): make.StorageInfo(relative_path="__0_0.distcp", offset=offset, length=length)
            for number, (offset, length) in enumerate(places)
        }
        state = {f"a{number}": make.BytesStorageMetadata() for number in range(len(places))}
        raw = make.dump(make.Metadata(state_dict_metadata=state, storage_data=storage))
        directory = make.write(tmp_path / "step-5", {"__0_0.distcp": b"x" * 30, ".metadata": raw})
        assert states(directory)[0] == "corrupt", places


def test_shards_that_passed_through_an_extension_stay_complete(tmp_path):
    info = make.StorageInfo(relative_path="__0_0.distcp", offset=0, length=10, transform_descriptors=["zstd"])
    metadata = make.Metadata(
        state_dict_metadata={"a": make.BytesStorageMetadata()}, storage_data={make.MetadataIndex(fqn="a"): info}
    )
    directory = make.write(tmp_path / "step-5", {"__0_0.distcp": b"x" * 10, ".metadata": make.dump(metadata)})
    state, reasons = states(directory)
    assert state == "complete"
    assert "stream extension" in reasons
    (directory / "__0_0.distcp").write_bytes(b"x" * 9)
    assert states(directory)[0] == "corrupt"


def test_each_rank_may_have_metadata_of_its_own(tmp_path):
    files = {}
    for rank in range(3):
        entry = make.entry_bytes(4)
        info = make.StorageInfo(relative_path=f"__{rank}_0.distcp", offset=0, length=len(entry))
        metadata = make.Metadata(
            state_dict_metadata={f"optimizer.{rank}": make.BytesStorageMetadata()},
            storage_data={make.MetadataIndex(fqn=f"optimizer.{rank}"): info},
        )
        files |= {f"__{rank}_0.distcp": entry, f"__{rank}.metadata": make.dump(metadata)}
    directory = make.write(tmp_path / "step-5", files)
    report = inspect(str(directory))
    assert (report.state, report.world_size, report.has_optimizer) == ("verified", 3, True)
    for rank in (0, 2):
        content = (directory / f"__{rank}.metadata").read_bytes()
        (directory / f"__{rank}.metadata").unlink()
        assert states(directory)[0] == "incomplete"
        (directory / f"__{rank}.metadata").write_bytes(content)


def test_ranges_are_the_zips_that_a_shard_is_made_of(tmp_path):
    directory = make.torchtitan(tmp_path, ranks=3)
    for name, entries in dcp_directory.ranges(listing(str(directory))).items():
        content = (directory / name).read_bytes()
        assert sum(length for _, length in entries) == len(content)
        for offset, length in entries:
            assert zipfile.ZipFile(BytesIO(content[offset : offset + length])).testzip() is None


def test_two_thousand_shards_are_looked_at_in_seconds_and_in_little_memory(tmp_path):
    directory = make.write(tmp_path / "step-9", make.parts({f"layers.{number}.weight": 4 for number in range(4)}, 2048))
    begun_s = time.process_time()
    report = inspect(str(directory))
    spent_s = time.process_time() - begun_s
    assert (report.state, report.files, report.world_size) == ("verified", 2049, 2048)
    assert spent_s < 2.0  # about 0.4 s; the bench has the real number
