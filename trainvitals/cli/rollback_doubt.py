"""Before ``control rollback``: is the checkpoint suspect? Its files do not tell; what is stored of the run does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.clock import SystemClock
from trainvitals.errors import SettingsError, StoreError
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.web.doubt import stored_doubt

ANYWAY = "To go back to it all the same: --anyway. A safe one is named on the page Checkpoints."


def doubt_here(run_dir: Path, run_name: str, checkpoint: Path, config: str | None) -> str:
    """A sentence; "" when nothing speaks against it, or nothing is stored of the run here, which stderr says."""
    try:
        settings = settings_module.load(config)
        place = run_dir.resolve()
        run = next((one for one in settings.runs if Path(one.dir).resolve() == place), None)
        run = run or next((one for one in settings.runs if run_name and one.name == run_name), None)
        if run is None:
            return _not_looked_up(f"no settings name a run in {run_dir} (--config FILE)")
        return doubt_stored(settings, run, str(checkpoint.absolute())) or doubt_stored(settings, run, str(checkpoint.resolve()))
    except SettingsError as error:
        return _not_looked_up(str(error))


def doubt_stored(settings: Settings, run: RunSettings, path: str) -> str:
    """As ``doubt_here``, of a run of the settings."""
    try:
        store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
        try:
            return stored_doubt(store, run.name, path, SystemClock().time_ns())
        finally:
            store.close()
    except StoreError as error:
        return _not_looked_up(str(error))


def refuse(to: str, doubt: str) -> None:
    """Tell that nothing was asked, and how to ask all the same."""
    sentence = f"Nothing was asked: {doubt} {ANYWAY}"
    print(json.dumps({"action": "rollback", "outcome": "refused", "to": to, "sentence": sentence}))  # noqa: T201 - stdout is data
    print("".join(c if c.isprintable() else "?" for c in sentence), file=sys.stderr)  # noqa: T201


def _not_looked_up(why: str) -> str:
    print("".join(c if c.isprintable() else "?" for c in f"Whether it is suspect was not looked up: {why}"), file=sys.stderr)  # noqa: T201
    return ""
