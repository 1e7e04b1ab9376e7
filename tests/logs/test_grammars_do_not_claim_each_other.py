"""Each grammar knows its own lines and nobody else's: the format of a log is found by one line."""

from pathlib import Path

import pytest
from reading import DATA, read

from trainvitals.logs.framing import LineFramer
from trainvitals.logs.registry import GRAMMARS

ROOT = Path(__file__).resolve().parents[2]
#: (whose line, who claims it too): why that is right
BOTH = {
    ("hook_jsonl", "jsonl"): "a record of the hook is a JSON line; the hook's grammar is asked first",
    ("tensorboard", "jsonl"): "an event file is handed over as JSON lines; TensorBoard's grammar is asked first",
    ("megatron", "deepspeed"): "Megatron-DeepSpeed prints DeepSpeed's lines for the same iterations; DeepSpeed's grammar is weak",
    ("lingua", "torchtitan"): "Lingua's pairs are torchtitan's but for their names; Lingua is asked first",
    ("automodel", "nanogpt"): "AutoModel's cells look like those of nanoGPT's relatives; AutoModel is asked first",
}
SOURCE_CODE = [
    'print(f"iter {iter_num}: loss {lossf:.4f}, time {dt*1000:.2f}ms, mfu {running_mfu*100:.2f}%")',
    'log_strs = [f"iteration: {iteration_step} / {self.global_step}"]',
    "f\"completed step: {step}, seconds: {metrics['scalar']['perf/step_time_seconds']:.3f}, \"",
    'return f"[step={step}/{self.trainer.max_steps},epoch={self.trainer.epoch}]"',
    "curr_progress = f'[batch={cur_batch}/{total}]:'",
    'logger.info("{}:  {:5d} / {:d} {}".format(self.prefix, self.i + 1, self.size, postfix))',
    '"| train_inner | " + json.dumps({"epoch": 1, "num_updates": num_updates, "loss": loss})',
    "log_str = (f'Epoch({mode}){cur_epoch_str}[{cur_iter_str}/{dataloader_len}]  lr: {lr}  loss: {loss}')",
    "header = 'Epoch: [{}]'.format(epoch)",
    'pbar.set_description(f"{curr_epoch + 1}|{self.global_step}|Loss: {loss_to_log}")',
    "f\"iter {state['iter_num']} step {state['step_count']}: loss {loss.item():.4f}, iter time: {t:.2f}ms\"",
    '"global step %d, epoch: %d, batch: %d, loss: %f, speed: %.2f step/s, ips: %.0f"',
    "+ torchrun --nproc_per_node 8 train.py --loss mse --step 40 --iteration 5000 --lm_loss 1 --train_loss yes",
    "The loss after step 40 / 500 was 2.5 (see the table), epoch [1][40/500] took 3 hours.",
    "for step in 1 2 3; do echo loss: $step; done",
]


def lines_of(data: bytes) -> list[str]:
    framer = LineFramer()
    return framer.feed(data) + [text for _, text, _ in framer.finish()]


def others(name: str, lines: list[str]) -> list[tuple[str, str, str]]:
    return [
        (name, other, line)
        for line in lines
        for other, grammar in GRAMMARS.items()
        if other != name and (name, other) not in BOTH and grammar.claims(line)
    ]


@pytest.mark.parametrize("name", GRAMMARS)
def test_no_grammar_claims_a_line_of_anothers_example(name):
    assert others(name, lines_of(GRAMMARS[name].example.encode())) == []


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.name)
def test_no_grammar_claims_a_line_of_anothers_log(path):
    raw = path.read_bytes()
    format = read(raw)[0].format
    assert format is not None, "a log of this folder whose format is not found"
    assert others(format, lines_of(raw)) == []


@pytest.mark.parametrize("name", GRAMMARS)
def test_no_grammar_claims_source_code_or_prose(name):
    assert [line for line in SOURCE_CODE if GRAMMARS[name].claims(line)] == []


@pytest.mark.parametrize("name", [name for name, grammar in GRAMMARS.items() if not grammar.is_document])
def test_no_grammar_claims_a_line_of_this_projects_code(name):
    files = [path for path in (ROOT / "trainvitals").rglob("*.py") if "logs" not in path.parts]
    assert [line for path in files for line in lines_of(path.read_bytes()) if GRAMMARS[name].claims(line)] == []


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_claimed_line_holds_one_of_the_literals(name):
    grammar = GRAMMARS[name]
    if not grammar.literals:
        return
    claimed = [line for path in DATA.iterdir() for line in lines_of(path.read_bytes()) if grammar.claims(line)]
    assert [line for line in claimed if not any(literal in line for literal in grammar.literals)] == []


@pytest.mark.parametrize("pair", sorted(BOTH), ids="-".join)
def test_of_two_that_may_claim_a_line_the_particular_one_is_asked_first_or_the_other_is_weak(pair):
    names = list(GRAMMARS)
    if pair[0] in GRAMMARS and pair[1] in GRAMMARS:
        assert names.index(pair[0]) < names.index(pair[1]) or GRAMMARS[pair[1]].is_weak
