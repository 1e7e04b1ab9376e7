"""Whether the settings let somebody act on the run of a directory; for commands that are given a directory, not a run of the settings.

In local mode the name is what was typed after ``--by``: told and audited, not proven. Who may write into the run directory could also
write the request by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.access import Identity, refusal
from trainvitals.control.audited import refused_access
from trainvitals.errors import ControlError, SettingsError
from trainvitals.settings import Settings


def require_operator(run_dir: Path, run: str, action: str, by: str, reason: str, config: str | None = None) -> None:
    """Raises ``ControlError`` for a person who may not act on the run, after the audit was told.

    The settings are those of ``config``, or those that every command finds by itself; without any, everybody may act. Settings that
    cannot be read never hold up a pause.
    """
    try:
        settings = settings_module.load(config)
    except SettingsError as error:
        if action != "pause":
            raise
        print(f"trainvitals: who may act was not looked up: {error}", file=sys.stderr)  # noqa: T201
        return
    name = _name_of(settings, run_dir) or run
    sentence = refusal(settings.access, name, Identity(by))
    if sentence:
        data = {"action": action, "reason": reason}
        raise ControlError(f"{sentence} {refused_access(run_dir, name, by=by, source='cli', data=data)}".rstrip())


def _name_of(settings: Settings, run_dir: Path) -> str:
    place = run_dir.resolve()
    return next((known.name for known in settings.runs if Path(known.dir).resolve() == place), "")
