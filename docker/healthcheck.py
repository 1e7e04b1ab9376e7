"""Whether this container does its work: exit code 0 or 1, one sentence on stderr. Standard library only; the image has no curl.

healthcheck.py dashboard [BASE_PATH]    /healthz answers 200
healthcheck.py watch RUN_DIR            the watchdog has told that it reads here within the last 30 s
"""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

#: The watchdog writes its file every 5 s (docs/control.md).
SILENT_AFTER_S = 30.0
TIMEOUT_S = 4.0


def dashboard() -> str:
    """Why the dashboard is not healthy, "" when it is."""
    port = os.environ.get("TRAINVITALS_DASHBOARD_PORT", "8501")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=TIMEOUT_S) as answer:
            is_ours = answer.headers.get_content_type() == "application/json"  # any other page answers 200, too
            return (
                ""
                if answer.status == 200 and is_ours
                else f"/healthz answers {answer.status} {answer.headers.get_content_type()}"
            )
    except urllib.error.HTTPError as error:
        return f"/healthz answers {error.code}: {error.read(500).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return f"/healthz does not answer: {error}"


def watch(run_dir: str) -> str:
    """Why nobody watches the run, "" when somebody does. A watchdog that waits for its store at the start tells nothing yet."""
    path = Path(run_dir) / "control" / "requests" / "watcher.json"
    try:
        age_s = time.time() - path.stat().st_mtime
    except OSError as error:
        return f"the watchdog has not told that it reads here: {error}"
    return "" if age_s <= SILENT_AFTER_S else f"the watchdog told nothing for {age_s:.0f} s ({path})"


def main(arguments: list[str]) -> int:
    """Exit code."""
    checks: dict[str, Callable[..., str]] = {"dashboard": dashboard, "watch": watch}
    if not arguments or len(arguments) != {"dashboard": 1, "watch": 2}.get(arguments[0]):
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 2
    trouble = checks[arguments[0]](*arguments[1:])
    if trouble:
        print(trouble, file=sys.stderr)  # noqa: T201
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
