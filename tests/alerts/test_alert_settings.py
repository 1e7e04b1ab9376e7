"""What the tables of alerts may say."""

from __future__ import annotations

import pytest

from trainvitals.errors import SettingsError
from trainvitals.settings import load, parse
from trainvitals.settings_alerts import quiet_minutes


def targets(**table):
    return {"alerts": {"targets": {"t": {"kind": "webhook", **table}, "other": {"kind": "slack"}}}}


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (targets(kind=""), "kind is missing"), (targets(kind="slak"), "must be one of"), (targets(urll="x"), "Did you mean 'url'"),
        (targets(url="x", url_file="y"), "keep one"), (targets(severities=["fatal"]), "severities names 'fatal'"),
        (targets(quiet_hours="22-7"), "22:00-07:00"), (targets(quiet_hours="24:00-07:00"), "22:00-07:00"),
        (targets(quiet_hours="07:00-07:00"), "22:00-07:00"), (targets(quiet_timezone="Mars"), "not a known time zone"),
        (targets(escalate_to="t"), "no other target; known: other"), (targets(escalate_to="nobody"), "no other target"),
        (targets(language="de"), "one of en, zh"), (targets(repeat_s=-1), "whole number"),
        ({"alerts": {"targets": []}}, r"\[alerts.targets.NAME\]"), ({"alerts": {"targets": {"a b": {"kind": "slack"}}}}, "no name for a target"),
        ({"alerts": {"targets": {"a-b": {"kind": "slack"}, "a_b": {"kind": "slack"}}}}, "rename one"),
        ({"alerts": {"heartbeat": 1}}, "Did you mean"), ({"alerts": 1}, r"\[alerts\] table"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_table_is_an_error_that_says_what_is_wanted(raw, sentence):
    with pytest.raises(SettingsError, match=sentence):
        parse(raw)


def test_the_defaults_page_for_what_is_critical():
    target = parse(targets()).alert_targets["t"]
    assert (target.severities, target.runs, target.repeat_s, target.send_recovered) == (("critical",), ("*",), 14_400, True)


def test_each_key_of_a_target_has_a_variable(tmp_path):
    (tmp_path / "t.toml").write_text('[alerts.targets.on-call]\nkind = "slack"\nurl_file = "x"\n')
    variables = {
        "TRAINVITALS_ALERTS_TARGETS_ON_CALL_URL": "https://x.example/", "TRAINVITALS_ALERTS_TARGETS_ON_CALL_SEVERITIES": "critical,warning",
        "TRAINVITALS_ALERTS_TARGETS_ON_CALL_REPEAT_S": "0", "TRAINVITALS_ALERTS_HEARTBEAT_S": "5",
    }  # fmt: skip
    settings = load(tmp_path / "t.toml", variables)
    target = settings.alert_targets["on-call"]
    assert (target.url, target.url_file, target.severities, target.repeat_s) == (
        "https://x.example/",
        "",
        ("critical", "warning"),
        0,
    )
    assert settings.alerts.heartbeat_s == 5.0
    with pytest.raises(SettingsError, match="ON_CALL_KIND"):
        load(tmp_path / "t.toml", {"TRAINVITALS_ALERTS_TARGETS_ON_CALL_KIND": "telegraph"})
    with pytest.raises(SettingsError, match="no other target"):
        load(tmp_path / "t.toml", {"TRAINVITALS_ALERTS_TARGETS_ON_CALL_ESCALATE_TO": "nobody"})


def test_an_address_or_a_proxy_with_a_password_is_not_in_what_the_settings_show():
    settings = parse(targets(url="https://x.example/secret-1", proxy="http://u:secret-2@p:3128"))
    assert "secret-" not in repr(settings)


def test_quiet_hours_are_minutes_after_midnight():
    assert quiet_minutes("22:00-07:30") == (1320, 450)
    assert quiet_minutes("٢٢:00-07:30") is None
