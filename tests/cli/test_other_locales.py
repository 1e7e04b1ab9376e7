"""Where the locale is not UTF-8: data is UTF-8 all the same, and no arrow in a sentence ends a command with a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

CURVE = "step,loss\n" + "".join(f"{step},{2.5 + step % 7 / 100 + (2.5 if step > 300 else 0)}\n" for step in range(500))


def trainvitals(tmp_path, encoding, *arguments):
    places = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    environment = {**os.environ, **places, "PYTHONIOENCODING": encoding}
    environment.pop("TRAINVITALS_CONFIG", None)
    command = [sys.executable, "-m", "trainvitals", *arguments]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("encoding", ["latin-1", "gbk", "ascii"])
def test_findings_are_json_in_utf8_whatever_the_locale_says(tmp_path, encoding):
    (tmp_path / "curve.csv").write_text(CURVE)
    done = trainvitals(tmp_path, encoding, "detect", "curve.csv")
    assert (done.returncode, done.stderr) == (1, b"")
    findings = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert any("→" in finding["message"] for finding in findings)


def test_what_is_for_people_comes_to_its_end_in_a_locale_without_arrows(tmp_path):
    (tmp_path / "tv.toml").write_text('[[runs]]\nname = "r"\ndir = "run"\n')
    done = trainvitals(tmp_path, "ascii", "doctor", "--config", "tv.toml", "--run", "r", "--deadline", "60")
    assert b"Traceback" not in done.stderr and b"in order." in done.stderr
