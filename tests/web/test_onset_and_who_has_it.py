"""Where an incident began, of its own time; and who has it, where everybody looks first."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.incidents.static_page import IncidentPage, to_html
from trainvitals.incidents.symptoms import onset_step
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.settings import RunSettings
from trainvitals.web.assemble import checks_of
from trainvitals.web.incident import began_at
from trainvitals.web.present import band
from trainvitals.web.view import ControlView, RunView, Snapshot
from trainvitals.web.wall_view import band_view

S = 10**9
NOW = 1_764_000_000 * S


def finding(rule: str, severity: Severity, first: int, detected: int) -> Finding:
    return Finding(rule, rule, "loss", severity, first, detected, None, 1, NOW + detected * S, 3.5, 2.0, rule, True)


SPIKE = finding("loss_spike", Severity.CRITICAL, 2_289, 2_289)
PLATEAU = finding("loss_plateau", Severity.WARNING, 1_856, 2_700)
INCIDENT = Incident(
    "i", "r", "loss", Severity.CRITICAL, ("loss_spike", "loss_plateau"), (SPIKE.id, PLATEAU.id), 1_856, None, NOW + 2_289 * S,
    NOW + 2_700 * S, None, "loss 2.00 → 3.50", "",
)  # fmt: skip
RUN = RunView(
    RunSettings("r"), NOW + 2_800 * S, Verdict(VerdictWord.SICK, "critical", "loss 2.00 → 3.50", INCIDENT.opened_at_ns, incident_id="i"),
    ControlView("running", "Running.", can_act=True), last_step=2_800, watch_seen_ns=NOW + 2_800 * S, incidents=(INCIDENT,), findings=(PLATEAU, SPIKE),
)  # fmt: skip


def test_a_rule_that_looks_far_back_and_joins_later_does_not_move_the_onset_away_from_its_time() -> None:
    assert onset_step(INCIDENT, (PLATEAU, SPIKE)) == 2_289 == began_at(RUN, INCIDENT)
    assert onset_step(INCIDENT, ()) == 1_856, "of a finding that is not known any more the incident knows the stretch"
    page = to_html(IncidentPage(INCIDENT, NOW + 2_800 * S, findings=(PLATEAU, SPIKE)))
    assert "at step 2,289" in page and "at step 1,856" not in page


def test_data_that_changed_just_before_the_spike_stays_evidence_when_a_plateau_has_joined() -> None:
    old = Event("data", NOW, step=100, data={"source": "books"}, attempt=1)
    new = Event("data", NOW + 2_280 * S, step=2_280, data={"source": "web"}, attempt=1)
    (data, *_) = checks_of((PLATEAU, SPIKE), (old, new), (), INCIDENT, INCIDENT.opened_at_ns, None, ())
    assert (data.layer, data.mark) == ("data", "!") and "9 steps before the onset" in data.evidence


def facts(run: RunView) -> list[str]:
    return band(Snapshot(run.taken_at_ns, (run,)), run, run.taken_at_ns, 2.0)["facts"]


def test_whoever_is_woken_second_reads_first_that_somebody_has_it() -> None:
    assert not any("has it" in fact for fact in facts(RUN))
    taken = replace(INCIDENT, acknowledged_by="alice", acknowledged_at_ns=NOW + 2_300 * S)
    assert any(fact.startswith("alice has it since ") for fact in facts(replace(RUN, incidents=(taken,))))
    assert not any("has it" in fact for fact in facts(replace(RUN, incidents=(replace(taken, closed_at_ns=NOW + 2_700 * S),))))


def test_the_wall_says_that_somebody_has_it_and_not_who() -> None:
    taken = replace(RUN, incidents=(replace(INCIDENT, acknowledged_by="alice", acknowledged_at_ns=NOW + 2_300 * S),))
    for language, said in (("en", "somebody has it since"), ("zh", "已有人接手")):
        told = band_view(Snapshot(taken.taken_at_ns, (taken,)), taken, taken.taken_at_ns, 2.0, language)["facts"]
        assert any(said in fact for fact in told) and not any("alice" in fact for fact in told)
