"""Where there are no checks the page says why: what nobody looks at is not well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Incident, Severity
from trainvitals.settings import RunSettings
from trainvitals.web.present import elsewhere, nothing_to_check
from trainvitals.web.view import ControlView, RunView, Snapshot

NOW = 1_795_000_000 * 10**9


def run(word: VerdictWord, last_step: int | None = 100, *, incidents: tuple[Incident, ...] = ()) -> RunView:
    settings = RunSettings("r", Path("/r"))
    made = RunView(settings, NOW, Verdict(word, "ok", "", NOW), ControlView("running", "", True))
    return replace(made, last_step=last_step, incidents=incidents)


def named(name: str, word: VerdictWord, tone: str) -> RunView:
    return RunView(RunSettings(name, Path("/r")), NOW, Verdict(word, tone, "loss 2 → 3", NOW), ControlView("running", "", True))


def test_another_run_that_must_be_acted_upon_is_named_and_one_that_nobody_may_see_is_not() -> None:
    runs = (
        named("a", VerdictWord.HEALTHY, "ok"), named("b", VerdictWord.SICK, "critical"), named("c", VerdictWord.SLOW, "warning"),
        named("secret", VerdictWord.HUNG, "critical"),
    )  # fmt: skip
    shown = Snapshot(NOW, runs)
    assert elsewhere(shown, ["a", "b", "c"], "a", NOW) == (("b", "b: TRAINING-SICK loss 2 → 3"),)
    assert elsewhere(shown, ["a", "b", "c"], "b", NOW) == ()


def said(view: RunView, error: str = "") -> str:
    return nothing_to_check(Snapshot(NOW, (view,), error=error, error_since_ns=NOW), view, NOW)


def test_a_healthy_run_has_nothing_to_check() -> None:
    assert said(run(VerdictWord.HEALTHY)) == "Nothing is open, so there is nothing to check."


def test_a_store_that_cannot_be_read_hides_what_is_open() -> None:
    assert said(run(VerdictWord.HEALTHY), "the disk is full") == "What is open now is not known: the store cannot be read."


def test_a_silent_watchdog_hides_what_is_open_and_a_run_without_a_step_has_nothing_yet() -> None:
    assert said(run(VerdictWord.UNKNOWN)) == "What is open now is not known: nobody looks."
    assert said(run(VerdictWord.UNKNOWN, None)) == "The checks begin with the first step."


def test_an_open_incident_without_checks_is_not_called_nothing() -> None:
    incident = Incident("i", "r", "node", Severity.WARNING, ("node_silent",), ("f",), 1, None, NOW, NOW, None, "t", "m")
    assert "the incident says what it is" in said(run(VerdictWord.HEALTHY, incidents=(incident,)))
