"""What git says of the code that was started: commit, branch and what was changed since.

A repository's own configuration can name programs to run (fsmonitor, diff drivers, filters, lazy fetches): none of them is
started, nothing is fetched, nothing is locked or written.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from trainvitals.masking import mask_text

MAX_DIFFSTAT_BYTES = 8_192
MAX_OUTPUT_BYTES = 1 << 20
MAX_FILTERS = 50
_FIXED = (
    "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=keep", "-c", "core.hooksPath=/dev/null", "-c", "diff.external=",
    "-c", "diff.submodule=short", "-c", "submodule.recurse=false", "-c", "core.quotePath=true", "-c", "color.ui=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "log.showSignature=false",
)  # fmt: skip
_FILTER = re.compile(r"filter\.(.{1,200})\.(?:clean|smudge|process|required)", re.ASCII | re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


class GitError(Exception):
    """Why git told nothing."""


def describe_git(directory: str, timeout_s: float) -> dict[str, str | bool]:
    """``commit``, ``branch``, ``dirty`` and ``diffstat`` of the repository around ``directory``; ``unavailable``: why not."""
    deadline_s = time.monotonic() + timeout_s
    try:
        commit, branch = _head(directory, deadline_s)
    except GitError as error:
        return {"unavailable": str(error)}
    values: dict[str, str | bool] = {"commit": commit, "branch": branch}
    try:
        stat = _git(directory, [*_no_filters(directory, deadline_s), *_DIFF], deadline_s)
    except GitError as error:
        values["diffstat_unavailable"] = str(error)
        return values
    values["dirty"] = bool(stat.strip())
    if stat.strip():
        values["diffstat"] = mask_text(stat)[:MAX_DIFFSTAT_BYTES].rstrip()
    return values


_DIFF = (
    "diff", "HEAD", "--stat=120", "--stat-count=150", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
    "--ignore-submodules=all",
)  # fmt: skip


def _head(directory: str, deadline_s: float) -> tuple[str, str]:
    found = _git(directory, ["rev-parse", "HEAD", "--abbrev-ref", "HEAD"], deadline_s).split("\n")
    if not _COMMIT.fullmatch(found[0]):
        raise GitError("the repository has no commit")
    branch = mask_text(found[1].strip()[:200]) if len(found) > 1 else ""
    return found[0], "(detached)" if branch == "HEAD" else branch


def _no_filters(directory: str, deadline_s: float) -> list[str]:
    """Switches every clean filter off: ``git diff`` would run it for each file whose time stamp changed."""
    try:
        listed = _git(directory, ["config", "--name-only", "--get-regexp", r"^filter\."], deadline_s, nothing_is_fine=True)
    except GitError as error:
        raise GitError(f"its filters cannot be listed: {error}") from error
    options: list[str] = []
    names = {found[1] for line in listed.split("\n") if (found := _FILTER.fullmatch(line.strip()))}
    if len(names) > MAX_FILTERS or any("=" in name for name in names):
        raise GitError("the repository's filters cannot be switched off")
    for name in sorted(names):
        for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")):
            options += ["-c", f"filter.{name}.{key}={value}"]
    return options


def _git(directory: str, arguments: Sequence[str], deadline_s: float, *, nothing_is_fine: bool = False) -> str:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise GitError("no time was left")
    try:
        process = subprocess.Popen(
            ["git", "--no-pager", *_FIXED, *arguments],
            cwd=directory, env=_environment(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True, close_fds=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise GitError("git or the script's directory is not there") from error
    except OSError as error:
        raise GitError(f"git cannot be started: {error.strerror or error}") from error
    try:
        output, _ = process.communicate(timeout=left_s)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise GitError(f"git did not answer within {left_s:.0f} s") from error
    except BaseException:
        _kill(process)
        raise
    if process.returncode != 0 and not (nothing_is_fine and process.returncode == 1):
        raise GitError("the script lies in no git repository that this user may read")
    return output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group; one that hangs in the kernel is not waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        return  # the kernel ends it when the file system answers
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The trainer's own environment without what steers git, and without what a launcher preloads into its ranks."""
    kept = {name: value for name, value in outer.items() if not name.startswith("GIT_") and name != "LD_PRELOAD"}
    return kept | {
        "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": "0", "LC_ALL": "C",
    }  # fmt: skip
