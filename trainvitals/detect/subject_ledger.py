"""A book of findings that holds several open ones of a rule: one for each thing (a checkpoint, a directory) that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainvitals.detect.findings import Ledger
from trainvitals.records import Finding, Severity


class SubjectLedger(Ledger):
    """``open`` is keyed by the finding's id, ``run/attempt/rule/subject``; whoever uses it bounds the number of subjects."""

    @property
    def _stored(self) -> list[dict[str, Any]]:
        return Ledger._stored.fget(self)  # type: ignore[attr-defined, no-any-return]

    @_stored.setter
    def _stored(self, stored: list[dict[str, Any]]) -> None:
        self.open = {item["id"]: Finding(**{**item, "severity": Severity(item["severity"])}) for item in stored}

    def of(self, rule: str, subject: str) -> Finding | None:
        """The open finding about this subject."""
        return next((f for f in self.open.values() if f.rule == rule and f.data.get("subject") == subject), None)

    def of_rule(self, rule: str) -> list[Finding]:
        """All open findings of a rule, oldest first."""
        return [finding for finding in self.open.values() if finding.rule == rule]

    def tell(
        self, rule: str, subject: str, severity: Severity, message: str, *, first_step: int | None = None,
        value: float | None = None, expected: float | None = None, data: Mapping[str, Any] | None = None,
        time_ns: int | None = None, detected_step: int | None = None,
    ) -> Finding | None:  # fmt: skip
        """Open a finding about the subject, or raise the severity of the open one and say why; else nothing."""
        context = self._context
        before = self.of(rule, subject)
        if before is not None:
            if severity.rank <= before.severity.rank:
                return None
            was_info = before.severity is Severity.INFO
            after = replace(
                before, severity=severity, message=message, detected_step=context.step if was_info else before.detected_step,
                value=before.value if value is None else value, data={**before.data, **(data or {})},
            )  # fmt: skip
        elif context.is_silenced(rule):
            return None
        else:
            step = context.step if first_step is None else first_step
            after = Finding(
                id=f"{context.run}/{context.attempt}/{rule}/{subject}", rule=rule, family=self._family, severity=severity,
                first_step=step, detected_step=max(step, context.step) if detected_step is None else detected_step, last_step=None, attempt=context.attempt,
                time_ns=context.time_ns if time_ns is None else time_ns, value=value, expected=expected, message=message, is_open=True,
                data={"subject": subject, **(data or {})},
            )  # fmt: skip
        self.open[after.id] = after
        self._changed.append(after)
        return after

    def settle(self, finding: Finding, ending: str, message: str = "") -> None:
        """Close it; ``ending`` is added to its message, or to ``message``, which says of the past what is over."""
        before = self.open.pop(finding.id, None)
        if before is not None:
            last_step = max(self._context.step, before.first_step)
            self._changed.append(
                replace(before, is_open=False, last_step=last_step, message=(message or before.message) + ending)
            )
