"""Text from outside never reaches a widget that reads Markdown, except through ``plain``."""

from __future__ import annotations

import ast
import html
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages._shared.text import plain

PAGES = Path(__file__).parents[2] / "pages"
#: Literal by themselves: st.text, st.code, dataframes, and our components (they set textContent).
MARKDOWN = frozenset(
    {
        "markdown", "write", "write_stream", "metric", "button", "download_button", "link_button", "error", "warning", "info", "success",
        "exception", "caption", "title", "header", "subheader", "latex", "table", "tabs", "expander", "popover", "badge", "toast", "checkbox",
        "toggle", "radio", "selectbox", "multiselect", "slider", "text_input", "text_area", "number_input", "pills", "segmented_control",
        "page_link", "form_submit_button", "status", "spinner", "progress", "help", "chat_message", "html", "dialog", "feedback",
        "menu_button", "date_input", "time_input", "datetime_input", "file_uploader", "data_editor", "image", "graphviz_chart", "iframe",
    }
)  # fmt: skip
#: Arguments of those widgets that are shown as they are, or not shown.
LITERAL_ARGUMENTS = frozenset(
    {
        "key", "on_click", "on_change", "args", "kwargs", "options", "index", "format_func", "value", "default", "selection_mode", "query_params",
        "placeholder", "max_chars", "height", "width", "disabled", "type", "label_visibility", "shortcut", "required",
    }
)  # fmt: skip
#: Positions that hold options rather than text shown as Markdown, where the first is the label.
OPTIONS_SECOND = frozenset({"selectbox", "segmented_control", "pills", "radio", "multiselect"})

#: Files that put a style sheet of ours into the page -> that sheet.
STYLES = {"frame.py": "style.css", "wall_parts.py": "wall.css"}


def is_safe(node: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "plain"
    if isinstance(node, ast.IfExp):
        return is_safe(node.body, names) and is_safe(node.orelse, names)
    if isinstance(node, ast.JoinedStr):
        return all(is_safe(part.value, names) if isinstance(part, ast.FormattedValue) else True for part in node.values)
    return isinstance(node, ast.Name) and node.id in names


def offences(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # Names that run over a table of constants of the same file (button labels) are our own text.
    tables = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and all(isinstance(v, ast.Constant) for v in node.value.values)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    own = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Attribute)
        and isinstance(node.iter.func.value, ast.Name) and node.iter.func.value.id in tables
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    }  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MARKDOWN):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "st"):
            continue
        shown = node.args[:1] if node.func.attr in OPTIONS_SECOND else node.args
        if node.func.attr == "page_link":
            shown = []
        shown = [*shown, *(keyword.value for keyword in node.keywords if keyword.arg not in LITERAL_ARGUMENTS)]
        is_style = node.func.attr == "html" and path.name in STYLES
        if not is_style and not all(is_safe(argument, frozenset(own)) for argument in shown):
            found.append(f"{path.name}:{node.lineno} st.{node.func.attr}")
    return found


def test_no_page_puts_foreign_text_into_markdown() -> None:
    sources = [path for path in PAGES.rglob("*.py") if "components" not in path.parts]
    assert len(sources) >= 10
    assert [offence for path in sources for offence in offences(path)] == []


def test_the_rule_catches_what_it_is_made_for(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        'import streamlit as st\nst.error(name)\nst.metric(f"x {name}", 1)\nst.error(plain(name))\nst.button(plain(a) if b else "c")\n'
    )
    assert offences(page) == ["page.py:2 st.error", "page.py:3 st.metric"]


def test_no_page_allows_raw_html_or_scripts() -> None:
    for path in PAGES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "unsafe_allow_html" not in text and "unsafe_allow_javascript" not in text, path


def test_our_two_style_sheets_hold_no_foreign_text() -> None:
    for name, sheet in STYLES.items():
        text = (PAGES / "_shared" / name).read_text(encoding="utf-8")
        assert text.count("st.html(") == 1 and "palette(theme())" in text and f'/ "{sheet}"' in text
        assert "url(" not in (PAGES / "_shared" / sheet).read_text(encoding="utf-8")


@given(st.text())
def test_plain_shows_the_same_characters_and_leaves_nothing_to_interpret(text: str) -> None:
    source = plain(text, 10_000)
    assert not re.search(r"[\\`*_{}\[\]()<>+.!|~^$:=\"'@/-]", source)
    assert not re.search(r"&(?!#\d+;)", source) and not re.search(r"#(?!\d+;)", source)
    assert "\n" not in source
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in text)
    assert html.unescape(source) == " ".join(kept.split())


@pytest.mark.parametrize(
    "text",
    [
        "![](http://evil.example/x)",
        "[a](javascript:1)",
        ":red[x]",
        "$$x$$",
        "<img src=x>",
        "https://evil.example",
        ":material/home:",
    ],
)
def test_plain_takes_away_pictures_links_colours_and_formulas(text: str) -> None:
    assert html.unescape(plain(text)) == text
    assert not set("[]()<>:$/!") & set(plain(text))


def test_plain_cuts_what_is_too_long() -> None:
    assert html.unescape(plain("x" * 1000, 10)) == "x" * 9 + "…"
