"""Runs whose weights are damaged while the loss stays normal: only a load sees it, and only some checkpoints were loaded."""

from __future__ import annotations

from dataclasses import replace

from simulated_rollbacks import Case, File, Simulation

from trainvitals.incidents.damaged_values import is_damaged_in_the_run
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

NAN = "tensor layers.0.weight in model.pt holds NaN (64 of 64 sampled values)"


class DamagedNumbers(Simulation):
    """``case`` is None when no load saw the damage before somebody asked, so that nobody could know."""

    def _live(self) -> None:
        rng = self.rng
        self.kind = "damaged numbers"
        self.all_files: dict[str, File] = {}
        self._start(0)
        self._train(rng.randint(420, 520))
        for _ in range(rng.choice([0, 1, 1, 2])):
            self._something_harmless()
        self._train(max(1, rng.randint(1, 2 * self.interval) // self.gap))
        self.is_damaged, self.onset = True, self.step + 1
        self._train(rng.randint(self.interval, 4 * self.interval) // self.gap + 1)
        if rng.random() < 0.3:  # it died and went on from its newest one, or somebody took an older one
            able = sorted(self._whole(), key=lambda file: file.report.modified_at_ns or 0)
            if able:
                self._go_back((able[-1] if rng.random() < 0.5 else rng.choice(able)).report.path)
                self._train(rng.randint(1, 3 * self.interval) // self.gap + 1)
        self._ask_about_numbers()

    def _save(self) -> None:
        super()._save()
        path = f"/c/checkpoint-{self.step}"
        file = self.files[path]
        if file.report.state is CheckpointState.VERIFIED and self.rng.random() < 0.6:  # loaded while it was the newest
            file.report = self._loaded(file)
        self.all_files[path] = file

    def _loaded(self, file: File) -> CheckpointReport:
        if file.is_silently_broken:
            return replace(file.report, state=CheckpointState.CORRUPT, reasons=("model.pt: checksum differs",))
        if file.is_damaged:
            return replace(file.report, state=CheckpointState.CORRUPT, reasons=(NAN,))
        return replace(file.report, level=VerificationLevel.LOAD)

    def _ask_about_numbers(self) -> None:
        self._ask()
        case = self.case
        assert case is not None
        gone = [
            replace(file.report, state=CheckpointState.DELETED, level=None, reasons=("its files are gone", *file.report.reasons))
            for path, file in self.all_files.items()
            if path not in self.files and NAN in file.report.reasons
        ]
        reports = [*case.reports, *gone]
        is_seen = any(is_damaged_in_the_run(one) for one in reports)  # of one that is not durable yet nobody has loaded anything
        self.case = replace(case, reports=reports) if is_seen else None


def load_looked_at(case: Case, path: str) -> Case:
    """After a load of what is at ``path``."""
    file = case.files[path]
    reasons: tuple[str, ...] = ("model.pt: checksum differs",) if file.is_silently_broken else (NAN,)
    is_sound = not file.is_damaged and not file.is_silently_broken
    reports = [
        one if one.path != path
        else replace(one, level=VerificationLevel.LOAD) if is_sound
        else replace(one, state=CheckpointState.CORRUPT, reasons=reasons)
        for one in case.reports
    ]  # fmt: skip
    return replace(case, reports=reports)
