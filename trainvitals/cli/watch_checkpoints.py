"""What looks at the content of a run's checkpoints, as the settings want it."""

from __future__ import annotations

import os
from typing import Any, cast

from trainvitals.checkpoints import hash_store
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.schedule import Policy
from trainvitals.checkpoints.verifier import Verifier
from trainvitals.clock import Clock
from trainvitals.settings import RunSettings, Settings


def checkpoint_verifier(settings: Settings, run: RunSettings, clock: Clock, *, in_thread: bool) -> Verifier:
    """Hashes are kept in ``checkpoint_hashes`` of the run directory; other nodes leave theirs in ``checkpoint_shares``.

    Not in ``checkpoints``: that name often is the trainer's own directory.
    """
    watch = settings.watch
    policy = Policy(
        contents=cast(Any, watch.checkpoint_content), mb_per_s=watch.checkpoint_mb_per_s, loads=cast(Any, watch.checkpoint_load),
        recheck_days=watch.checkpoint_recheck_days,
    )  # fmt: skip
    store = HashStore(os.path.join(run.dir, hash_store.DIRECTORY), os.path.join(run.dir, "checkpoint_shares"))  # noqa: PTH118
    return Verifier(store, clock, policy, run.name, in_thread=in_thread)
