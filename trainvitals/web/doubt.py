"""What speaks against a way back to one checkpoint although its files are whole: it was saved while the training was sick."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainvitals.charts.checkpoints import suspicion
from trainvitals.store.protocol import Store
from trainvitals.web.assemble import last_point_of, read_facts
from trainvitals.web.attempts import attempts_of
from trainvitals.web.checkpoint_advice import suspects_of
from trainvitals.web.metrics import last_rows


def doubt_words(path: str, suspects: Mapping[str, int]) -> str:
    """A sentence; "" when nothing speaks against it. suspects: path -> onset, as in ``RunView``."""
    place = os.path.normpath(path)
    onset = next((since for known, since in suspects.items() if os.path.normpath(known) == place), None)
    if onset is None:
        return ""
    words = suspicion(onset)
    return f"{os.path.basename(place)} is {words[0].lower()}{words[1:]}: its files may be whole, its weights may not be."  # noqa: PTH119 (a name of another host)


def stored_doubt(store: Store, run: str, path: str, now_ns: int) -> str:
    """``doubt_words`` by what is stored of the run. Raises what the store raises."""
    facts = read_facts(store, run, now_ns)
    events = facts.of_kind("attempt_start", "attempt_end", "resume")
    attempts = attempts_of(events, last_rows(store, run, now_ns), lambda number: last_point_of(store, run, number, now_ns))
    return doubt_words(path, suspects_of(facts, attempts))
