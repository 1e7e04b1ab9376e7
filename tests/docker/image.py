"""What ``docker build`` would make, made without a Docker engine: the Dockerfile's steps, read from the file and carried out in a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
RUNS_UID = RUNS_GID = 10001


@dataclass(frozen=True)
class Instruction:
    """One of a Dockerfile. value: with continued lines joined."""

    name: str
    value: str


def instructions(path: Path = DOCKERFILE) -> list[Instruction]:
    """Of the file, in order, without comments."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#")))
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), value.strip()) for name, value in found]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, its FROM first; what stands before the first FROM belongs to none."""
    result: list[list[Instruction]] = []
    for instruction in instructions():
        if instruction.name == "FROM":
            result.append([])
        if result:
            result[-1].append(instruction)
    return result


def compose(name: str) -> dict[str, Any]:
    """A compose file, with its anchors merged."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker" / name).read_text())
    return document


def filled_in(value: Any, env: dict[str, str]) -> Any:
    """Compose's ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?sentence}`` filled in; one that is required and missing is a ``KeyError``."""
    if isinstance(value, dict):
        return {key: filled_in(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_in(item, env) for item in value]
    if not isinstance(value, str):
        return value
    pattern = re.compile(r"\$\{([A-Z_]+)(?::([-?])((?:[^${}]|\$\{[^{}]*\})*))?\}")
    return pattern.sub(lambda found: _one(found[1], found[2], found[3] or "", env), value)


def _one(name: str, operator: str | None, word: str, env: dict[str, str]) -> str:
    if env.get(name):
        return env[name]
    if operator == "-":
        return str(filled_in(word, env))
    if operator == "?":
        raise KeyError(f"{name}: {word}")
    return ""


@dataclass(frozen=True)
class Image:
    """A directory tree like the image's /opt, and a virtual environment with exactly what requirements.txt names."""

    tree: Path
    python: Path

    def command(self, arguments: list[str]) -> list[str]:
        """ENTRYPOINT and a service's command, as the container would run them."""
        entry = json.loads(next(i.value for i in stages()[-1] if i.name == "ENTRYPOINT"))
        assert entry[0] == "python"
        return [str(self.python), *entry[1:], *arguments]


def build(directory: Path) -> Image:
    """Carry out the build stage's COPY and pip install; 30 s, most of it pip."""
    copies = [i.value.split() for i in stages()[0] if i.name == "COPY"]
    tree = directory / "image"
    for source, target in copies:
        place = tree / target.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__", "secrets.toml"))
        else:
            shutil.copy(ROOT / source, place)
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    install = next(i.value for i in stages()[0] if i.name == "RUN" and "pip install" in i.value)
    flags = install.split("pip install", 1)[1].split("&&")[0].split()
    words = [str(tree / "build/requirements.txt") if word == "/build/requirements.txt" else word for word in flags]
    subprocess.run([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", *[w.strip("'") for w in words]], check=True)
    for path in (directory, tree, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    return Image(tree / "opt/trainvitals", venv / "bin/python")


def as_container() -> dict[str, Any]:
    """What makes a child the image's user, where these tests run as root and others can read this Python; else it stays who we are."""
    python = Path(sys.base_prefix).resolve()
    is_open = all(place.stat().st_mode & 0o001 for place in (python, *python.parents))
    return {"user": RUNS_UID, "group": RUNS_GID, "extra_groups": []} if os.geteuid() == 0 and is_open else {}
