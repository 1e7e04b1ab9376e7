"""What a run remembers of its pins over a restart: what was proven of them, and which of those on the disk are its own.

Only who remembers why may let go of a pin: another run may need it, or this one, when what it knew was lost and the incident is
not read again yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.checkpoints.pinning import original_path
from trainvitals.checkpoints.watcher import report_from_mapping, report_to_mapping
from trainvitals.records import CheckpointReport, CheckpointState
from trainvitals.watch.pin_work import Done


@dataclass
class PinMemory:
    """lost: checkpoint directories to look into again, because they may not be mounted yet."""

    lost: set[str] = field(default_factory=set)
    _reports: dict[str, CheckpointReport] = field(default_factory=dict)
    _found_ns: dict[str, int] = field(default_factory=dict)
    _of_others: set[str] = field(default_factory=set)

    def looked(self, done: Done, now_ns: int) -> dict[str, CheckpointReport]:
        """What is pinned in one directory, with what was proven of it where its files are still those."""
        directory, found = done.job.path, {}
        for made, seen in done.made:
            if made.path not in self._reports:
                self._found_ns.setdefault(made.path, now_ns)
            (self._of_others.add if made.others else self._of_others.discard)(made.path)
            found[made.path] = self._proven(seen)
        here = {path for path in self._reports if os.path.dirname(original_path(path)) == directory}  # noqa: PTH120
        if here - set(found) and done.is_absent:
            self.lost.add(directory)
        else:
            self.lost.discard(directory)
            for path in here - set(found):
                self.forget(path)
        return found

    def made(self, path: str) -> None:
        """This run asked for it."""
        self._found_ns.pop(path, None)
        self._of_others.discard(path)

    def forget(self, path: str) -> None:
        """It is not kept any more."""
        self._reports.pop(path, None)
        self.made(path)

    def missed(self, path: str, report: CheckpointReport) -> None:
        """It cannot be seen now; it is looked for again."""
        self._reports[path] = report
        self.lost.add(os.path.dirname(original_path(path)))  # noqa: PTH120

    def is_of_others(self, path: str) -> bool:
        """Whether another run had it pinned and this one did not."""
        return path in self._of_others and path in self._found_ns

    def not_own(self, now_ns: int, rest_s: float) -> set[str]:
        """Pins that this run did not ask for: those of others for ever, others for ``rest_s`` after they were found."""
        return {path for path, found_ns in self._found_ns.items() if path in self._of_others or now_ns - found_ns < rest_s * 1e9}

    def to_state(self, pins: Mapping[str, CheckpointReport]) -> dict[str, Any]:
        """JSON values only. pins: those that are there now."""
        reports = {**self._reports, **pins}
        return {"pins": {path: report_to_mapping(report) for path, report in reports.items()}, "found_ns": dict(self._found_ns)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where ``to_state`` was taken; whose they are is read from the disk."""
        self._reports = {path: report_from_mapping(report) for path, report in state["pins"].items()}
        self._found_ns = dict(state.get("found_ns", {}))
        self._of_others, self.lost = set(), set()

    def _proven(self, seen: CheckpointReport) -> CheckpointReport:
        known = self._reports.get(seen.path)
        if known is None or seen.state is not CheckpointState.VERIFIED:
            return seen
        is_same = (seen.files, seen.bytes, seen.modified_at_ns) == (known.files, known.bytes, known.modified_at_ns)
        return known if is_same else seen
