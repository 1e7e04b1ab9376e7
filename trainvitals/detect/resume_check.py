"""What the hook found when it compared a start with the manifest of the checkpoint that it goes on from.

The attempt before tells its settings too, and ``config_change`` compares them key by key; the manifest holds hashes only. So this
speaks where nothing was compared: the attempt before told nothing, or the checkpoint is another run's.
"""

from __future__ import annotations

from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.checkpoint_book import printable
from trainvitals.detect.config_change import RULE, ConfigChangeDetector
from trainvitals.detect.findings import Context, format_step
from trainvitals.records import Event, Severity, Step

#: Points until the settings of this start have been told, which a thread looks up.
WAIT_POINTS = 20
PARTS = ("config", "script")


class ResumeCheckDetector(FamilyDetector):
    """``resume_config_changed`` from a ``message`` event with ``resume_check`` (see docs/hook.md)."""

    family = "config"
    rules = (RULE,)
    STATE = ("ledger", "_check")

    def __init__(self, context: Context, tuned: Tuned, config: ConfigChangeDetector) -> None:
        super().__init__(context, tuned)
        self._config = config
        self._check: dict[str, Any] = {}  # what differs, and the points that were seen since

    def on_step(self, step: Step) -> None:
        if self._check:
            self._check["points"] += 1
            if self._check["points"] >= WAIT_POINTS:
                self._judge()

    def finish(self) -> list[Any]:
        self._judge()
        return super().finish()

    def on_event(self, event: Event) -> None:
        if event.kind == "attempt_start":
            self._check = {}
        check = event.data.get("resume_check") if event.kind == "message" else None
        if isinstance(check, dict):
            other = [name for name in PARTS if check.get(f"{name}_is_equal") is False]
            path = printable(str(check.get("path") or ""), 300)
            self._check = {"other": other, "path": path, "points": 0} if other else {}

    def _judge(self) -> None:
        check, self._check = self._check, {}
        if not check or self._config.has_told:
            return
        other = [name for name in check["other"] if not self._config.has_compared(name)]
        if not other:
            return  # compared key by key, and what differs there is a matter of course (times, paths)
        name = check["path"].rstrip("/").rsplit("/", 1)[-1] or "the checkpoint"
        # The first start of a run that goes on from somebody's checkpoint is a new stage, and meant.
        severity = Severity.WARNING if self.context.attempt > 1 else Severity.INFO
        self.ledger.mark(
            RULE, severity,
            f"{' and '.join(other)} not as when {name} was saved (attempt {self.context.attempt} goes on from it, now at step "
            f"{format_step(self.context.step)})",
            value=float(len(other)), data={"checkpoint": check["path"], "changed": len(other), "parts": other},
        )  # fmt: skip
