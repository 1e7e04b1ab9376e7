"""A configuration out of a log: without secrets, in bounded parts, and what did not fit is counted."""

from __future__ import annotations

import json

import pytest

from trainvitals.logs.grammars.config_dump import MAX_BYTES, MAX_PART_BYTES, config_events


def told(values):
    found = {}
    for event in config_events(values, "arguments"):
        found |= event.data["values"]
    return found


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        ({"hubToken": "abcdefgh"}, "hubToken", "***"),
        ({"tracker": {"WANDB_API_KEY": "0" * 40}}, "tracker.WANDB_API_KEY", "***"),
        ({"webhook_url": "https://example.org/x"}, "webhook_url", "***"),
        ({"remote": "https://me:pass@example.org/data"}, "remote", "https://***@example.org/data"),
        ({"notes": "key is nvapi-abcdefghijklmnopqrstuvwx"}, "notes", "key is ***"),
        ({"command": ["train.py", "--hub_token", "abcdefgh"]}, "command", "train.py, --hub_token, ***"),
        ({"eos_token": "</s>", "pad_token_id": 0}, "eos_token", "</s>"),
        ({"num_tokens": 4096}, "num_tokens", 4096),
        ({"api_key": ""}, "api_key", ""),
        ({"max_loss": float("inf")}, "max_loss", "inf"),
    ],
)
def test_a_secret_is_masked_by_the_same_rules_as_in_the_hook(values, name, value):
    assert told(values)[name] == value


def test_what_is_beyond_256_kib_is_counted_with_what_the_reader_left_out():
    values = {f"key_{number}": "v" * 1000 for number in range(400)}
    events = config_events({**values, "config_keys_left_out": 5}, "arguments")
    sizes = [len(json.dumps(event.data["values"])) for event in events]
    assert sum(sizes) < MAX_BYTES + 1000 and max(sizes) <= MAX_PART_BYTES
    assert [event.data["part"] for event in events] == list(range(len(events))) and len(events) == events[0].data["parts"]
    kept = [name for event in events for name in event.data["values"] if name.startswith("key_")]
    (left_out,) = [
        event.data["values"]["config_keys_left_out"] for event in events if "config_keys_left_out" in event.data["values"]
    ]
    assert left_out == 400 - len(kept) + 5 and len(kept) > 200
