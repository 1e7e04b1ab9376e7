"""An incident engine, its clock and findings, for tests of what is told."""

from __future__ import annotations

from trainvitals.detect.rules import RULES
from trainvitals.incidents.engine import IncidentEngine
from trainvitals.incidents.mending import Patience
from trainvitals.incidents.silences import checked_silence
from trainvitals.records import Finding, Severity

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
START_NS = 1_700_000_000 * SECOND_NS
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def a_finding(rule="loss_spike", severity=WARNING, *, step=100, is_open=True, attempt=1, at_ns=START_NS):
    return Finding(
        id=f"r/{attempt}/{rule}/{step}", rule=rule, family=RULES[rule].family, severity=severity, first_step=step, detected_step=step,
        last_step=None if is_open else step + 5, attempt=attempt, time_ns=at_ns, value=3.0, expected=2.0, message=f"{rule} at {step}",
        is_open=is_open,
    )  # fmt: skip


class Night:
    """An engine and a clock."""

    def __init__(self, is_supervised=False, **patience):
        self.engine, self.now_ns, self.is_supervised = IncidentEngine("r", Patience(**patience)), START_NS, is_supervised
        self.engine.advance(self.now_ns)

    def find(self, *args, **kwargs):
        return self.engine.add(a_finding(*args, at_ns=self.now_ns, **kwargs), self.now_ns)

    def told(self, after_s=0.0):
        self.now_ns += round(after_s * SECOND_NS)
        self.engine.advance(self.now_ns)
        return self.engine.take_changes(is_supervised=self.is_supervised)

    def words(self, after_s=0.0):
        return [(change.kind.value, change.incident.severity.value, change.number) for change in self.told(after_s)]


def a_silence(night, seconds=3600, **data):
    wanted = {"seconds": seconds, "comment": "planned", **data}
    return checked_silence(wanted, identifier="12345678-silence", by="ana", begin_ns=night.now_ns)
