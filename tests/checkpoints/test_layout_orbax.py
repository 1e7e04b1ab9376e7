"""Orbax: marks, items, processes, and what can be proven of OCDBT files."""

import json

import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import inspect, ocdbt, ocdbt_names
from trainvitals.checkpoints.files import opened


def test_a_committed_step_is_complete_and_says_why_no_more_is_proven(tmp_path):
    report = inspect(str(make.write(tmp_path / "500", make.orbax(processes=3))))
    assert (report.format, report.step, str(report.state), str(report.level)) == ("orbax", 500, "complete", "presence")
    assert (report.has_optimizer, report.world_size) == (True, 3)
    assert "manifest" in report.reasons[0]
    assert "the save took 2.0 s from its begin to its commit" in report.reasons


def test_a_tree_without_optimizer_keys_has_none(tmp_path):
    assert inspect(str(make.write(tmp_path / "5", make.orbax(optimizer=False)))).has_optimizer is False


@pytest.mark.parametrize("name", ["500.orbax-checkpoint-tmp", "500.orbax-checkpoint-tmp-1795980665651615"])
def test_a_temporary_name_is_an_unfinished_save_of_its_step(tmp_path, name):
    report = inspect(str(make.write(tmp_path / name, make.orbax())))
    assert (report.format, report.step, str(report.state)) == ("orbax", 500, "incomplete")


def gone(name):
    return lambda parts: {path: content for path, content in parts.items() if path != name}


@pytest.mark.parametrize(
    "change",
    [
        gone("state/manifest.ocdbt"),
        gone("state/ocdbt.process_1/manifest.ocdbt"),
        gone(f"state/ocdbt.process_1/d/{1:032x}"),
        lambda parts: {path: content for path, content in parts.items() if "process_0/" not in path},
        lambda parts: {path.replace("state/", "state.orbax-checkpoint-tmp-17/"): content for path, content in parts.items()},
        lambda parts: parts | {"_CHECKPOINT_METADATA": b'{"init_timestamp_nsecs": 5, "commit_timestamp_nsecs": null}'},
        lambda parts: parts | {"state/commit_success.txt": b"done"},
        lambda parts: {"_CHECKPOINT_METADATA": parts["_CHECKPOINT_METADATA"]},
    ],
)
def test_what_a_finished_step_needs_and_lacks_makes_it_incomplete(tmp_path, change):
    report = inspect(str(make.write(tmp_path / "500", change(make.orbax(processes=2)))))
    assert (report.format, str(report.state)) == ("orbax", "incomplete"), report.reasons


@pytest.mark.parametrize("suffix", ["manifest.ocdbt", "d/00000000000000000000000000000abc", f"process_0/d/{0:032x}"])
def test_every_cut_of_arrays_and_manifests_and_every_flip_in_nodes_is_seen(tmp_path, suffix):
    directory = make.write(tmp_path / "500", make.orbax())
    file = next(path for path in directory.rglob("*") if str(path).endswith(suffix))
    content = file.read_bytes()
    for kept in range(len(content)):
        file.write_bytes(content[:kept])
        report = inspect(str(directory))
        # Cut exactly between two chunks it is a shorter file of whole chunks.
        if kept != len(content) - len(make.ocdbt_record(make.NODE)) or b"\x28\xb5\x2f\xfd" not in content:
            assert str(report.state) == "corrupt", kept
    if not content.startswith(b"\x28"):
        for at in range(len(content)):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert str(inspect(str(directory)).state) == "corrupt" or "another way" in " ".join(inspect(str(directory)).reasons)


def test_where_the_manifests_can_be_read_a_data_file_that_is_missing_is_named(tmp_path):
    parts = make.orbax()
    name = f"{0:032x}"
    inner, outer = f"state/ocdbt.process_0/d/{name}", "state/d/00000000000000000000000000000abc"
    parts |= {
        inner: make.zstd_frame(bytes(500)) + make.ocdbt_node([name]),
        outer: make.ocdbt_node([name]),
        "state/ocdbt.process_0/manifest.ocdbt": make.ocdbt_manifest([name]),
        "state/manifest.ocdbt": make.ocdbt_manifest([name, "00000000000000000000000000000abc"]),
    }
    directory = make.write(tmp_path / "500", parts)
    report = inspect(str(directory))
    assert (str(report.state), str(report.level)) == ("verified", "structure"), report.reasons
    (directory / outer).rename(directory / "state/d/00000000000000000000000000000abd")
    report = inspect(str(directory))
    assert str(report.state) == "incomplete"
    assert report.reasons[0] == "1 data files that its manifests name are missing, such as 00000000000000000000000000000abc"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120), st.sampled_from([make.MANIFEST, make.NODE, b"\x0c\xdb\x12\x34"]), st.sampled_from([0, 1, 2]))
def test_no_body_makes_the_reader_of_names_raise(body, magic, compression):
    record = make.ocdbt_record(magic, bytes([0, compression]) + body)
    found, size = ocdbt_names.names(record, 1000)
    assert found is None or all(len(name) == 32 for name in found)
    assert size <= 1000


def test_the_index_that_ends_a_shard_of_zarr_3_is_checked_against_its_chunks(tmp_path):
    chunks = [make.zstd_frame(bytes(300)), make.zstd_frame(bytes(700))]
    places = [(0, len(chunks[0])), (len(chunks[0]), len(chunks[1]))]
    content = b"".join(chunks) + make.zarr3_index(places)
    directory = make.write(tmp_path / "5", make.orbax() | {"state/d/000000000000000000000000000000ff": content})
    assert "another way" not in " ".join(inspect(str(directory)).reasons)
    wrong = b"".join(chunks) + make.zarr3_index([places[1], places[0]])
    (directory / "state/d/000000000000000000000000000000ff").write_bytes(wrong)
    assert "another way" in " ".join(inspect(str(directory)).reasons)


def test_chunks_of_zarr_without_ocdbt_are_checked_to_their_end_and_not_called_proven(tmp_path):
    parts = {
        "_METADATA": b'{"tree_metadata": {}}',
        "params.w/.zarray": b'{"chunks": [4], "shape": [4]}',
        "params.w/0.0": make.zstd_frame(bytes(3000)),
        "_CHECKPOINT_METADATA": b"{}",
    }
    directory = make.write(tmp_path / "5", parts)
    assert str(inspect(str(directory)).state) == "complete"
    (directory / "params.w/0.0").write_bytes(parts["params.w/0.0"][:-1])
    assert str(inspect(str(directory)).state) == "corrupt"


def test_files_of_no_known_structure_keep_it_unproven(tmp_path):
    parts = {"_METADATA": b'{"tree_metadata": {}}', "_CHECKPOINT_METADATA": b"{}", "item/strange.bin": b"x"}
    report = inspect(str(make.write(tmp_path / "5", parts)))
    assert (str(report.state), "item/strange.bin" in report.reasons[0]) == ("complete", True)


@pytest.mark.parametrize(
    "document",
    [[], {"tree_metadata": 5}, {"tree_metadata": {"a": 1}}, {"tree_metadata": {"a": {"key_metadata": [1, {"key": 5}]}}}],
)
def test_a_tree_of_another_shape_raises_nothing(tmp_path, document):
    parts = make.orbax() | {
        "state/_METADATA": json.dumps(document).encode(),
        "_CHECKPOINT_METADATA": json.dumps(document).encode(),
    }
    assert inspect(str(make.write(tmp_path / "500", parts))).format == "orbax"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", make.MANIFEST, make.NODE, b"\x28\xb5\x2f\xfd", b"\x0c\xdb\x12\x34"]))
def test_no_bytes_make_the_reader_raise_anything_else_or_hang(tmp_path_factory, raw, start):
    path = tmp_path_factory.mktemp("ocdbt") / "x"
    path.write_bytes(start + raw)
    with opened(str(path)) as reader:
        for check in (ocdbt.check_data, ocdbt.check_manifest):
            try:
                check(reader, ocdbt.Look())
            except ocdbt.BadOcdbt as error:
                assert str(error).isprintable()
