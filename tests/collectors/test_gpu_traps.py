"""What drivers, containers and repairs do to GPU health: each a trap that others fell into."""

import pytest

from collectors import gpu_process
from collectors.gpu import GpuCollector, grade
from collectors.gpu_process import GpuProcess
from collectors.nvml import ASK_AGAIN_S, Fault, GpuReading, Reading
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.store.encode import check_point, gpu_point


@pytest.fixture
def collector(driver_environment):
    """fault -> collector on the made-up driver."""
    opened = []

    def make(fault, deadline_s=30.0, **more):
        process = GpuProcess(SystemClock(), deadline_s, environment=driver_environment(fault))
        made = GpuCollector("node1", process, SystemClock(), lambda _: None, **more)
        made.process = process
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


class Source:
    def __init__(self, *answers):
        self.answers = list(answers)

    def poll(self):
        return self.answers.pop(0)

    def close(self):
        pass


def well(*indices, **values):
    return Reading(gpus=[GpuReading(index, f"GPU-{index}", {"temperature_c": 50.0, **values}) for index in indices])


def states(collector, polls):
    return [collector.samples()[1].state for _ in range(polls)]


def test_a_gpu_that_answers_no_question_is_not_well(collector):
    samples, node = collector("unknown").samples()
    assert [sample.state for sample in samples] == ["ok"] * 3 + ["fail"] + ["ok"] * 4
    assert (node.state, samples[3].temperature_c) == ("fail", None)
    assert "answers no question" in node.text


@pytest.mark.parametrize("fault", ["unknown_handle", "uncounted"])
def test_a_gpu_without_a_handle_fails_the_node_and_hides_none_of_the_others(collector, tmp_path, fault):
    samples, node = collector(fault).samples()
    assert {sample.gpu for sample in samples} == {f"GPU-fake-{i}" for i in range(8) if i != 3} | {"index-3"}
    assert (node.state, node.gpus) == ("fail", 8)
    assert "cannot be asked" in node.text
    chosen = tmp_path / "fault"
    chosen.write_text("ok")
    watched = collector(f"@{chosen}")
    watched.samples()
    chosen.write_text(fault)
    samples, _ = watched.samples()
    assert {sample.gpu: sample.state for sample in samples} == {f"GPU-fake-{i}": "lost" if i == 3 else "ok" for i in range(8)}


def test_one_question_without_an_answer_is_no_fault():
    gpu = GpuReading(
        0, "u", {"utilization_percent": 90.0, "temperature_c": 60.0, "memory_used_bytes": 1}, {"power": Fault.UNKNOWN}
    )
    assert grade(gpu, None).state == "ok"


def test_a_gpu_in_mig_mode_tells_less_and_is_well():
    faults = {"utilization": Fault.NOT_SUPPORTED, "memory": Fault.NO_PERMISSION, "power": Fault.NOT_SUPPORTED}
    assert grade(GpuReading(0, "u", {"temperature_c": 60.0}, faults), None).state == "ok"


def test_what_is_no_value_is_absent_and_the_rest_is_kept(collector):
    samples, node = collector("garbage").samples()
    bad = samples[3]
    assert (bad.utilization_percent, bad.memory_used_bytes, bad.power_w, bad.ecc_uncorrected) == (None, None, None, None)
    assert (bad.temperature_c, bad.power_limit_w, bad.state) == (61.0, 700.0, "ok")
    assert (node.power_sum_w, node.utilization_mean_percent) == (
        7 * 650.0,
        pytest.approx(sum(90 + i for i in range(8) if i != 3) / 7),
    )
    check_point(gpu_point(bad))


def test_what_the_driver_asks_for_is_told(collector):
    samples, node = collector("recover").samples()
    assert (samples[3].state, node.state) == ("fail", "fail")
    assert "reboot the node" in node.text


def test_the_first_answer_of_a_slow_driver_is_awaited_and_is_no_hang(collector, tmp_path):
    chosen = tmp_path / "fault"
    chosen.write_text("hang_init")
    slow = collector(f"@{chosen}", deadline_s=0.2)
    _, node = slow.samples()
    assert (node.state, "persistence mode" in node.text) == ("warn", True)
    slow.process._deadline_s = 60.0
    chosen.write_text("ok")
    assert slow.samples()[1].state == "ok"
    slow.process._deadline_s = 0.2
    chosen.write_text("hang")
    assert slow.samples()[1].state == "fail"
    chosen.write_text("ok")


def test_after_an_update_of_the_driver_a_new_process_loads_the_new_library(collector, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_process, "RENEW_AFTER_S", 0.0)
    chosen = tmp_path / "fault"
    chosen.write_text("ok")
    watched = collector(f"@{chosen}")
    watched.samples()
    first = watched.process.pid
    chosen.write_text("mismatch")
    # The library is asked anew only when it was closed: as after a lost GPU, or by a process that begins.
    watched.process.close()
    assert watched.samples()[1].state == "fail"
    chosen.write_text("ok")
    assert watched.samples()[1].state == "ok"
    assert (watched.process.started, watched.process.pid != first) == (3, True)


def test_a_young_process_is_not_replaced_at_every_poll(collector):
    watched = collector("mismatch")
    assert states(watched, 3) == ["fail"] * 3
    assert watched.process.started == 1


def test_a_machine_whose_driver_library_goes_away_did_not_lose_its_gpus_on_purpose():
    gone = Reading("no_library", "not there")
    watched = GpuCollector("n", Source(well(0, 1), gone), ManualClock(), lambda _: None)
    assert states(watched, 1) == ["ok"]
    _, node = watched.samples()
    assert (node.state, node.gpus) == ("fail", 2)
    assert "this machine has 2 GPUs" in node.text


@pytest.mark.parametrize("answer", [Reading("no_library", ""), Reading(), well(0, 1, 2)])
def test_gpus_that_did_not_come_back_after_a_reboot_are_missed_when_their_number_is_set(answer):
    watched = GpuCollector("n", Source(answer), ManualClock(), lambda _: None, expected=4)
    _, node = watched.samples()
    assert node.state == "fail"
    assert "4 GPUs" in node.text


def test_as_many_gpus_as_expected_or_more_are_well():
    watched = GpuCollector("n", Source(well(0, 1), well(0, 1, 2)), ManualClock(), lambda _: None, expected=2)
    assert states(watched, 2) == ["ok", "ok"]


def test_new_memory_errors_are_told_for_an_hour_and_not_for_one_poll():
    clock = ManualClock()
    watched = GpuCollector("n", Source(*[well(0, ecc_uncorrected=n) for n in (0, 3, 3, 3)]), clock, lambda _: None)
    assert states(watched, 3) == ["ok", "fail", "fail"]
    clock.advance(3601)
    assert states(watched, 1) == ["warn"]


def test_errors_known_from_before_a_poll_without_an_answer_are_no_news():
    quiet = Reading(gpus=[GpuReading(0, "GPU-0", {"temperature_c": 50.0}, {"ecc_uncorrected": "unknown"})])
    watched = GpuCollector(
        "n", Source(well(0, ecc_uncorrected=3), quiet, well(0, ecc_uncorrected=3)), ManualClock(), lambda _: None
    )
    assert states(watched, 3) == ["warn", "ok", "warn"]


def test_a_counter_that_began_anew_with_the_driver_tells_new_errors_again():
    readings = [well(0, ecc_uncorrected=n) for n in (5, 2)]
    assert states(GpuCollector("n", Source(*readings), ManualClock(), lambda _: None), 2) == ["warn", "fail"]
    readings = [well(0, ecc_uncorrected=n) for n in (5, 6, 0)]
    assert states(GpuCollector("n", Source(*readings), ManualClock(), lambda _: None), 3) == ["warn", "fail", "ok"]


def test_what_was_not_supported_is_asked_again_after_an_hour(monkeypatch):
    import pynvml

    from collectors import nvml

    asked = []

    def utilization(_handle):
        asked.append(1)
        raise pynvml.NVMLError(3)

    clock = ManualClock()
    reader = nvml.Nvml(clock)
    for name in ("nvmlInit", "nvmlEventSetCreate"):
        monkeypatch.setattr(pynvml, name, lambda: 0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda _: 7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: "GPU-0")
    monkeypatch.setattr(nvml, "_FIELDS", {"utilization": lambda handle: nvml.call(utilization, handle)})
    for _ in range(3):
        reader.read()
    assert len(asked) == 1
    clock.advance(ASK_AGAIN_S + 1)
    reader.read()
    assert len(asked) == 2


def test_clocks_lowered_by_software_because_it_is_hot_are_warm_and_idle_ones_are_well():
    assert grade(GpuReading(0, "u", {"throttle_reasons": 0x20}), None).state == "warm"
    assert grade(GpuReading(0, "u", {"throttle_reasons": 0x1}), None).state == "ok"


def test_a_lost_gpu_says_when_it_last_answered():
    clock = ManualClock()
    lost = Reading(gpus=[GpuReading(0, "GPU-0", is_lost=True)])
    watched = GpuCollector("n", Source(well(0, 1), lost, lost), clock, lambda _: None)
    watched.samples()
    for _ in range(2):
        clock.advance(600)
        text = watched.samples()[1].text
    assert text.count("last answered 2026-01-02 03:04:05 UTC") == 2
