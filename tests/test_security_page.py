"""SECURITY.md: what it names exists; and two of its rows that are about files of the repository."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE)))
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", PAGE, re.MULTILINE)


@cache
def names_in(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^\s*(?:async )?def (test_\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("named", NAMED)
def test_each_test_that_the_table_of_threats_names_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert (ROOT / path).is_file() and name in names_in(path), named


def test_each_threat_has_a_test() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 24))
    assert all("::test_" in row for _, row in ROWS)


def test_each_page_that_it_links_exists() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / target).is_file(), target


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_package_is_pinned_with_its_hash(name: str) -> None:
    logical = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    packages = [line for line in logical.splitlines() if line.strip() and not line.lstrip().startswith(("#", "-"))]
    assert len(packages) > 20
    for line in packages:
        assert re.match(r"[A-Za-z0-9._\[\],-]+==[^ ;]+", line) and "--hash=sha256:" in line, line[:80]


def test_a_trace_is_for_the_log_and_not_for_visitors() -> None:
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["client"]["showErrorDetails"] == "none" and settings["client"]["showErrorLinks"] is False
    assert settings["server"]["enableCORS"] is True and settings["server"]["enableXsrfProtection"] is True
