"""A healthy run on this machine."""

import pytest

from trainvitals.control import init


@pytest.fixture
def place(tmp_path):
    """Settings of one healthy run on this machine."""
    for name in ("run", "checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.log").write_text("x\n")
    init(tmp_path / "run", "r")
    return tmp_path
