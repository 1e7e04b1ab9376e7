"""docs/formats.md: the table of the formats is the registry itself, and each example is read as it says."""

import json
import os
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.logs.formats_page import END, MTIME_NS, START, page_part, replaced, steps_of
from trainvitals.logs.parser import Parser
from trainvitals.logs.registry import GRAMMARS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def test_the_documentation_shows_every_format_as_it_is_registered():
    text = PAGE.read_text(encoding="utf-8")
    shown = text[text.index(START) : text.index(END) + len(END)]
    assert shown == page_part(), "run: python -m trainvitals.logs.formats_page --write docs/formats.md"


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_example_is_found_by_itself_and_gives_a_step(name):
    grammar = GRAMMARS[name]
    parser = Parser(mtime_ns=MTIME_NS)
    parser.feed((grammar.example.rstrip("\n") + "\n").encode())
    parser.finish()
    assert parser.format == name
    steps = [json.loads(line) for line in steps_of(grammar)]
    assert steps
    assert all(step["values"] or step["nonfinite"] for step in steps)
    assert sum(parser.counters.values()) == 0


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_page_shows_what_parse_prints(name, capsys, tmp_path):
    path = tmp_path / "train.log"
    path.write_text(GRAMMARS[name].example.rstrip("\n") + "\n", encoding="utf-8")
    os.utime(path, ns=(MTIME_NS, MTIME_NS))
    assert main(["parse", str(path)]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if '"type":"step"' in line]
    assert printed == steps_of(GRAMMARS[name])


def test_only_the_generated_part_is_replaced():
    text = f"# Formats\n\nby hand\n\n{START}\nwas here before\n{END}\nalso by hand\n"
    made = replaced(text)
    assert made.startswith(f"# Formats\n\nby hand\n\n{START}\n")
    assert made.endswith(f"{END}\nalso by hand\n")
    assert "was here before" not in made


def test_the_other_page_links_here():
    assert "formats.md" in (PAGE.parent / "logs.md").read_text(encoding="utf-8")
