"""Secrets are known by their names and by their shapes, and what only sounds like one is kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.hook.flatten import flatten
from trainvitals.masking import MASK, is_secret_name, mask_arguments, mask_text


@pytest.mark.parametrize(
    "name",
    ["token", "hf_token", "hub.hfToken", "auth_token", "API_KEY", "wandb.apiKey", "apikey", "db.password", "passwd", "secret",
     "AWS_SECRET_ACCESS_KEY", "aws_access_key_id", "credentials.user", "credential", "private_key", "secrets.0", "access_key",
     "authorization", "api_tokens.0", "slack_webhook"],
)  # fmt: skip
def test_names_of_secrets_are_known(name):
    assert is_secret_name(name, "text")


@pytest.mark.parametrize(
    "name",
    ["tokens_per_step", "tokenizer", "pad_token", "eos_token_id", "moe_token_dispatcher_type", "num_tokens", "author", "text_key",
     "special_tokens.0", "key_value_heads", "authors", "max_tokens", "train_tokens", "keyboard"],
)  # fmt: skip
def test_names_that_only_sound_like_secrets_are_kept(name):
    assert not is_secret_name(name, "text")


def test_a_switch_under_a_weak_name_is_kept():
    assert flatten({"hub_private_repo": True, "use_auth_token": False, "token": None, "num_token": 5}).values == {
        "hub_private_repo": True, "use_auth_token": False, "token": None, "num_token": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "secret",
    ["hf_" + "a" * 34, "sk-" + "b" * 40, "AKIA" + "C" * 16, "ghp_" + "d" * 36, "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
     "xoxb-1234567890-abcdef", "glpat-" + "e" * 20],
)  # fmt: skip
def test_tokens_are_known_by_their_shape_wherever_they_stand(secret):
    assert secret not in mask_text(f"curl -H x {secret} y") and MASK in mask_text(f"a{secret and ' '}{secret}")
    assert secret not in mask_text(f"my_{secret}_") and secret not in mask_text(f"'{secret}'")
    assert secret not in json.dumps(flatten({"note": [f"see {secret}"], f"key {secret}": 1}).values)


def test_words_that_only_hold_such_letters_are_kept():
    text = "task-parallel-mode-with-long-name disk-cache-of-the-first-node risk-adjusted-sampling-policy"
    assert mask_text(text) == text


def test_users_and_passwords_of_addresses_are_masked():
    assert mask_text("https://me:pass@host:1/x?a=1") == "https://***@host:1/x?a=1"
    assert mask_text("s3://bucket/x?X-Amz-Signature=abcdef&b=1") == "s3://bucket/x?X-Amz-Signature=***&b=1"
    assert mask_text("host=a password=hunter2 user=b") == "host=a password=*** user=b"
    assert mask_text("Authorization: Bearer abcdefghijk") == "Authorization: Bearer ***"


def test_a_command_line_hides_what_follows_a_secret_option():
    line = ["train.py", "--lr", "1", "--hub-token", "plain", "--wandb_key=plain", "model.api_key=plain", "--password", "--flag",
            "run --hf_token plain2 now"]  # fmt: skip
    assert mask_arguments(line) == [
        "train.py", "--lr", "1", "--hub-token", "***", "--wandb_key=***", "model.api_key=***", "--password", "--flag",
        "run --hf_token *** now",
    ]  # fmt: skip


SECRETS = ["hf_" + "Qz" * 17, "sk-proj-" + "Qz" * 20, "AKIA" + "QZ" * 8, "ghp_" + "Qz" * 18, "glpat-" + "Qz" * 10]


@given(
    st.sampled_from(SECRETS), st.text("ab .,;:/'\"=-_{}[]()", max_size=80), st.integers(0, 70_000), st.integers(0, 3),
    st.sampled_from(["note", "url", "args", "x.y", "nested"]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_a_token_in_any_text_of_any_length_is_never_written(secret, around, before, depth, name):
    value: object = "x" * before + " " + around + " " + secret + " " + around
    for level in range(depth):
        value = {f"{name}{level}": value} if level % 2 else [value, 1, {"a": None}]
    written = json.dumps(flatten({name: value}, budget_s=60).values)
    assert "QzQzQz" not in written and "QZQZQZ" not in written


@given(
    st.sampled_from(["password", "api_key", "hub_token", "client_secret", "aws_secret_access_key"]),
    st.text(min_size=1),
    st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_what_stands_under_the_name_of_a_secret_is_never_written(name, secret, depth):
    value: object = {name: "Qz" + secret}
    for level in range(depth):
        value = {f"level{level}": value} if level % 2 else [value]
    assert "Qz" not in json.dumps(flatten({"top": value}, budget_s=60).values)
