"""What a pause from a page does to the checkpoints, and what the verdict says of the safe one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.control import files, init, read_request
from trainvitals.control.records import ControlStatus
from trainvitals.incidents.rollback import Rollback
from trainvitals.incidents.verdict import VerdictInputs, verdict
from trainvitals.records import CheckpointReport, CheckpointState, Incident, Severity, VerificationLevel
from trainvitals.settings import parse
from trainvitals.web.actions import ask
from trainvitals.web.checkpoint_advice import pause_of
from trainvitals.web.facts import Facts

NOW = 1_795_000_000 * 10**9
SICK = Incident("i", "r", "loss", Severity.CRITICAL, ("loss_divergence",), (), 310, None, NOW, NOW, None, "loss up", "loss up")
SETTINGS = {"runs": [{"name": "r", "dir": "/nowhere"}]}


def saved(step: int, state: CheckpointState = CheckpointState.VERIFIED) -> CheckpointReport:
    return CheckpointReport(
        f"/c/checkpoint-{step}", step, "hf", state, VerificationLevel.CONTENT, True, 1, 1, modified_at_ns=step * 10**9
    )


KEEPS_ONE = (saved(100, CheckpointState.DELETED), saved(200, CheckpointState.DELETED), saved(300))


@pytest.mark.parametrize(
    ("incidents", "is_pinned", "mode", "save"),
    [((), False, "auto", None), ((SICK,), False, "auto", False), ((SICK,), True, "auto", None), ((SICK,), False, "always", True),
     ((), False, "never", False)],
)  # fmt: skip
def test_the_page_decides_as_the_breaker_does(incidents, is_pinned, mode, save) -> None:
    run = replace(parse(SETTINGS).runs[0], save_on_pause=mode)
    found = Rollback(saved(300), "", is_pinned=is_pinned)
    assert pause_of(run, Facts(incidents=incidents, checkpoints=KEEPS_ONE), found).save is save


@pytest.mark.parametrize(("understands", "is_told"), [(("save",), False), ((), True)])
def test_a_pause_that_must_not_save_is_asked_for_and_an_older_hook_is_named(tmp_path: Path, understands, is_told) -> None:
    settings = parse({"runs": [{"name": "r", "dir": str(tmp_path)}]})
    init(tmp_path, "r")
    status = ControlStatus(run="r", heartbeat_ns=NOW, understands=understands)
    (files.control_dir(tmp_path) / files.STATUS_FILE).write_text(status.to_json())
    outcome = ask(settings, "r", "pause", "alice", "loss spike", 0, save=False)
    assert outcome.is_done and read_request(tmp_path).save is False
    assert ("saves all the same" in outcome.sentence) is is_told


def test_the_verdict_says_that_the_safe_one_is_pinned() -> None:
    inputs = VerdictInputs(
        NOW, incidents=[SICK], last_step=310, last_step_time_ns=NOW, watch_seen_ns=NOW, recommended_step=300, recommended_level="content",
        recommended_is_pinned=True,
    )  # fmt: skip
    assert "Going back to step 300 (content verified, pinned) redoes 10 steps" in verdict(inputs).decision
