"""What a log says of secrets goes no further than the log: faults, findings' texts, messages, post-mortems, states."""

from __future__ import annotations

import json

import pytest

from trainvitals.incidents.postmortem import FileFaults, choose
from trainvitals.logs.parser import Parser
from trainvitals.logs.tails import Tail, TailScanner

SECRET = "Vq4KRtxZ8w2mN6pYbD1c"


def traceback_with(last: str) -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n{last}\n'


FAULTS = [
    traceback_with(
        f"requests.exceptions.HTTPError: 401 Client Error for url: https://user:{SECRET}@host.example/api?token={SECRET}"
    ),
    traceback_with("ValueError: invalid token hf_" + SECRET * 2),
    traceback_with(f"RuntimeError: could not login with api_key={SECRET}"),
    traceback_with(f"subprocess.CalledProcessError: Command 'git clone https://oauth2:{SECRET}@host.example/x' returned 128"),
    traceback_with("ValueError: " + "x" * 478 + f" hf_{SECRET}{SECRET}"),
    f"usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --hub-token {SECRET}\n",
    f"[rank3]: torch.OutOfMemoryError: CUDA out of memory. (password={SECRET})\n",
    "Root Cause (first observed failure):\n[0]:\n  time : 2026-01-02_03:04:05\n  host : node1\n  rank : 3 (local_rank: 3)\n"
    f"  exitcode : 1 (pid: 7)\n  error_file: s3://me:{SECRET}@bucket/x\n  traceback : token={SECRET}\n",
]


@pytest.mark.parametrize("text", FAULTS)
def test_no_fault_tells_a_secret_and_neither_does_the_state_of_one_that_is_held(text):
    parser = Parser()
    records = parser.feed((text + "\n").encode())
    assert SECRET not in json.dumps(parser.to_state()["faults"])
    records += parser.finish()
    faults = [record for record in records if getattr(record, "kind", "") == "fault"]
    assert faults and not any(SECRET[:12] in fault.text + json.dumps(dict(fault.data)) for fault in faults)


@pytest.mark.parametrize("text", FAULTS)
def test_no_post_mortem_tells_a_secret(text):
    events = TailScanner().scan(Tail(text.encode(), 10**18, len(text)))
    told = choose(1, [FileFaults("/logs/rank3.err", 10**18, tuple(events))])
    assert events and SECRET[:12] not in told.message + json.dumps(told.to_data())


def test_a_message_of_the_hook_and_what_it_tells_of_data_are_masked_on_their_way_to_the_store():
    header = {"type": "header", "schema": 1, "run": "r", "pid": 1, "host": "h", "started_ns": 10**18, "rank": 0, "world_size": 1}
    event = {
        "type": "event", "kind": "message", "time_ns": 10**18, "step": 1, "text": f"logged in with token={SECRET}",
        "data": {"url": f"https://me:{SECRET}@h/x", "validation_loss": 2.5, "names": ["HF_TOKEN", SECRET], "ranks": [1, 2]},
    }  # fmt: skip
    parser = Parser()
    records = parser.feed("".join(json.dumps(one) + "\n" for one in (header, event)).encode()) + parser.finish()
    (found,) = [record for record in records if getattr(record, "kind", "") == "message"]
    assert SECRET not in found.text + json.dumps(dict(found.data))
    assert found.data["validation_loss"] == 2.5 and found.data["ranks"] == [1, 2] and found.data["url"] == "https://***@h/x"


def test_arguments_of_a_log_are_masked_by_the_rule_of_the_hook_and_the_vocabulary_is_not():
    values = {
        "hubToken": SECRET, "s3_secretKey": SECRET, "passphrase": "abc", "secret_number": 12345678, "wandb_key": "0a" * 20, "eos_token": "</s>",
        "note": f"use --hub-token {SECRET} or HF_TOKEN={SECRET}", "remote": f"https://{SECRET}@host.example", "num_tokens": 4096, "lr": 0.1,
    }  # fmt: skip
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (40 - len(name))} {value}" for name, value in values.items()]
    lines += ["-------------------- end of arguments ---------------------", ""]
    records = Parser().feed("\n".join(lines).encode())
    told = {}
    for record in records:
        if getattr(record, "kind", "") == "metadata" and "values" in record.data:
            told |= record.data["values"]
    assert told["eos_token"] == "</s>" and told["num_tokens"] == 4096 and told["lr"] == 0.1
    assert told["passphrase"] == told["secret_number"] == told["wandb_key"] == "***" and SECRET not in json.dumps(told)
    assert told["note"] == "use --hub-token *** or HF_TOKEN=***"


def test_an_event_that_is_read_in_any_chunks_is_masked_alike():
    text = "".join(FAULTS).encode()
    whole = Parser()
    expected = whole.feed(text) + whole.finish()
    parser = Parser()
    found = [record for at in range(0, len(text), 37) for record in parser.feed(text[at : at + 37])] + parser.finish()
    assert found == expected
