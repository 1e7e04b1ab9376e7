"""The ends of logs that are only read after a death: whose they are, and what they say."""

from __future__ import annotations

import os

import pytest

from trainvitals.logs.tails import Tail, TailScanner, path_origin, path_origins, placed, read_tail

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.mark.parametrize(
    ("path", "rank", "host", "is_local"),
    [
        ("/x/log/none_ab/attempt_0/12/stderr.log", 12, None, True),
        ("/x/rank_12/stderr.log", 12, None, False),
        ("/x/rank12.err", 12, None, False),
        ("/x/12.err", 12, None, False),
        ("/x/node17-12.err", 12, "node17", False),
        ("/x/node17-rank3.log", 3, "node17", False),
        ("/x/job-4567-node17-12.out", 12, "node17", False),
        ("/x/nid001277_4.log", 4, "nid001277", False),
        ("/x/gpu250/train.log", None, "gpu250", False),
        ("/x/node003/task_5.err", 5, "node003", False),
        ("/x/slurm-4567.out", None, None, False),
        ("/x/slurm-4567_3.out", None, None, False),
        ("/x/llama-70b/version_3/run1.log", None, None, False),
        ("/x/local_rank3.log", 3, None, True),
        ("", None, None, False),
    ],
)
def test_rank_and_host_stand_in_the_path(path, rank, host, is_local):
    found = path_origin(path)
    assert (found.rank, found.host, found.is_local) == (rank, host, is_local)


def test_a_directorys_number_is_a_rank_of_the_job_only_when_no_other_host_has_it():
    one = path_origins(["/a/attempt_0/3/stderr.log", "/a/attempt_0/3/stdout.log"])
    assert not any(where.is_local for where in one.values())
    two = path_origins(["/a/attempt_0/3/stderr.log", "/b/attempt_0/3/stderr.log"])
    assert all(where.is_local for where in two.values())


def test_only_the_end_is_read_from_the_beginning_of_a_line(tmp_path):
    path = tmp_path / "rank0.err"
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    tail = read_tail(str(path), 20)
    assert tail.data == b"line 998\nline 999\n" and tail.size == path.stat().st_size
    assert read_tail(str(path), 1 << 20).data == path.read_bytes()


@pytest.mark.parametrize("make", ["fifo", "directory", "device", "missing"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path, make):
    path = tmp_path / "rank0.err"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "directory":
        path.mkdir()
    elif make == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"no regular file|Is a directory|No such file"):
        read_tail(str(path), 1000)


def scan(text, scanner=None):
    return (scanner or TailScanner()).scan(Tail(text.encode(), 1_767_323_045_000_000_000, len(text)))


def test_a_death_behind_many_harmless_lines_is_found():
    (event,) = scan("".join(f"iteration {n} | lm loss: 2.{n}\n" for n in range(5000)) + OOM)
    assert event.data["class"] == "out_of_memory"


def test_a_traceback_that_stands_in_two_pieces_is_one(tmp_path):
    text = "x" * 16_300 + "\nTraceback (most recent call last):\n" + '  File "x.py", line 1\n' * 20 + "ValueError: bad batch\n"
    (event,) = scan(text)
    assert event.data["exception"] == "ValueError"


def test_a_scanner_remembers_harmless_lines_and_no_faults():
    scanner = TailScanner()
    for _ in range(3):
        assert len(scan("all is well 1\n" * 3 + OOM, scanner)) == 1
        assert scan("all is well 2\n", scanner) == []


def test_binary_rubbish_is_no_fault():
    assert TailScanner().scan(Tail(os.urandom(200_000), 1, 200_000)) == []


def test_the_path_fills_in_what_the_text_does_not_say():
    (event,) = scan(OOM)
    told = placed(event, path_origin("/x/node17-12.err"))
    assert (told.data["rank"], told.data["host"], told.data["ranks_seen"]) == (12, "node17", [12])
    (named,) = scan("[rank3]: " + OOM)
    assert placed(named, path_origin("/x/node17-12.err")).data["rank"] == 3
    assert placed(event, path_origin("/x/attempt_0/4/stderr.log")).data["local_rank"] == 4


def test_the_file_of_one_rank_is_read_as_far_as_its_first_fault_and_some_lines_more():
    text = "Traceback (most recent call last):\nValueError: bad batch\n" + "ChildFailedError:\n" * 5000
    tail = Tail(text.encode(), 1_767_323_045_000_000_000, len(text))
    (one,), (all_of_it,) = TailScanner().scan(tail, is_one_rank=True), TailScanner().scan(tail)
    assert one.data["exception"] == all_of_it.data["exception"] == "ValueError"
    assert one.data["followed_by"]["process_failed"] == 300 and all_of_it.data["followed_by"]["process_failed"] == 5000
