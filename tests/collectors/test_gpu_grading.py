import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gpu import STATES, GpuCollector, grade, node_of, sample_of
from collectors.gpu_process import Unresponsive
from collectors.nvml import Fault, GpuReading, Reading
from trainvitals.clock import ManualClock


def reading(**values):
    return GpuReading(0, "GPU-0", values)


def sample(**values):
    return sample_of("n", reading(**values), "ok", 1)


@pytest.mark.parametrize(
    ("values", "before", "state"),
    [
        ({"temperature_c": 60.0}, None, "ok"),
        ({"temperature_c": 85.0}, None, "warm"),
        ({"memory_temperature_c": 95.0}, None, "warm"),
        ({"throttle_reasons": 0x4}, sample(throttle_reasons=0x4), "ok"),
        ({"throttle_reasons": 0x80}, None, "warm"),
        ({"throttle_reasons": 0x80}, sample(throttle_reasons=0x4), "warm"),
        ({"throttle_reasons": 0x80}, sample(throttle_reasons=0x8), "warn"),
        ({"ecc_uncorrected": 2}, None, "warn"),
        ({"ecc_uncorrected": 2}, sample(ecc_uncorrected=2), "warn"),
        ({"ecc_uncorrected": 3}, sample(ecc_uncorrected=2), "fail"),
        ({"ecc_uncorrected": 0}, sample(ecc_uncorrected=2), "ok"),
        ({"ecc_uncorrected": 1}, sample(), "fail"),
        ({"remapped_rows_pending": True}, None, "warn"),
        ({"remapped_rows_pending": True, "remapped_rows_failure": True}, None, "fail"),
        ({"xid_last": 79, "xid_age_s": 1.0}, None, "fail"),
        ({"xid_last": 79, "xid_age_s": 3601.0}, None, "ok"),
        ({"xid_last": 13, "xid_age_s": 1.0}, None, "ok"),
        ({"xid_last": 9999, "xid_age_s": 1.0}, None, "warn"),
    ],
)
def test_a_gpu_is_graded_by_what_it_says(values, before, state):
    assert grade(reading(**values), before).state == state


def test_a_fault_of_one_field_grades_only_what_it_means():
    assert grade(GpuReading(0, "u", {}, {"power": Fault.NOT_SUPPORTED}), None).state == "ok"
    assert grade(GpuReading(0, "u", {}, {"power": Fault.RESET_REQUIRED}), None).state == "fail"
    assert grade(GpuReading(0, "", {}, {"handle": Fault.NO_PERMISSION}), None).state == "warn"


@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=16))
def test_the_node_is_as_bad_as_its_worst_gpu(states):
    samples = [sample_of("n", GpuReading(i, f"GPU-{i}"), state, 1) for i, state in enumerate(states)]
    worst = STATES[max(map(STATES.index, states))]
    node = node_of("n", samples, [], 1)
    assert (node.state, node.gpus) == ("fail" if worst == "lost" else worst, len(states))
    assert node.utilization_mean_percent is None


class Source:
    def __init__(self, *answers):
        self.answers = list(answers)

    def poll(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


def test_trouble_is_said_when_it_begins_and_when_it_ends_each_time():
    well = Reading(gpus=[reading()])
    hung = [Unresponsive("driver unresponsive: no answer for 8 s"), Unresponsive("driver unresponsive: no answer for 18 s")]
    said = []
    collector = GpuCollector("n", Source(well, *hung, well, *hung, well), ManualClock(), said.append)
    states = [collector.samples()[1].state for _ in range(7)]
    assert states == ["ok", "fail", "fail", "ok", "fail", "fail", "ok"]
    assert said == ["n: driver unresponsive: no answer for 8 s", "n: the NVIDIA driver answers again"] * 2


def test_a_driver_without_gpus_is_no_fault_unless_there_were_some():
    collector = GpuCollector("n", Source(Reading(), Reading(gpus=[reading()]), Reading()), ManualClock(), lambda text: None)
    assert [collector.samples()[1].state for _ in range(3)] == ["no_gpu", "ok", "fail"]


def test_every_error_of_nvml_becomes_a_fault_of_ours():
    import pynvml

    from collectors.nvml import NvmlFault, call

    def failing(error):
        def function():
            raise error

        return function

    for code in (*range(1, 31), 999):
        with pytest.raises(NvmlFault) as caught:
            call(failing(pynvml.NVMLError(code)))
        assert caught.value.fault in Fault
    for error in (pynvml.NVMLLibraryMismatchError(), AttributeError("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")):
        with pytest.raises(NvmlFault):
            call(failing(error))
