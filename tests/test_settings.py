"""The settings file: what is read, what is refused, and that the documentation is the table itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import SettingsError
from trainvitals.settings import load, parse
from trainvitals.settings_page import END, START, page_part

ROOT = Path(__file__).resolve().parent.parent
A_RUN = {"name": "r", "dir": "/runs/r"}


def test_the_documentation_shows_every_setting_as_it_is_declared():
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text[text.index(START) : text.index(END) + len(END)] == page_part()


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(SettingsError, match=r"log_fromat.*Did you mean 'log_format'"):
        parse({"runs": [{**A_RUN, "log_fromat": "auto"}]})
    with pytest.raises(SettingsError, match=r"Did you mean 'breaker'"):
        parse({"braeker": {}})


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"runs": {"name": "r"}}, r"\[\[runs\]\] tables"),
        ({"runs": [{"dir": "/x"}]}, "name is missing"),
        ({"runs": [{"name": "r"}]}, "dir is missing"),
        ({"runs": [{**A_RUN, "name": "a\nb"}]}, "control characters"),
        ({"runs": [A_RUN, A_RUN]}, "two runs are named 'r'"),
        ({"runs": [{**A_RUN, "log_timezone": "Mars/Olympus"}]}, "not a known time zone"),
        ({"runs": [{**A_RUN, "log_timezone": "../../etc/passwd"}]}, "not a known time zone"),
        ({"runs": [{**A_RUN, "breaker": "on"}]}, "one of off, dry-run, armed"),
        ({"runs": [{**A_RUN, "gpus": True}]}, "whole number"),
        ({"runs": [{**A_RUN, "gpus": -1}]}, "whole number"),
        ({"runs": [{**A_RUN, "logs": "one.log"}]}, "list of texts"),
        ({"runs": [{**A_RUN, "lr_schedule": "cosine"}]}, "lr_schedule must be a table"),
        ({"runs": [{**A_RUN, "lr_schedule": {"peek": 3e-4}}]}, "Did you mean 'peak'"),
        ({"runs": [{**A_RUN, "lr_schedule": {"peak": 3e-4}}]}, "kind is missing"),
        ({"runs": [{**A_RUN, "lr_schedule": {"kind": "stairs"}}]}, "one of"),
        ({"runs": [{**A_RUN, "lr_schedule": {"kind": "constant"}}]}, "peak must be above"),
        (
            {"runs": [{**A_RUN, "lr_schedule": {"kind": "cosine", "peak": 3e-4, "warmup_steps": 5}}]},
            "total_steps must be more than",
        ),
        (
            {"runs": [{**A_RUN, "total_steps": 9, "lr_schedule": {"kind": "wsd", "peak": 3e-4}}]},
            "decay_steps must be from 1 to 9",
        ),
        ({"watch": {"poll_s": 0}}, "above 0"),
        ({"watch": {"poll_s": float("inf")}}, "above 0"),
        ({"watch": []}, r"\[watch\] table"),
        ({"store": 3}, "store must be text"),
        ({"detect": {"loss_spkie": {}}}, "Did you mean 'loss_spike'"),
        ({"detect": {"loss_spike": {"sensitivty": 1}}}, "Did you mean 'sensitivity'"),
        ({"detect": {"loss_spike": {"sensitivity": "high"}}}, "must be a number"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_is_wanted(table, sentence):
    with pytest.raises(SettingsError, match=sentence):
        parse(table)


def test_a_learning_rate_may_end_at_nothing():
    schedule = {"kind": "linear", "peak": 3e-4, "min_lr": 0.0, "total_steps": 10}
    assert parse({"runs": [{**A_RUN, "lr_schedule": schedule}]}).runs[0].lr_schedule.min_lr == 0.0


def test_relative_paths_count_from_the_settings_file(tmp_path, monkeypatch):
    (tmp_path / "t.toml").write_text('[[runs]]\nname = "r"\ndir = "run"\nlogs = ["logs/*.out"]\n')
    monkeypatch.chdir("/")
    run = load(tmp_path / "t.toml", {}).run("r")
    assert run.dir == str(tmp_path / "run") and run.logs == (str(tmp_path / "logs" / "*.out"),)


def test_the_environment_wins_over_the_file(tmp_path):
    (tmp_path / "t.toml").write_text("[breaker]\npoints = 7\n[gpu]\nenabled = true\n")
    env = {"TRAINVITALS_BREAKER_POINTS": "9", "TRAINVITALS_GPU_ENABLED": "false", "TRAINVITALS_STORE": "sqlite:///x.db"}
    settings = load(tmp_path / "t.toml", env)
    assert settings.breaker.points == 9 and settings.gpu.enabled is False and settings.store == "sqlite:///x.db"


def test_a_wrong_environment_variable_is_named():
    with pytest.raises(SettingsError, match="TRAINVITALS_BREAKER_POINTS must be a whole number"):
        load(None, {"TRAINVITALS_BREAKER_POINTS": "many"})


def test_a_missing_file_and_bad_toml_are_sentences(tmp_path):
    with pytest.raises(SettingsError, match="Cannot read the settings file"):
        load(tmp_path / "none.toml", {})
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe[")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load(tmp_path / "bad.toml", {})


def test_an_unknown_run_is_answered_with_the_known_ones():
    with pytest.raises(SettingsError, match="known runs: r"):
        parse({"runs": [A_RUN]}).run("x")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["store", "runs", "detect", "breaker", "watch", "gpu", "dashboard"]) | st.text(max_size=6)


@given(st.dictionaries(keys, values, max_size=4))
def test_whatever_stands_in_the_file_it_is_settings_or_a_settings_error(table):
    try:
        parse(table)
    except SettingsError as error:
        assert str(error).endswith((".", "?"))
