"""The arrows of ARCHITECTURE.md: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BASE = {"errors", "clock", "records", "schema", "identity", "masking"}
#: room -> rooms of `trainvitals` it may import (itself always)
MAY_IMPORT = {
    "errors": set(),
    "clock": set(),
    "records": set(),
    "schema": set(),
    "identity": set(),
    "masking": set(),
    "manifest": set(),
    "settings": BASE | {"settings_sections", "settings_alerts", "settings_field", "detect.tunables", "logs.registry"},
    "settings_sections": {"settings_alerts", "settings_field"},
    "settings_alerts": {"settings_field"},
    "settings_field": {"errors"},
    "settings_page": {"settings", "settings_sections", "settings_alerts"},
    "access": {"settings_sections"},
    "attempts": BASE,
    "control": {"errors", "clock", "masking"},
    "hook": {"errors", "clock", "control", "masking", "manifest"},
    "logs": BASE,
    "detect": BASE,
    "checkpoints": BASE | {"manifest"},
    "store": BASE,
    "incidents": BASE,
    "alerts": BASE | {"settings", "settings_sections", "settings_alerts", "incidents", "store.sqlite_connection"},
    "watch": BASE
    | {"access", "settings", "attempts", "control", "logs", "detect", "checkpoints", "store", "incidents", "alerts"},
    "supervisor": BASE | {"settings", "settings_sections", "attempts", "control", "logs", "checkpoints", "store", "incidents"},
    "doctor": BASE | {"settings", "settings_sections", "control", "store", "alerts", "logs", "hook.filesystem"},
    "charts": BASE | {"incidents"},
    "web": BASE | {"access", "settings", "control", "store", "incidents", "charts", "alerts"},
    "demo": BASE | {"hook", "control", "checkpoints", "store"},
}
STANDARD_LIBRARY_ONLY = {"hook", "control", "errors", "clock", "masking", "manifest"}
#: Exactly these files of the hook may import exactly that: a trainer that uses them has it. The others need nothing.
LIBRARY_OF = {
    "trainvitals/hook/huggingface.py": {"transformers"},
    "trainvitals/hook/device_values.py": {"torch"},
    "trainvitals/hook/torch_loop.py": {"torch"},
    "trainvitals/hook/torch_world.py": {"torch"},
    "trainvitals/hook/checksum.py": {"torch"},
    "trainvitals/hook/group_control.py": {"torch"},
}
OUTSIDE_OF = {
    "streamlit": {"pages", "app"},
    "pynvml": {"collectors"},
    "subprocess": {"watch", "supervisor", "checkpoints", "demo", "hook", "doctor", "cli", "collectors", "tests", "bench"},
}


def sources(top: str) -> list[Path]:
    folder = ROOT / top
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{top}.py"]


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in the file; names under TYPE_CHECKING are for readers only."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT / "trainvitals").parts[0]
    return first.removesuffix(".py")


CORE = [p for p in sources("trainvitals") if room_of(p) not in ("__init__", "__main__", "cli")]


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_the_rooms_its_arrows_allow(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"{room} is a new room: give it a row here and in ARCHITECTURE.md"
    allowed = MAY_IMPORT[room] | {room}
    for name in imports(path):
        if not name.startswith("trainvitals."):
            continue
        target = name.removeprefix("trainvitals.")
        # `from trainvitals import __version__` is the package itself.
        if target in ("__version__",):
            continue
        assert any(target == a or target.startswith(a + ".") for a in allowed), f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("top", ["trainvitals", "collectors", "pages", "app"])
def test_outside_worlds_have_one_door(top):
    for path in sources(top):
        room = room_of(path) if top == "trainvitals" else top
        for name in imports(path):
            first = name.split(".")[0]
            if first in OUTSIDE_OF:
                assert room in OUTSIDE_OF[first] or top in OUTSIDE_OF[first], f"{path.relative_to(ROOT)} imports {name}"


def test_pages_and_collectors_do_not_know_each_other_and_the_core_knows_neither():
    for path in sources("pages"):
        assert not any(n.split(".")[0] == "collectors" for n in imports(path)), path
    for path in sources("collectors"):
        assert not any(n.split(".")[0] in ("pages", "streamlit") for n in imports(path)), path
    for path in CORE:
        assert not any(n.split(".")[0] in ("pages", "collectors", "app") for n in imports(path)), path


def test_pages_import_only_what_they_may_draw():
    allowed = {"web", "charts", "control", "records", "settings", "incidents", "errors", "clock", "schema", "identity"}
    for path in [*sources("pages"), ROOT / "app.py"]:
        for name in imports(path):
            if name.startswith("trainvitals."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_the_hook_needs_only_the_standard_library():
    import sys

    for path in CORE:
        if room_of(path) in STANDARD_LIBRARY_ONLY:
            own = LIBRARY_OF.get(str(path.relative_to(ROOT)), set())
            for name in imports(path):
                first = name.split(".")[0]
                allowed = first == "trainvitals" or first in sys.stdlib_module_names or first in own
                assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_no_other_file_imports_what_needs_a_trainers_library():
    """Importing the hook must work where neither torch nor a trainer is installed."""
    needy = {"huggingface", "lightning", "torch_loop", "torch_world", "device_values", "checksum", "group_control"}
    for path in CORE:
        if path.parent.name == "hook" and path.stem in needy:
            continue
        for name in imports(path):
            parts = name.split(".")
            assert not (parts[:2] == ["trainvitals", "hook"] and set(parts[2:]) & needy), f"{path.relative_to(ROOT)}: {name}"


def test_every_room_stands_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for room in MAY_IMPORT:
        assert room in text, f"ARCHITECTURE.md does not name {room}"


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their names alone: of two, one would stop the collection of all."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("__init__.py", "conftest.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
