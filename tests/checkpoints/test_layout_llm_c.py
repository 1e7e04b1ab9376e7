"""llm.c, nanoGPT and Composer: files beside each other that are one checkpoint, keys of a state."""

import struct

import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import find, inspect, llm_c_header
from trainvitals.checkpoints.files import opened


def written(directory, parts):
    make.write(directory, parts)
    return inspect(str(directory / next(iter(parts))))


@pytest.mark.parametrize("options", [{}, {"shuffled": True}, {"zero": True}, {"shuffled": True, "zero": True}])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_size_of_each_file_of_llm_c_follows_from_its_header(tmp_path, options, ranks):
    parts = make.llm_c(ranks=ranks, **options)
    report = written(tmp_path, parts)
    assert (str(report.state), report.step, report.world_size, report.files) == ("verified", 500, ranks, ranks + 2)
    assert (report.has_optimizer, report.has_rng, report.has_data_position) == (True, True, True)
    for name, content in parts.items():
        if not content:
            continue
        for damaged in (content[:-1], content + b"\0", content[: len(content) // 2], b"", b"\0\0\0\0" + content[4:]):
            (tmp_path / name).write_bytes(damaged)
            assert str(inspect(report.path).state) == "corrupt", (name, len(damaged))
        (tmp_path / name).write_bytes(content)


def test_a_save_of_llm_c_is_finished_by_its_done_file_and_needs_every_rank(tmp_path):
    parts = make.llm_c(ranks=3)
    path = str(tmp_path / "model_00000500.bin")
    written(tmp_path, parts)
    (tmp_path / "DONE_00000500").unlink()
    assert "DONE_00000500 is missing" in inspect(path).reasons[0]
    (tmp_path / "DONE_00000500").touch()
    (tmp_path / "state_00000500_00001.bin").unlink()
    assert "rank 1" in inspect(path, "presence").reasons[0]
    (tmp_path / "state_00000500_00001.bin").write_bytes(parts["state_00000500_00001.bin"])
    # The highest rank is known only from the headers.
    (tmp_path / "state_00000500_00002.bin").unlink()
    report = inspect(path)
    assert (str(report.state), report.reasons[0].endswith("rank 2")) == ("incomplete", True)


def test_a_state_of_another_step_or_rank_is_corrupt(tmp_path):
    written(tmp_path, make.llm_c(ranks=2))
    (tmp_path / "state_00000500_00001.bin").write_bytes(make.llm_c_state(400, 1, 2))
    report = inspect(str(tmp_path / "model_00000500.bin"))
    assert (str(report.state), "of step 400" in report.reasons[0]) == ("corrupt", True)
    (tmp_path / "state_00000500_00001.bin").write_bytes(make.llm_c_state(500, 0, 2))
    assert "of rank 0" in inspect(str(tmp_path / "model_00000500.bin")).reasons[0]


def test_versions_of_llm_c_that_nobody_knows_are_not_accused(tmp_path):
    parts = make.llm_c(ranks=1)
    parts["model_00000500.bin"] = make.llm_c_model(version=9)
    report = written(tmp_path, parts)
    assert str(report.state) == "complete"
    assert "version 9" in report.reasons[0]


def test_several_checkpoints_of_llm_c_in_one_directory_are_each_found_by_their_model(tmp_path):
    for step in (500, 1000):
        make.write(tmp_path, make.llm_c(step))
    assert [report.step for report in map(inspect, find(str(tmp_path)))] == [500, 1000]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=34), st.binary(max_size=100), st.booleans())
def test_no_header_makes_llm_cs_reader_raise_anything_else_or_read_much(tmp_path_factory, numbers, tail, is_state):
    header = [20240527 if is_state else 20240326, 1 if is_state else 3, *numbers]
    raw = struct.pack("<256i", *header, *[0] * (256 - len(header))) + tail
    path = tmp_path_factory.mktemp("llm") / "x"
    path.write_bytes(raw)
    with opened(str(path)) as reader:
        try:
            if is_state:
                llm_c_header.check_state(reader, 10)
            else:
                llm_c_header.check_model(reader)
        except llm_c_header.BadLlmC as error:
            assert str(error).isprintable()


def test_the_step_of_nanogpt_is_its_iteration_and_its_optimizer_a_key(tmp_path):
    report = written(tmp_path, make.nanogpt(12_000))
    assert (report.format, report.step, report.has_optimizer, str(report.state)) == ("nanogpt", 12_000, True, "verified")
    assert written(tmp_path, make.nanogpt(optimizer=False)).has_optimizer is False


def test_composer_names_the_batch_and_tells_what_its_state_holds(tmp_path):
    report = written(tmp_path, make.composer())
    assert (report.step, report.has_optimizer, report.has_rng, report.has_scheduler, report.has_data_position) == (
        500, True, True, True, True,
    )  # fmt: skip
    assert written(tmp_path, make.composer(optimizer=False)).has_optimizer is False


def test_the_files_of_composers_ranks_are_one_checkpoint(tmp_path):
    report = written(tmp_path, make.composer(ranks=4))
    assert (report.files, report.world_size) == (4, 4)
    assert find(str(tmp_path)) == [report.path]
    (tmp_path / "ep1-ba500-rank2.pt").unlink()
    lacking = inspect(report.path)
    assert (str(lacking.state), "highest rank is 3" in lacking.reasons[0]) == ("incomplete", True)
    (tmp_path / "ep1-ba500-rank0.pt").unlink()
    assert len(find(str(tmp_path))) == 2
