"""The way back as commands to copy: whatever a path is called, a shell that is given them does nothing else."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.control.rollback import rollback_commands


def test_the_path_stands_quoted_in_every_line_that_needs_it() -> None:
    commands = rollback_commands("/runs/a b", "/ckpt/it's $(x)/step 5", "alice", "loss")
    assert shlex.split(commands[0])[-3] == "/ckpt/it's $(x)/step 5" and shlex.split(commands[1])[5] == "/runs/a b"
    assert all(line.startswith(("python -m trainvitals ", "#")) for line in commands)


@given(st.text(st.characters(exclude_characters="\0")), st.text(), st.text())
def test_no_name_starts_a_line_or_an_escape_sequence_of_its_own(name: str, by: str, reason: str) -> None:
    for paths in (("/run", f"/ckpt/{name}"), (f"/{name}", "/ckpt/step-5")):
        commands = rollback_commands(*paths, by, reason)
        assert all(line.isprintable() for line in commands)
        assert all(line.startswith(("python -m trainvitals ", "#")) for line in commands)


def test_each_trainers_line_is_in_its_own_language() -> None:
    lines = rollback_commands("/run", "/ckpt/iter_0004200", "alice", "loss")
    assert lines[0].endswith("/ckpt/iter_0004200 --level load")
    assert any(line.endswith("--ckpt-step 4200") for line in lines)
    assert any(line.endswith("resume_from_checkpoint='/ckpt/iter_0004200')") for line in lines)
    assert any("STEP_OF_epoch=3-step=9.ckpt" in line for line in rollback_commands("/run", "/c/epoch=3-step=9.ckpt", "a", "b"))


def test_a_path_with_a_line_break_gives_the_reason_instead() -> None:
    (line,) = rollback_commands("/run", "/ckpt/step-5\nrm -rf /", "alice", "loss")
    assert line.startswith("# no commands") and "step-5\\nrm" in line
