"""OLMo's and OLMo-core's records over several lines."""

import pytest
from reading import DATA, read, read_file, read_in_pieces, seconds

from trainvitals.logs.grammars.olmo import Olmo
from trainvitals.logs.times import LineTimes

HEADER = "2026-01-02 03:04:05.678\thost-1:0\tolmo.train:908\tINFO\t[step=2/1000,epoch=0]"


def test_a_block_is_one_record():
    parser, steps, _ = read_file("olmo.log")
    assert parser.format == "olmo"
    assert [step.step for step in steps] == [2, 3, 4, 5]
    assert steps[0].values == {
        "grad_norm": 231.0, "lr": 3e-7, "loss": 11.98, "train_perplexity": 194_853.0, "tokens": 8_388_608.0,
        "tokens_per_s": 26_000.0, "system_peak_gpu_memory_mb": 42_133.0,
    }  # fmt: skip
    assert [seconds(step) for step in steps] == pytest.approx([2.678, 3.678, 4.678, 5.678])


def test_a_loss_that_collapses_keeps_its_exponent():
    _, steps, _ = read_file("olmo.log")
    assert [step.values["loss"] for step in steps] == [11.98, 11.88, 2.5e-06, 0.0]


def test_olmo_core_behind_a_log_service_is_read_too():
    _, steps, events = read_file("olmo_core.log")
    assert [step.step for step in steps] == [120, 121, 122, 123]
    assert steps[0].values["loss"] == 6.043
    assert steps[0].values["tokens"] == 1.258e9
    assert steps[0].values["mfu"] == 41.25
    assert steps[2].values == {}
    assert steps[3].nonfinite == {"loss": "nan"}
    assert [(event.kind, event.step) for event in events] == [
        ("resume", 119), ("message", 123), ("phase", 123), ("phase", 123),
    ]  # fmt: skip


def test_an_evaluation_is_an_event_and_no_step():
    _, _, events = read_file("olmo.log")
    assert [event.data for event in events if event.kind == "message"] == [
        {"validation_loss": 3.25, "validation_set": "eval_c4_en_validation"}
    ]


@pytest.mark.parametrize(
    "header",
    [
        "[2026-01-02 03:04:05] INFO     [olmo.train:816, rank=0] [step=7/739328]",
        "[2026-01-02 03:04:05] INFO     [olmo.train.trainer:1306, rank=0] [step=7/30,000, eta=1 hour, 2 minutes]",
        "0: 2026-01-02 03:04:05.678\thost:0\tolmo_core:45\tINFO\t[step=7/???,epoch=1,eta=5h11m(hard stop)]",
    ],
)
def test_every_generation_of_the_header_opens_a_record(header):
    _, steps, _ = read(f"{header}\n    train/CE loss=3.5\nnoise\n")
    assert [(step.step, step.values) for step in steps] == [(7, {"loss": 3.5})]


def test_a_record_that_is_silent_for_seconds_is_given_out_and_not_twice():
    grammar = Olmo(LineTimes())
    assert grammar.feed(HEADER) == []
    assert grammar.feed("    train/CrossEntropyLoss=9.5") == []
    assert [record.step for record in grammar.idle()] == [2]
    assert grammar.finish() == []


def test_a_block_without_end_keeps_little():
    grammar = Olmo(LineTimes())
    grammar.feed(HEADER)
    for number in range(10_000):
        grammar.feed(f"    metric{number}=1.0")
    assert len(str(grammar.to_state())) < 20_000


def test_a_second_start_in_the_file_is_a_second_attempt():
    start = "2026-01-02 03:04:01.678\thost-1:0\tscripts.train:230\tINFO\tStarting training...\n"
    ours = start.replace("scripts.train", "train")
    block = "2026-01-02 03:04:05.678\thost-1:0\tolmo.train:908\tINFO\t[step={}/1000]\n    train/CrossEntropyLoss=9.5\n"
    _, steps, _ = read(ours + block.format(5) + start + block.format(6) + ours + block.format(7))
    assert [(step.step, step.attempt) for step in steps] == [(5, 1), (6, 1), (7, 2)]


def test_evaluation_progress_opens_no_record():
    assert not Olmo.claims("2026-01-02 03:04:05.678\thost-1:0\tolmo.train:908\tINFO\t[eval_step=3/16]")
    assert not Olmo.claims('log.info(f"[step={step}/{total},epoch={epoch}]")')


@pytest.mark.parametrize("name", ["olmo.log", "olmo_core.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)


@pytest.mark.parametrize(
    "prefix", ["2026-01-02T03:04:{:02}.123Z ", "trainer-1  | ", "Jan 02 03:04:{:02} node7 python[12]: ", "> "]
)
def test_what_a_log_service_puts_before_each_line_hides_no_value(prefix):
    lines = [HEADER, "    train/CrossEntropyLoss=3.5", "    optim/total_grad_norm=0.5", "    x=1 and more"]
    _, steps, _ = read("".join(prefix.format(second) + line + "\n" for second, line in enumerate(lines)))
    assert [(step.step, step.values) for step in steps] == [(2, {"loss": 3.5, "grad_norm": 0.5})]
