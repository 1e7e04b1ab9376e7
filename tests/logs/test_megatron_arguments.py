"""The arguments that Megatron-LM and its forks print at a start."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from megatron_lines import FULL, parse

from trainvitals.logs.grammars.megatron_arguments import MegatronArguments

ARGUMENTS = """\
using world size: 64, data-parallel size: 4, context-parallel size: 1 tensor-model-parallel size: 8, pipeline-model-parallel size: 2
using torch.bfloat16 for parameters ...
[default0]:------------------------ arguments ------------------------
[default0]:  adam_beta1 ...................................... 0.9
[default0]:  apply_residual_connection_post_layernorm_always . False
[default0]:  bert_load ....................................... None
NCCL version 2.20.5+cuda12.4
[default0]:  hf_access_token ................................. hf_0123456789abcdefghijABCDEFGHIJ
[default0]:  lr .............................................. 0.0003
[default0]:  tokenizer_type .................................. GPT2BPETokenizer
[default0]:  wandb_project ...................................
[default0]:  a_name_that_is_longer_than_any_column_of_dots_in_the_block  True
[default0]:  data_path ....................................... ['0.5', '/data/a b', '0.5', '/data/c']
[default0]:-------------------- end of arguments ---------------------
setting number of micro-batches to constant 16
"""


def test_the_block_of_arguments_is_metadata_with_secrets_masked_although_no_format_is_known_yet():
    _, found = parse(ARGUMENTS + "noise\n" * 500 + FULL + "\n")
    assert [event.kind for event in found] == ["phase", "metadata", "metadata", "attempt_start"]
    assert found[0].data == {"phase": "start", "state": "begin"}
    assert found[1].data == {
        "section": "layout", "part": 0, "parts": 1,
        "values": {
            "world_size": 64, "data_parallel_size": 4, "context_parallel_size": 1, "tensor_model_parallel_size": 8,
            "pipeline_model_parallel_size": 2,
        },
    }  # fmt: skip
    assert found[2].data == {
        "section": "config", "part": 0, "parts": 1,
        "values": {
            "adam_beta1": 0.9, "apply_residual_connection_post_layernorm_always": False, "bert_load": None, "hf_access_token": "***",
            "lr": 0.0003, "tokenizer_type": "GPT2BPETokenizer", "wandb_project": "",
            "a_name_that_is_longer_than_any_column_of_dots_in_the_block": True,
            "data_path": "['0.5', '/data/a b', '0.5', '/data/c']",
        },
    }  # fmt: skip


def test_arguments_printed_again_are_a_new_start():
    steps_found, found = parse(ARGUMENTS + FULL + "\n" + ARGUMENTS.replace("0.0003", "0.0001") + FULL + "\n")
    assert [(step.attempt, step.step) for step in steps_found] == [(1, 30), (2, 30)]
    assert [(event.attempt, event.data["values"]["lr"]) for event in found if event.data.get("section") == "config"] == [
        (None, 3e-4),
        (None, 1e-4),
    ]


def test_gpt_neox_says_behind_each_value_where_it_comes_from():
    rows = (
        "  lr ............................. 0.0006................updated",
        "  fp16 ........................... None.....default",
    )
    text = "\n".join(
        ("-------------------- arguments --------------------", *rows, "---------------- end of arguments ----------------", "")
    )
    _, found = parse(text)
    assert found[-1].data["values"] == {"lr": 0.0006, "fp16": None}


def test_a_long_block_is_told_in_parts_and_what_is_beyond_is_counted():
    reader = MegatronArguments()
    rows = [f"  option_{n} ......... {'x' * 900}" for n in range(300)]
    lines = ["---------- arguments ----------", *rows, "---------- end of arguments ----------"]
    found = [event for line in lines for event in reader.feed(line) if event.kind == "metadata"]
    assert [event.data["part"] for event in found] == list(range(len(found)))
    assert {event.data["parts"] for event in found} == {len(found)}
    assert all(len(json.dumps(event.data["values"])) <= 32 * 1024 for event in found)
    values_told = {name: value for event in found for name, value in event.data["values"].items()}
    assert values_told.pop("config_keys_left_out") == 300 - len(values_told)


def test_a_block_that_a_crash_cut_off_does_not_swallow_the_log():
    reader = MegatronArguments()
    reader.feed("---------- arguments ----------")
    for n in range(2500):
        reader.feed(f"some line {n}")
    assert reader.to_state()["rows"] is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(ARGUMENTS.splitlines()), st.text(max_size=80)), max_size=30), st.data())
def test_no_line_makes_the_reader_of_arguments_raise_and_its_state_continues_the_same(lines, data):
    at = data.draw(st.integers(0, len(lines)))
    whole, first, second = MegatronArguments(), MegatronArguments(), MegatronArguments()
    expected = [record for line in lines for record in whole.feed(line)]
    got = [record for line in lines[:at] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state())))
    got += [record for line in lines[at:] for record in second.feed(line)]
    assert got == expected
