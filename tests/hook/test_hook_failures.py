"""What the disk, the operating system and other processes do to the recorder."""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading

import pytest

from trainvitals.clock import ManualClock
from trainvitals.hook import Recorder, appender, queue

TIMEOUT_S = 20.0


def whole(path):
    """(whole records, torn lines) of a file."""
    records, torn = [], 0
    with open(path, "rb") as file:
        for line in file.read().split(b"\n"):
            if line:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    torn += 1
    return records, torn


def step_numbers(path):
    return [record["step"] for record in whole(path)[0] if record["type"] == "step"]


@pytest.fixture(params=["direct", "queued"])
def recorder(request, tmp_path):
    made = Recorder(tmp_path / "run", writer=request.param, clock=ManualClock())
    made.flush()
    yield made
    made.close()


def test_a_deleted_file_is_made_again_with_a_header(recorder, capfd):
    recorder.log(1, loss=1.0)
    recorder.flush()
    os.unlink(recorder.path)
    recorder.log(2, loss=1.0)
    recorder.flush()
    assert [record["type"] for record in whole(recorder.path)[0]] == ["header", "step"]
    assert (step_numbers(recorder.path), recorder.lost) == ([2], 0)


def test_a_deleted_run_directory_is_made_again(recorder):
    recorder.log(1, loss=1.0)
    recorder.flush()
    shutil.rmtree(os.path.dirname(recorder.path))
    recorder.log(2, loss=1.0)
    recorder.flush()
    assert step_numbers(recorder.path) == [2]


def test_a_renamed_file_is_left_within_a_second(tmp_path):
    clock = ManualClock()
    with Recorder(tmp_path, writer="direct", clock=clock) as recorder:
        recorder.log(1, loss=1.0)
        os.rename(recorder.path, tmp_path / "old.jsonl")
        clock.advance(1.1)
        recorder.log(2, loss=1.0)
        assert step_numbers(recorder.path) == [2]


def test_a_clock_that_is_set_back_does_not_end_the_looking(tmp_path):
    clock = ManualClock()
    with Recorder(tmp_path, writer="direct", clock=clock) as recorder:
        recorder.log(1, loss=1.0)
        clock.advance(-86_400, wall_only=True)
        recorder.log(2, loss=1.0)
        os.rename(recorder.path, tmp_path / "old.jsonl")
        clock.advance(2)
        recorder.log(3, loss=1.0)
        assert step_numbers(recorder.path) == [3]


def test_a_closed_descriptor_is_replaced(recorder):
    os.close(recorder._appender._descriptor)
    recorder.log(1, loss=1.0)
    recorder.flush()
    assert step_numbers(recorder.path) == [1]


def test_a_descriptor_number_that_now_means_another_file_is_never_written_to(recorder, tmp_path):
    number = recorder._appender._descriptor
    precious = os.open(tmp_path / "checkpoint.pt", os.O_RDWR | os.O_CREAT)
    os.dup2(precious, number)
    os.close(precious)
    recorder.log(1, loss=1.0)
    recorder.flush()
    assert os.path.getsize(tmp_path / "checkpoint.pt") == 0
    assert step_numbers(recorder.path) == [1]
    os.close(number)


def test_a_torn_tail_of_a_killed_start_stays_a_line_of_its_own(tmp_path):
    (tmp_path / "metrics.rank00000.jsonl").write_bytes(b'{"type":"step","step":1}\n{"type":"st')
    with Recorder(tmp_path, writer="direct") as recorder:
        recorder.log(2, loss=1.0)
    records, torn = whole(recorder.path)
    assert torn == 1
    assert [record["type"] for record in records] == ["step", "header", "step", "event"]


def test_a_place_that_is_no_directory_is_counted_and_tried_again_each_second(tmp_path, capfd):
    clock = ManualClock()
    (tmp_path / "run").write_text("a file")
    recorder = Recorder(tmp_path / "run", writer="direct", clock=clock)
    for step in range(5):
        recorder.log(step, loss=1.0)
    assert (recorder.lost, recorder.errors) == (5, 1)
    (tmp_path / "run").unlink()
    recorder.log(5, loss=1.0)
    clock.advance(1.1)
    recorder.log(6, loss=1.0)
    recorder.log(7, loss=1.0)
    recorder.close()
    records, _ = whole(recorder.path)
    assert records[1] | {"time_ns": 0} == {
        "type": "step", "step": 6, "time_ns": 0, "values": {"loss": 1.0}, "lost": 6, "errors": 1,
    }  # fmt: skip
    assert "lost" not in records[2]


def test_one_warning_a_minute(tmp_path, capfd):
    clock = ManualClock()
    (tmp_path / "run").write_text("a file")
    recorder = Recorder(tmp_path / "run", writer="direct", clock=clock)
    for step in range(130):
        recorder.log(step, loss=1.0)
        clock.advance(1.0)
    recorder.close()
    assert capfd.readouterr().err.count("trainvitals hook:") == 3


def test_a_closed_stderr_does_not_raise(tmp_path, monkeypatch):
    (tmp_path / "run").write_text("a file")
    monkeypatch.setattr(sys, "stderr", None)
    recorder = Recorder(tmp_path / "run", writer="direct")
    recorder.log(1, loss=1.0)
    assert recorder.lost == 1


def test_a_read_only_directory_is_counted(tmp_path, capfd):
    if os.geteuid() == 0:
        target = "/proc/self"  # root ignores modes; the kernel's own file system refuses everyone
    else:
        tmp_path.chmod(0o500)
        target = str(tmp_path)
    recorder = Recorder(target, writer="direct")
    recorder.log(1, loss=1.0)
    recorder.close()
    assert (recorder.lost, recorder.errors) == (1, 1)


def test_a_pipe_in_place_of_the_file_neither_blocks_nor_raises(tmp_path, capfd):
    os.mkfifo(tmp_path / "metrics.rank00000.jsonl")
    recorder = Recorder(tmp_path, writer="direct")
    recorder.log(1, loss=1.0)
    recorder.close()
    assert recorder.lost == 1


FULL_DISK = """
import json, resource, sys
from trainvitals.hook import Recorder
recorder = Recorder(sys.argv[1], writer=sys.argv[2])
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
for step in range(5000):
    recorder.log(step, loss=1.0, grad_norm=2.0, lr=3e-4)
recorder.flush()
before = recorder.lost
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    import os
    os.unlink(sys.argv[1] + "/filler")
for step in range(5000, 5010):
    recorder.log(step, loss=1.0)
recorder.close()
print(json.dumps({"before": before, "lost": recorder.lost, "errors": recorder.errors}))
"""


@pytest.fixture(params=["tmpfs", "limit"])
def full_disk(request, tmp_path):
    """(directory, further arguments): a real small file system that is nearly full, or a limit of the file size."""
    if request.param == "limit":
        yield str(tmp_path), ["100000"]
        return
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        (disk / "filler").write_bytes(b"x" * 128 * 1024)
        yield str(disk), []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("mode", ["direct", "queued"])
def test_a_full_disk_is_counted_exactly_and_writing_goes_on_when_there_is_space(full_disk, mode):
    directory, arguments = full_disk
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, directory, mode, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    path = os.path.join(directory, "metrics.rank00000.jsonl")
    numbers = step_numbers(path)
    assert said["before"] > 0 and said["errors"] > 0
    assert len(numbers) == 5010 - said["lost"]
    assert numbers[-1] == 5009
    records, torn = whole(path)
    assert torn <= 1
    assert max(record.get("lost", 0) for record in records) == said["lost"]
    assert "trainvitals hook:" in done.stderr


WRITER = """
import os
import sys
from trainvitals.hook import Recorder
recorder = Recorder(sys.argv[1], writer="direct")
step = int(sys.argv[2])
while True:
    recorder.log(step, loss=2.0 / (step + 1), grad_norm=1.5, lr=3e-4)
    os.write(1, b"%d\\n" % step)  # only after log() has returned
    step += 1
"""


def test_kill_9_loses_no_record_that_log_returned_for_and_tears_at_most_the_last_line(tmp_path):
    first, returned = 0, set()
    rounds = 5
    for _ in range(rounds):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE)
        lines = [child.stdout.readline() for _ in range(200)]
        child.kill()
        lines += child.stdout.read().split(b"\n")[:-1]
        child.stdout.close()
        child.wait(TIMEOUT_S)
        assert child.returncode == -signal.SIGKILL
        returned |= {int(line) for line in lines}
        first = max(returned) + 2
    path = tmp_path / "metrics.rank00000.jsonl"
    records, torn = whole(path)
    assert returned <= set(step_numbers(path))
    assert torn <= rounds
    assert sum(record["type"] == "header" for record in records) == rounds


def test_a_forked_child_writes_a_file_of_its_own(tmp_path):
    with Recorder(tmp_path, run="r1", writer="direct") as recorder:
        recorder.log(1, loss=1.0)
        child = os.fork()
        if child == 0:
            recorder.log(2, loss=2.0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        recorder.log(3, loss=3.0)
    assert step_numbers(tmp_path / "metrics.rank00000.jsonl") == [1, 3]
    records, _ = whole(tmp_path / f"metrics.rank00000.pid{child}.jsonl")
    assert [record["type"] for record in records] == ["header", "step"]
    assert (records[0]["pid"], records[1]["step"]) == (child, 2)


def test_a_forked_child_closes_no_file_that_took_the_number_of_ours(tmp_path):
    recorder = Recorder(tmp_path, run="r")
    recorder.log(1, loss=1.0)
    number = recorder._appender._descriptor
    os.close(number)  # a trainer that closes all it does not know, and opens its next file under the number
    theirs = os.open(tmp_path / "checkpoint.bin", os.O_RDWR | os.O_CREAT)
    assert theirs == number
    child = os.fork()
    if not child:
        try:
            os.write(theirs, b"weights")
            os._exit(0)
        except OSError:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "checkpoint.bin").read_bytes() == b"weights"
    recorder.log(2, loss=1.0)
    recorder.close()
    os.close(theirs)
    assert "weights" not in (tmp_path / "metrics.rank00000.jsonl").read_text()


def test_a_forked_child_that_logs_nothing_leaves_no_file(tmp_path):
    with Recorder(tmp_path, writer="direct"):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    assert os.listdir(tmp_path) == ["metrics.rank00000.jsonl"]


def test_a_forked_child_of_a_queued_recorder_starts_a_thread_of_its_own(tmp_path):
    with Recorder(tmp_path, writer="queued") as recorder:
        recorder.log(1, loss=1.0)
        child = os.fork()
        if child == 0:
            recorder.log(2, loss=2.0)
            recorder.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert step_numbers(tmp_path / "metrics.rank00000.jsonl") == [1]
    assert step_numbers(tmp_path / f"metrics.rank00000.pid{child}.jsonl") == [2]


def test_what_waits_in_the_queue_is_written_at_the_end_of_the_process(tmp_path):
    code = (
        "import sys; from trainvitals.hook import Recorder; r = Recorder(sys.argv[1], writer='queued')\n"
        "for step in range(1000): r.log(step, loss=1.0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert step_numbers(tmp_path / "metrics.rank00000.jsonl") == list(range(1000))


class HungDisk(appender.Appender):
    """Blocks in ``write`` until it is released."""

    def __init__(self, path):
        super().__init__(path, lambda: "{}\n")
        self.entered, self.release = threading.Event(), threading.Event()
        self.got = []

    def write(self, line, now_ns, records=1):
        self.entered.set()
        self.release.wait(TIMEOUT_S)
        self.got += line.splitlines()
        return records


def test_a_hung_disk_does_not_block_the_producer_and_the_oldest_records_go(tmp_path):
    disk = HungDisk(str(tmp_path / "x"))
    writer = queue.QueuedWriter(disk, lambda: 0, max_records=100)
    writer.put(lambda: "first\n")
    assert disk.entered.wait(TIMEOUT_S)
    for number in range(250):
        writer.put(lambda number=number: f"{number}\n")
    assert disk.lost == 150
    writer.close(timeout_s=0.05)
    assert disk.last_error == "the disk did not answer at the end"
    disk.release.set()
    writer._thread.join(TIMEOUT_S)
    assert disk.got == ["first"] + [str(number) for number in range(150, 250)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_consumer_that_died_is_started_again(tmp_path):
    writer = queue.QueuedWriter(appender.Appender(str(tmp_path / "x.jsonl"), lambda: "{}\n"), lambda: 0)

    def kills():
        raise SystemExit

    writer.put(kills)
    writer._wake.set()
    writer._thread.join(TIMEOUT_S)
    assert not writer._thread.is_alive()
    writer.put(lambda: '{"a":1}\n')
    writer.close()
    assert (tmp_path / "x.jsonl").read_text() == '{}\n{"a":1}\n'


def test_more_threads_than_the_system_allows_is_counted(tmp_path, monkeypatch):
    def refuses(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    recorder = Recorder(tmp_path, writer="queued")
    recorder.log(1, loss=1.0)
    assert recorder.errors >= 2
    with contextlib.suppress(RuntimeError):
        recorder.close()


def test_the_file_is_not_readable_for_everyone(tmp_path):
    with Recorder(tmp_path, writer="direct") as recorder:
        assert stat.S_IMODE(os.stat(recorder.path).st_mode) & 0o007 == 0
