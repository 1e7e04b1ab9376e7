"""Names that secrets stand under, and names that only sound like them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.hook.flatten import flatten
from trainvitals.logs.grammars.config_dump import config_events
from trainvitals.masking import is_secret_name, mask_arguments

SECRET = "Vq4KRtxZ8w2mN6pYbD1c"


def from_hook(content):
    return json.dumps(flatten(content).values)


def from_log(content):
    return json.dumps([dict(event.data["values"]) for event in config_events(content, "arguments")])


@pytest.mark.parametrize(
    "name",
    ["pass", "db_pass", "smtp.pass", "user_pw", "creds", "gcp_cred", "pass-word", "pass_word", "PGPASSWORD", "mypassword", "DBPWD",
     "OPENAIAPIKEY", "wandbtoken", "HFTOKEN", "encryptionkey", "hub_end_token", "next_token", "token_type_x", "tokens.prod", "wandb.key",
     "api.key", "keys.openai", "openai", "key", "x_key", "AccountKey", "rsa_key", "otp", "conn_str", "passphrase", "contraseña",
     "ｐａｓｓｗｏｒｄ", "pass\u200bword", "credentials.value", "s3_secretKey"],
)  # fmt: skip
def test_a_secret_under_any_spelling_of_its_name_is_written_by_neither_reader(name):
    nested = SECRET
    for part in reversed(name.split(".")):
        nested = {part: nested}
    assert SECRET not in from_hook(nested) and SECRET not in from_log(nested)


@pytest.mark.parametrize(
    ("name", "value"),
    [("forward_pass", "fused"), ("low_pass", "butterworth"), ("eostoken", "</s>"), ("tokens", "20B"), ("max_tokens", 4096),
     ("tokens_per_step", "4M"), ("shared_key_value_states", "first"), ("text_key", "content"), ("key", "input_ids"), ("compass", "north"),
     ("hub", "s3"), ("wandb.name", "llama-70b"), ("monkey", "x"), ("passes", "3"), ("num_tokens", "8,192"), ("tokenizer", "Llama3"),
     ("qk_layernorm", "True"), ("key_value_heads", "8"), ("cache_key", "4f2a9c"), ("code", "abc"), ("author", "me")],
)  # fmt: skip
def test_what_only_sounds_like_a_secret_stays(name, value):
    assert not is_secret_name(name, value)
    assert str(value) in from_hook({name: value}) and str(value) in from_log({name: value})


def test_a_secret_at_the_end_of_a_long_path_is_masked():
    content = {"a" * 290: {"b" * 20: {"password": SECRET}}}
    deep = {"password": SECRET}
    for number in range(8):
        deep = {f"{number}" + "z" * 90: deep}
    for one in (content, deep):
        assert SECRET not in from_hook(one) and SECRET not in from_log(one)
    assert is_secret_name("x" * 10_000 + ".password") and is_secret_name("password." + "x" * 10_000)


@pytest.mark.parametrize(
    "content",
    [
        {"args": ["--hub-token", SECRET]},
        {"args": ["train.py", "--hub-token", SECRET, "--lr", "1"] * 8},
        {"args": ["--port", 8080, "--hub-token", SECRET]},
        {"args": [f"--hub_token={SECRET}", f"wandb.key={SECRET}"]},
        {"env": [{"name": "HF_TOKEN", "value": SECRET}]},
        {"env": [{"value": SECRET, "name": "HF_TOKEN"}, {"name": "LR", "value": "1"}]},
        {"env": [("HF_TOKEN", SECRET), ("LR", "1")]},
        {"env": [["HF_TOKEN", {"from": SECRET}]]},
        {"headers": [["X-Auth-Token", SECRET]]},
        {"header": {"key": "Authorization", "value": SECRET}},
        {"key": ["-----BEGIN RSA PRIVATE KEY-----", SECRET, SECRET, "-----END RSA PRIVATE KEY-----"]},
        {"tokens": [SECRET, SECRET]},
    ],
)
def test_options_pairs_and_keys_in_lists_are_masked_by_both_readers(content):
    assert SECRET not in from_hook(content) and SECRET not in from_log(content)


def test_what_stands_beside_a_secret_in_a_list_is_still_told():
    assert flatten({"args": ["--lr", "1e-4", "--hub-token", "x", "--bf16"]}).values == {
        "args": "[--lr, 1e-4, --hub-token, ***, --bf16]"
    }
    values = flatten({"env": [{"name": "LR", "value": "1"}, {"name": "HF_TOKEN", "value": "x"}]}).values
    assert values == {"env.0.name": "LR", "env.0.value": "1", "env.1.name": "HF_TOKEN", "env.1.value": "***"}
    assert flatten({"betas": [0.9, 0.95], "names": ["key", "value"]}).values == {"betas": "[0.9, 0.95]", "names": "[key, value]"}
    assert flatten({"a": ["pass", "fail"], "b": ["private", "public"], "c": ["tokens_0001", "tokens_0002"]}).values == {
        "a": "[pass, fail]", "b": "[private, public]", "c": "[tokens_0001, tokens_0002]",
    }  # fmt: skip


def test_a_number_under_a_sure_name_is_masked_and_one_under_a_weak_name_is_not():
    assert is_secret_name("secret_number", 12345678) and is_secret_name("password", 1234)
    assert not is_secret_name("token", 5) and not is_secret_name("private", 1) and not is_secret_name("pass", 3)
    assert not is_secret_name("password", None) and not is_secret_name("password", True)


def test_a_command_line_masks_a_value_that_begins_with_a_dash_and_keeps_an_option():
    assert mask_arguments(["--hub-token", "-Xyz9", "--password", "--lr", "1"]) == [
        "--hub-token",
        "***",
        "--password",
        "--lr",
        "1",
    ]
    assert SECRET not in json.dumps(mask_arguments(["--hub-token", "--" + SECRET]))
    assert mask_arguments(["--key", SECRET]) == ["--key", "***"] and mask_arguments(["--key", "text"]) == ["--key", "text"]


@given(st.text(max_size=300), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=100))
def test_no_name_and_no_value_makes_the_rule_raise(name, value):
    assert is_secret_name(name, value) in (True, False)


@given(st.lists(st.text(max_size=40), max_size=8))
def test_a_command_line_keeps_its_length(arguments):
    assert len(mask_arguments(arguments)) == len(arguments)


@pytest.mark.parametrize("value", ["abc", "Abc1", 7])
@pytest.mark.parametrize("name", ["token", "password", "HF_TOKEN", "lr"])
def test_name_and_value_are_masked_alike_by_both_readers(name, value):
    content = {"env": {"name": name, "value": value}}
    (told,) = [dict(event.data["values"]) for event in config_events(content, "arguments")]
    assert told == flatten(content).values and (told["env.value"] == "***") == is_secret_name(name, value)
