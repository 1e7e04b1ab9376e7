"""Of several runs the one that somebody must act upon is looked at first, and each says how it is where one is chosen."""

from __future__ import annotations

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.settings import RunSettings
from trainvitals.web.present import most_urgent, run_label
from trainvitals.web.view import ControlView, RunView, Snapshot

NOW = 1_795_000_000 * 10**9
TONES = {
    "well": (VerdictWord.HEALTHY, "ok"), "nothing known": (VerdictWord.UNKNOWN, "warning"), "held": (VerdictWord.PAUSED, "paused"),
    "sick": (VerdictWord.SICK, "critical"), "dead": (VerdictWord.STOPPED, "critical"),
}  # fmt: skip
CONTROL = ControlView(state="not_wired", desired="running", sentence="", can_act=False)


def seen(*names: str) -> Snapshot:
    runs = [
        RunView(RunSettings(name=name, dir="/r"), NOW, Verdict(TONES[name][0], TONES[name][1], "", None), CONTROL)
        for name in names
    ]
    return Snapshot(NOW, tuple(runs))


def test_the_gravest_is_first_and_of_equals_the_first_of_the_settings() -> None:
    names = ["well", "nothing known", "held", "dead", "sick"]
    assert most_urgent(seen(*names), names, NOW) == "dead"
    assert most_urgent(seen(*names), names[:3], NOW) == "held"
    assert most_urgent(seen(*names), names[:2], NOW) == "nothing known"


def test_before_the_first_look_it_is_the_first_of_the_settings() -> None:
    assert most_urgent(Snapshot(NOW), ["a", "b"], NOW) == "a"
    assert run_label(Snapshot(NOW), "a", NOW) == "a"


def test_a_label_names_the_run_and_how_it_is() -> None:
    assert [run_label(seen(name), name, NOW) for name in ("well", "sick", "held")] == [
        f"well · {VerdictWord.HEALTHY.value}", "▲ sick · TRAINING-SICK", "⏸ held · PAUSED",
    ]  # fmt: skip
