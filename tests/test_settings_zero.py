"""What the help of a setting says of 0 is what 0 does, and a variable that is set to nothing is not set."""

import re
from dataclasses import fields

import pytest

from trainvitals.errors import SettingsError
from trainvitals.settings import load, parse
from trainvitals.settings_sections import SECTIONS, RunSettings

OFF_AT_ZERO = [
    (name, declared.name)
    for name, section in SECTIONS.items()
    for declared in fields(section)
    if re.search(r"\b0 = ", declared.metadata["help"])
]


@pytest.mark.parametrize("section, key", OFF_AT_ZERO)
def test_a_setting_whose_help_gives_zero_a_meaning_takes_zero(section, key):
    kind = type(getattr(SECTIONS[section](), key))
    for zero in {0, kind(0)}:
        taken = getattr(getattr(parse({section: {key: zero}}), section), key)
        assert taken == 0
        assert type(taken) is kind


def test_the_settings_of_a_run_take_the_zero_that_their_help_names():
    for declared in fields(RunSettings):
        if re.search(r"\b0 = ", declared.metadata["help"]):
            run = parse({"runs": [{"name": "r", "dir": "/r", declared.name: 0}]}).runs[0]
            assert getattr(run, declared.name) == 0


def test_zero_may_come_from_the_environment_and_less_than_zero_may_not():
    variable = "TRAINVITALS_WATCH_CHECKPOINT_RECHECK_DAYS"
    assert load(None, {variable: "0"}).watch.checkpoint_recheck_days == 0.0
    with pytest.raises(SettingsError, match=r"must be 0 or a number above 0, not -1\.0"):
        load(None, {variable: "-1"})
    with pytest.raises(SettingsError, match="must be 0 or a number of seconds from"):
        parse({"incidents": {"mend_s": 1e-9}})
    with pytest.raises(SettingsError, match="not False"):
        parse({"incidents": {"mend_s": False}})


def test_a_variable_for_the_settings_file_that_is_set_to_nothing_names_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load(None, {"TRAINVITALS_CONFIG": ""}).path == ""
    (tmp_path / "trainvitals.toml").write_text('[[runs]]\nname = "here"\ndir = "r"\n')
    assert [run.name for run in load(None, {"TRAINVITALS_CONFIG": ""}).runs] == ["here"]
