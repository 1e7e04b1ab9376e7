"""Event files, written by TensorBoard's own writer and by our own hand where that one cannot write what the world holds."""

import gzip
import json
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event as Message
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from trainvitals.cli.parse import read_log
from trainvitals.errors import InputError
from trainvitals.logs.grammars.tensorboard import TensorBoard
from trainvitals.logs.grammars.tensorboard_records import MAX_RECORD_BYTES, EventFileReader, looks_like_event_file
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

START = 1_770_000_000.0


def framed(content):
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))


def message(step=0, time=START, **values):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=number) for tag, number in values.items()])
    return Message(wall_time=time, step=step, summary=summary).SerializeToString()


def scalar(tag, step, value, time=START):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return framed(Message(wall_time=time + step, step=step, summary=summary).SerializeToString())


def version(time=START):
    return framed(Message(wall_time=time, file_version="brain.Event:2").SerializeToString())


def write(path, *records):
    path.write_bytes(b"".join(records))
    return path


def read(path, format="auto"):
    parser, records = None, []
    for reader, found in read_log(str(path), format):
        parser = reader
        records += found
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def losses(steps):
    return [(step.step, step.attempt, round(step.values.get("loss", math.nan), 6)) for step in steps]


def test_a_file_of_tensorboards_own_writer_is_found_by_itself(tmp_path):
    writer = EventFileWriter(str(tmp_path))
    for step in range(10, 50, 10):
        for tag, value in (("train/loss", 3.0 - step / 100), ("train/learning_rate", 0.5), ("train/grad_norm", 0.25)):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Message(wall_time=START + step, step=step, summary=summary))
    writer.close()
    [path] = tmp_path.iterdir()
    parser, steps, _ = read(path)
    assert (parser.format, parser.counters["bad_records"]) == ("tensorboard", 0)
    assert losses(steps) == [(10, 1, 2.9), (20, 1, 2.8), (30, 1, 2.7), (40, 1, 2.6)]
    assert steps[0].values == {"loss": pytest.approx(2.9), "lr": 0.5, "grad_norm": 0.25}
    assert steps[0].time_ns == int((START + 10) * 1e9)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TensorProto(dtype=1, float_val=[2.5]), 2.5),
        (TensorProto(dtype=1, tensor_content=struct.pack("<f", 2.5)), 2.5),
        (TensorProto(dtype=2, double_val=[2.5]), 2.5),
        (TensorProto(dtype=3, int_val=[2]), 2.0),
        (TensorProto(dtype=1, float_val=[2.5, 3.5]), None),
        (TensorProto(dtype=7, string_val=[b"2.5"]), None),
    ],
)
def test_a_tensor_of_one_number_is_a_scalar(tmp_path, content, expected):
    value = Summary.Value(tag="loss", tensor=content)
    value.metadata.plugin_data.plugin_name = "scalars"
    record = framed(Message(wall_time=START, step=3, summary=Summary(value=[value])).SerializeToString())
    _, steps, _ = read(write(tmp_path / "events.out.tfevents.1", version(), record))
    assert [step.values["loss"] for step in steps] == ([] if expected is None else [expected])


def test_megatron_tags_over_samples_are_no_steps_and_its_throughput_is_teraflops(tmp_path):
    tags = {
        "learning-rate": 0.1,
        "lm loss": 2.5,
        "grad-norm": 0.75,
        "throughput": 400.0,
        "iteration-time": 1.5,
        "lm loss vs samples": 2.5,
    }
    records = [scalar(tag, 64 * 10 if "vs" in tag else 10, value) for tag, value in tags.items()]
    records.append(scalar("lm loss validation", 10, 2.75))
    _, steps, events = read(write(tmp_path / "events.out.tfevents.1", version(), *records))
    assert [dict(step.values) for step in steps] == [
        {"lr": pytest.approx(0.1), "loss": 2.5, "grad_norm": 0.75, "tflops_per_gpu": 400.0, "step_time_s": 1.5}
    ]
    assert [event.data["validation_loss"] for event in events if event.kind == "message"] == [2.75]


def test_two_names_of_one_metric_in_a_step_are_one_value(tmp_path):
    records = [
        scalar(tag, step, value)
        for step in (1, 2)
        for tag, value in (("loss_metrics/global_avg_loss", 2.0), ("loss", 3.0), ("lr", 0.5))
    ]
    _, steps, _ = read(write(tmp_path / "events.out.tfevents.1", *records))
    assert [(step.step, dict(step.values)) for step in steps] == [(1, {"loss": 3.0, "lr": 0.5}), (2, {"loss": 3.0, "lr": 0.5})]


def test_a_nan_is_nonfinite_and_the_summary_of_a_training_is_no_step(tmp_path):
    records = [scalar("train/loss", 1, math.nan), scalar("train/loss", 2, math.inf)]
    summary = [("train/train_loss", 2.0), ("train/train_runtime", 9.0), ("train/train_samples_per_second", 5.0)]
    records += [scalar(tag, 3, value) for tag, value in summary]
    _, steps, _ = read(write(tmp_path / "events.out.tfevents.1", *records))
    assert [(step.step, step.nonfinite) for step in steps] == [(1, {"loss": "nan"}), (2, {"loss": "inf"})]


def test_a_loss_that_says_twice_that_it_is_of_the_training_is_one(tmp_path):
    records = [scalar("train/train_loss", step, 2.0) for step in (1, 2)]
    assert losses(read(write(tmp_path / "events.out.tfevents.1", *records))[1]) == [(1, 1, 2.0), (2, 1, 2.0)]


def test_tags_that_come_a_little_late_still_join_their_step(tmp_path):
    records = [scalar("loss", step, 2.0) for step in range(1, 21)]
    for step in range(1, 21):
        records.insert(min(len(records), 2 * step + 4), scalar("grad_norm", step, 1.0))
    parser, steps, _ = read(write(tmp_path / "events.out.tfevents.1", *records))
    assert [step.step for step in steps] == list(range(1, 21))
    assert all(step.values == {"loss": 2.0, "grad_norm": 1.0} for step in steps)
    assert parser.counters["repeated_steps"] == 0


def test_steps_that_go_back_are_a_new_attempt(tmp_path):
    first = [scalar("loss", step, 2.0) for step in range(1, 31)]
    again = [scalar("loss", step, 1.5, START + 100) for step in range(20, 25)]
    _, steps, _ = read(write(tmp_path / "events.out.tfevents.1", *first, *again))
    assert [step.attempt for step in steps] == [1] * 30 + [2] * 5


def test_ranks_that_write_the_same_tags_into_one_file_give_each_step_once_and_whole(tmp_path):
    records = [
        scalar(tag, step, value)
        for step in range(1, 13)
        for tag, value in (("loss", 2.0), *[("loss", 2.5)] * 15, *[("lr", 0.5)] * 16)
    ]
    parser, steps, _ = read(write(tmp_path / "events.out.tfevents.1", *records))
    assert [(step.step, step.attempt, dict(step.values)) for step in steps] == [
        (n, 1, {"loss": 2.0, "lr": 0.5}) for n in range(1, 13)
    ]
    assert parser.counters["repeated_steps"] == 12 * 15


def test_a_purge_is_a_new_attempt_even_for_one_step(tmp_path):
    purge = framed(Message(wall_time=START + 50, step=9, session_log=SessionLog(status=SessionLog.START)).SerializeToString())
    _, steps, _ = read(
        write(tmp_path / "events.out.tfevents.1", *(scalar("loss", n, 2.0) for n in range(1, 10)), purge, scalar("loss", 9, 1.0))
    )
    assert losses(steps)[-2:] == [(9, 1, 2.0), (9, 2, 1.0)]


def test_the_files_of_a_directory_are_read_in_order_of_their_times(tmp_path):
    write(
        tmp_path / "events.out.tfevents.20",
        version(START + 500),
        *(scalar("loss", step, 1.0, START + 500) for step in range(15, 40)),
    )
    write(tmp_path / "events.out.tfevents.9", version(), *(scalar("loss", step, 2.0) for step in range(1, 31)))
    write(tmp_path / "events.out.tfevents.30", version(START), *(scalar("lr", step, 0.5) for step in range(1, 31)))
    (tmp_path / "events.out.tfevents.5.profile-empty").write_bytes(b"")
    parser, steps, _ = read(tmp_path)
    assert [(step.step, step.attempt) for step in steps] == [*((n, 1) for n in range(1, 31)), *((n, 2) for n in range(15, 40))]
    assert all(step.values == {"loss": 2.0, "lr": 0.5} for step in steps[:30])
    assert parser.counters["repeated_steps"] == 0


def test_keras_directories_of_training_and_validation_are_one_run(tmp_path):
    for name, value in (("train", 2.0), ("validation", 2.5)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "events.out.tfevents.1.v2", version(), *(scalar("epoch_loss", n, value) for n in range(3)))
    _, steps, events = read(tmp_path)
    assert losses(steps) == [(0, 1, 2.0), (1, 1, 2.0), (2, 1, 2.0)]
    assert [event.data for event in events if event.kind == "message"] == [{"validation_loss": 2.5}] * 3


def test_a_directory_of_no_run_or_of_several_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="without event files"):
        read(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "events.out.tfevents.1", version())
    with pytest.raises(InputError, match=r"2 runs; name one of them: .*/a, .*/b"):
        read(tmp_path)


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_pointer_of_git_lfs_is_named_as_such(tmp_path, is_directory):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(InputError, match="Git LFS pointer"):
        read(tmp_path if is_directory else path)


def test_a_compressed_file_and_standard_input_are_read_too(tmp_path, monkeypatch):
    path = tmp_path / "x.gz"
    with gzip.open(path, "wb") as file:
        file.write(version() + scalar("loss", 1, 2.0))
    assert losses(read(path)[1]) == [(1, 1, 2.0)]


def test_a_file_that_is_still_written_loses_only_its_torn_record(tmp_path):
    whole = version() + scalar("loss", 1, 2.0) + scalar("loss", 2, 1.0)
    for cut in (1, 5, 20):
        parser, steps, _ = read(write(tmp_path / "events.out.tfevents.1", whole[:-cut]))
        assert (losses(steps), parser.counters["bad_records"]) == ([(1, 1, 2.0)], 1)


@pytest.mark.parametrize("offset", [0, 4, 9, 20, 40])
def test_damage_costs_one_record_and_is_counted(tmp_path, offset):
    damaged = bytearray(scalar("loss", 2, 1.5))
    damaged[offset] ^= 0x55
    parser, steps, _ = read(
        write(tmp_path / "events.out.tfevents.1", version(), scalar("loss", 1, 2.0), bytes(damaged), scalar("loss", 3, 1.0))
    )
    assert losses(steps) == [(1, 1, 2.0), (3, 1, 1.0)]
    assert parser.counters["bad_records"] >= 1


def text(tag, content, step=0):
    value = Summary.Value(tag=tag, tensor=TensorProto(dtype=7, string_val=[content.encode()]))
    value.metadata.plugin_data.plugin_name = "text"
    return framed(Message(wall_time=START, step=step, summary=Summary(value=[value])).SerializeToString())


def test_texts_in_front_of_the_scalars_are_the_configuration_and_later_ones_are_notes(tmp_path):
    records = [
        text("lr/text_summary", "0.0003"), text("args/text_summary", '{"seed": 7, "hub_token": "hf_abc", "optim": {"eps": 1e-8}}'),
        text("long/text_summary", "x" * 70_000), scalar("loss", 1, 2.0), text("sample/text_summary", "once upon a time"), scalar("loss", 2, 1.0),
        version(), text("lr/text_summary", "0.0001"), scalar("loss", 2, 1.0),
    ]  # fmt: skip
    parser, steps, events = read(write(tmp_path / "events.out.tfevents.1", version(), *records))
    assert [event.data["values"] for event in events if event.kind == "metadata"] == [
        {"lr": 0.0003, "args.seed": 7, "args.hub_token": "***", "args.optim.eps": 1e-8},
        {"lr": 0.0001},
    ]
    assert [(step.step, step.attempt) for step in steps] == [(1, 1), (2, 1), (2, 2)]
    assert parser.counters["bad_records"] == 0


def test_a_hole_of_zero_bytes_or_junk_in_the_middle_costs_nothing_but_itself(tmp_path):
    for junk in (b"\0" * 100_000, bytes(range(256)) * 50, b"\1\0\0\0\0\0\0\0" * 99):
        parser, steps, _ = read(
            write(tmp_path / "events.out.tfevents.1", version(), scalar("loss", 1, 2.0), junk, scalar("loss", 2, 1.0))
        )
        assert (losses(steps), parser.counters["bad_records"]) == ([(1, 1, 2.0), (2, 1, 1.0)], 1)


def test_pictures_and_texts_are_passed_over_without_being_kept(tmp_path):
    big = framed(b"\x00" * (MAX_RECORD_BYTES + 5))
    picture = framed(
        Message(
            step=1, summary=Summary(value=[Summary.Value(tag="x", image=Summary.Image(encoded_image_string=b"x" * 999))])
        ).SerializeToString()
    )
    parser, steps, _ = read(
        write(tmp_path / "events.out.tfevents.1", version(), scalar("loss", 1, 2.0), big, picture, scalar("loss", 2, 1.0))
    )
    assert (losses(steps), parser.counters["bad_records"]) == ([(1, 1, 2.0), (2, 1, 1.0)], 0)
    reader = EventFileReader()
    for at in range(0, len(big), 1000):
        reader.feed(big[at : at + 1000])
        assert len(json.dumps(reader.to_state())) < 100_000


@given(
    st.lists(st.tuples(st.sampled_from(["loss", "lr", "val/loss", "x"]), st.integers(0, 30), st.floats(width=32)), max_size=25),
    st.lists(st.integers(0, 2000), max_size=4),
    st.binary(max_size=6),
)
@settings(max_examples=60)
def test_any_cut_with_state_saved_and_restored_gives_the_same_records(cells, cuts, junk):
    data = version() + b"".join(scalar(*cell) for cell in cells) + junk + scalar("loss", 99, 1.0)
    whole = EventFileReader()
    expected = whole.feed(data) + whole.finish()
    reader, found, start = EventFileReader(), b"", 0
    for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        found += reader.feed(data[start:cut])
        state = json.loads(json.dumps(reader.to_state()))
        reader = EventFileReader()
        reader.restore(state)
        start = cut
    assert found + reader.finish() == expected
    grammar, restored = TensorBoard(LineTimes()), TensorBoard(LineTimes())
    lines = expected.decode().splitlines()
    records = [record for line in lines for record in grammar.feed(line)] + grammar.finish()
    half = [record for line in lines[: len(lines) // 2] for record in restored.feed(line)]
    again = TensorBoard(LineTimes())
    again.restore(json.loads(json.dumps(restored.to_state(), allow_nan=False)))
    assert half + [record for line in lines[len(lines) // 2 :] for record in again.feed(line)] + again.finish() == records


@given(st.binary(max_size=300))
def test_bytes_that_are_no_event_file_are_not_taken_for_one(data):
    assert not looks_like_event_file(b"step,loss\n" + data)
    reader = EventFileReader()
    reader.feed(data)
    reader.finish()
