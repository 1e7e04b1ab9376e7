"""The unmodified pynvml, loaded in the real child process, on a made-up driver."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.gpu import GpuCollector
from collectors.gpu_process import GpuProcess, Unresponsive
from trainvitals.clock import SystemClock
from trainvitals.store.encode import check_point

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def collector(driver_environment):
    """fault -> collector; what it says goes to ``said``."""
    opened = []

    def make(fault, deadline_s=30.0, **more):
        clock = SystemClock()
        process = GpuProcess(clock, deadline_s, environment=driver_environment(fault) | more)
        said = []
        made = GpuCollector("node1", process, clock, said.append)
        made.said, made.process = said, process
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


def test_eight_healthy_gpus_are_eight_samples_and_one_node(collector):
    samples, node = collector("ok").samples()
    assert [(sample.index, sample.gpu, sample.state) for sample in samples] == [(i, f"GPU-fake-{i}", "ok") for i in range(8)]
    first = samples[0]
    assert (first.utilization_percent, first.temperature_c, first.memory_temperature_c) == (90.0, 61.0, 70.0)
    assert (first.power_w, first.power_limit_w, first.sm_clock_mhz) == (650.0, 700.0, 1980.0)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (70 << 30, 80 << 30)
    assert (first.throttle_reasons, first.ecc_uncorrected, first.remapped_rows_failure, first.pcie_replays) == (4, 0, False, 0)
    assert (node.state, node.gpus, node.utilization_min_percent, node.power_sum_w, node.text) == ("ok", 8, 90.0, 5200.0, "")


def test_its_points_fit_the_schema(collector):
    points = list(collector("ok").collect())
    for point in points:
        check_point(point)
    assert [point.measurement for point in points] == ["gpu"] * 8 + ["node"]


@pytest.mark.parametrize("fault", ["lost", "lost_handle"])
def test_one_lost_gpu_does_not_stop_the_other_seven(collector, fault):
    samples, node = collector(fault).samples()
    assert [sample.state for sample in samples] == ["ok"] * 3 + ["lost"] + ["ok"] * 4
    assert all(sample.utilization_percent for sample in samples if sample.index != 3)
    assert (node.state, node.gpus) == ("fail", 8)
    assert "GPU 3" in node.text
    assert "lost" in node.text


def test_a_gpu_that_goes_missing_keeps_its_name_whatever_happens_to_the_indices(collector, tmp_path):
    chosen = tmp_path / "fault"
    chosen.write_text("ok")
    watched = collector(f"@{chosen}")
    watched.samples()
    for fault in ("lost", "lost_handle", "one_less"):
        chosen.write_text(fault)
        samples, node = watched.samples()
        assert {sample.gpu: sample.state for sample in samples} == {
            f"GPU-fake-{i}": "lost" if i == 3 else "ok" for i in range(8)
        }, fault
        assert (node.state, node.gpus) == ("fail", 8)
    chosen.write_text("ok")
    assert {sample.state for sample in watched.samples()[0]} == {"ok"}


@pytest.mark.parametrize(("fault", "text"), [("mismatch", "differ in version"), ("not_loaded", "kernel module is not loaded")])
def test_a_broken_driver_fails_the_node_and_says_what_to_do(collector, fault, text):
    watched = collector(fault)
    for _ in range(2):
        samples, node = watched.samples()
        assert (samples, node.state, node.gpus) == ([], "fail", 0)
        assert text in node.text
    assert len(watched.said) == 1


def test_a_field_that_is_not_supported_is_absent_and_asked_once(collector, tmp_path):
    asked = tmp_path / "asked"
    watched = collector("unsupported", FAKE_NVML_ASKED=str(asked))
    for _ in range(3):
        samples, node = watched.samples()
        assert [sample.utilization_percent is None for sample in samples] == [False, False, True] + [False] * 5
        assert samples[2].temperature_c == 61.0
        assert node.state == "ok"
    assert asked.read_text() == "asked\n"
    assert sum("utilization" in text for text in watched.said) == 1


def test_a_hanging_driver_is_told_from_outside_and_no_second_poll_starts(collector, tmp_path):
    chosen = tmp_path / "fault"
    chosen.write_text("ok")
    watched = collector(f"@{chosen}")
    watched.samples()
    watched.process._deadline_s = 0.2
    pid = watched.process.pid
    chosen.write_text("hang")
    for _ in range(3):
        samples, node = watched.samples()
        assert (samples, node.state, node.gpus) == ([], "fail", 8)
        assert "driver unresponsive" in node.text
    assert (watched.process.pid, watched.process.started, watched.process._number) == (pid, 1, 2)
    assert len(watched.said) == 1
    watched.process._deadline_s = 30.0
    chosen.write_text("ok")
    assert watched.samples()[1].state == "ok"
    assert watched.process.pid == pid


def test_a_dead_child_is_replaced(collector):
    watched = collector("ok")
    watched.samples()
    os.kill(watched.process.pid, 9)
    # The kill takes effect while it is asked or before: then it answers nothing, or is replaced at once.
    os.waitid(os.P_PID, watched.process.pid, os.WEXITED | os.WNOWAIT)
    assert watched.samples()[1].state == "ok"
    assert watched.process.started == 2


def test_a_program_that_cannot_be_started_is_unresponsive_not_an_exception_of_its_own():
    process = GpuProcess(SystemClock(), 1.0, command=("/nonexistent/python",))
    with pytest.raises(Unresponsive, match="could not be started"):
        process.poll()
    process.close()


def test_an_xid_is_taken_from_the_driver_and_fails_its_gpu(collector):
    samples, node = collector("xid").samples()
    assert [sample.xid_last for sample in samples] == [None] * 3 + [79] + [None] * 4
    assert (samples[3].state, node.state, node.xid_last) == ("fail", "fail", 79)


def test_hardware_throttling_counts_when_it_lasts(collector):
    watched = collector("hot")
    assert watched.samples()[0][3].state == "warm"
    samples, node = watched.samples()
    assert (samples[3].state, node.state, node.temperature_max_c) == ("warn", "warn", 91.0)


def test_a_row_that_could_not_be_remapped_fails_the_gpu(collector):
    samples, _ = collector("rows").samples()
    assert (samples[3].state, samples[3].remapped_rows_failure) == ("fail", True)


def test_a_driver_that_forgot_us_is_opened_again(collector, tmp_path):
    chosen = tmp_path / "fault"
    chosen.write_text("ok")
    watched = collector(f"@{chosen}")
    watched.samples()
    chosen.write_text("uninitialized")
    assert watched.samples()[1].state == "fail"
    chosen.write_text("ok")
    assert watched.samples()[1].state == "ok"


def _command(environment, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "collectors", *arguments], env=environment, cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_once_to_stdout_prints_json_lines_and_nothing_of_the_driver(driver_environment, tmp_path):
    done = _command(driver_environment("lost"), "gpu", "--once", "--stdout", "--node", "n1", cwd=tmp_path)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [record["measurement"] for record in records] == ["gpu"] * 8 + ["node"]
    assert records[3]["fields"]["state"] == "lost"


def test_without_a_driver_the_node_has_no_gpu_and_that_is_no_fault(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"} | {"PYTHONPATH": str(ROOT)}
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    done = _command(environment, "gpu", "--once", "--stdout", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["fields"]["state"] == "no_gpu"
    assert done.stderr.count("no NVIDIA driver") == 1


def test_once_with_settings_writes_to_the_store(driver_environment, tmp_path):
    from trainvitals.store.open import open_store

    url = f"sqlite://{tmp_path}/tv.db"
    (tmp_path / "tv.toml").write_text(f'store = "{url}"\n')
    done = _command(driver_environment("ok"), "gpu", "--once", "--config", "tv.toml", "--node", "n1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    store = open_store(url)
    try:
        now_ns = SystemClock().time_ns()
        frame = store.latest("gpu", ["state", "utilization_percent"], {}, 600 * 10**9, now_ns)
        assert len(frame) == 8
        assert set(frame["state"]) == {"ok"}
    finally:
        store.close()


def test_sigterm_ends_the_collector_and_its_child(driver_environment, tmp_path):
    command = [sys.executable, "-m", "collectors", "gpu", "--stdout"]
    with subprocess.Popen(command, env=driver_environment("ok"), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["measurement"] == "gpu"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()
