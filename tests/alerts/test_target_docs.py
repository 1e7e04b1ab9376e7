"""docs/targets.md shows what is really sent, and names every kind of target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.target_examples import KINDS, page_part
from trainvitals.alerts.targets.registry import target_of
from trainvitals.errors import SettingsError
from trainvitals.settings import TargetSettings
from trainvitals.settings_alerts import TARGET_KINDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_kind_is_what_is_sent(kind):
    assert page_part(kind) in PAGE


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_every_kind_has_a_class_and_stands_in_the_page_with_its_pace(kind):
    target = target_of(TargetSettings(kind=kind))
    assert f'"{kind}"' in PAGE and f"| in a minute | {target.per_minute}" in PAGE


def test_a_kind_that_is_none_is_named():
    with pytest.raises(SettingsError, match="'pigeon' is no kind"):
        target_of(TargetSettings(kind="pigeon"))
