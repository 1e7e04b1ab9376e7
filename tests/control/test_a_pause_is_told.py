"""Whoever starts a trainer again under a pause reads in its log why it stands still."""

from __future__ import annotations


def test_a_pause_is_told_on_stderr_once(rig, capsys):
    rig.ask("pause")
    rig.start()
    rig.hold(6)
    rig.until(lambda status: status.state == "paused")
    rig.ask("resume")
    assert rig.released() == "continue"
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trainvitals:")]
    assert len(told) == 1 and "held after step 6: paused by " in told[0] and "`control resume`" in told[0]
