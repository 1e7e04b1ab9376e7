"""The command line as a whole."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.__main__ import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_file_and_its_help(name, capsys):
    module = importlib.import_module(f"trainvitals.cli.{COMMANDS[name][0]}")
    assert callable(module.add_arguments) and callable(module.run)
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out


def test_the_general_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_wrong_usage_is_exit_code_2_and_a_word_that_is_no_command_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pasre"])
    assert ended.value.code == 2
    assert "pasre" in capsys.readouterr().err


def test_an_error_raised_on_purpose_is_a_sentence_without_a_traceback(capsys):
    assert main(["parse", "/nonexistent/file.log"]) == 2
    text = capsys.readouterr().err
    assert "/nonexistent/file.log" in text and "Traceback" not in text


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("".join(f"iter {n}: loss 3.0000, time 500.00ms, mfu 30.00%\n" for n in range(20_000)))
    command = f"{sys.executable} -m trainvitals parse {log} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_every_command_that_the_documentation_shows_exists():
    shown = set()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        shown |= set(re.findall(r"-m trainvitals ([a-z]+)", page.read_text(encoding="utf-8")))
    assert shown, "the documentation shows commands"
    assert shown <= set(COMMANDS)


def test_every_file_that_the_documentation_links_exists():
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"
