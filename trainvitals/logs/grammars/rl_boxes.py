"""Stable-Baselines' boxes ``|    loss    | 20.1    |`` and RSL-RL's blocks under ``Learning iteration 120/1500``.

Both tell one update in many lines. A box names its step inside (``total_timesteps``, environment steps); one without a loss, as an evaluation
prints it, is none.

The loss of a value function, of a critic, or of a Q network (the only one that DQN has, printed as ``loss`` beside its ``exploration_rate``)
is an error in units of the squared return: it must grow in a run that learns. So it stays under its own name, and nobody is woken because it
grew. Only a total that is printed as ``loss`` is the loss. A part that is not a number is told as a loss that is none: that run is lost.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.grammars.blocks import BlockByBlock
from trainvitals.logs.grammars.cells import Names
from trainvitals.logs.grammars.step_rows import step_number
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_RULE = re.compile(r"\s{0,20}(?:-{8,200}|#{8,200})\s{0,20}\Z")
_CELLS = re.compile(r"\|\s{1,20}([A-Za-z][\w/ @.-]{0,60}?)\s{0,60}\|\s{1,20}(\S{1,40})\s{0,60}\|\s{0,20}\Z", re.ASCII)
_ITERATION = re.compile(r"\bLearning iteration (\d{1,12})/\d{1,12}\s{0,60}(?:\|\s{0,4})?\Z", re.ASCII)
_PAIR = re.compile(r"\A\s{0,80}\|?\s{0,4}([A-Za-z][\w /().-]{0,60}?): {1,4}([-+]?[\d.]\S{0,39}|[-+]?nan|[-+]?inf)", re.ASCII)
#: Printed beside the loss by Stable-Baselines' DQN and its relatives only.
_OF_Q_LEARNING = "exploration_rate"
_STEPS = ("total_timesteps", "serial_timesteps", "n_updates", "nupdates", "iterations")


class _Box(BlockByBlock):
    is_from_source = True

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    def names(self, pairs: dict[str, str]) -> Names:
        names: dict[str, tuple[str, float]] = {
            "loss": ("loss", 1.0), "learning_rate": ("lr", 1.0), "Learning rate": ("lr", 1.0), "Iteration time": ("step_time_s", 1.0),
            "Computation": ("environment_steps_per_s", 1.0), "Time elapsed": ("", 1.0), "time_elapsed": ("", 1.0), "ETA": ("", 1.0),
            **dict.fromkeys(_STEPS, ("", 1.0)),
        }  # fmt: skip
        if _OF_Q_LEARNING in pairs:
            names["loss"] = ("td_loss", 1.0)
        return names

    def close(self) -> list[Record]:
        opened = self._open
        if opened is not None and not any("loss" in key.lower() for key, _ in opened["pairs"]):
            self._open = None
            return []
        return [_with_lost_parts(record) if isinstance(record, Step) else record for record in super().close()]


class StableBaselines(_Box):
    """State: the box that is open."""

    name = "stable_baselines"
    title = "Stable-Baselines 2 and 3, RL Zoo"
    example = (
        "-----------------------------------\n"
        "| time/              |            |\n"
        "|    total_timesteps | 3584       |\n"
        "| train/             |            |\n"
        "|    learning_rate   | 0.0002     |\n"
        "|    loss            | 20.1       |\n"
        "|    value_loss      | 36.8       |\n"
        "-----------------------------------"
    )
    literals: ClassVar[tuple[str, ...]] = ("timesteps",)
    prelude: ClassVar[tuple[str, ...]] = (f"|    {_OF_Q_LEARNING}",)  # it stands above the line by which the first box is known

    @staticmethod
    def claims(line: str) -> bool:
        found = _CELLS.match(line) if "timesteps" in line else None
        return found is not None and found[1] in ("total_timesteps", "serial_timesteps") and step_number(found[2]) is not None

    def feed(self, line: str) -> list[Record]:
        if line.startswith(("-", " -")) and _RULE.match(line):
            records = self.close()
            self.begin(None, None)
            return records
        if line.startswith("|") and (found := _CELLS.match(line)):
            if not self.is_open:
                self.begin(None, None)
            self.put(found[1], found[2])
        return []

    def step_of(self, step: int | None, pairs: dict[str, str]) -> int | None:
        return next((number for name in _STEPS if (number := step_number(pairs.get(name))) is not None), None)


class RslRl(_Box):
    """State: the block that is open."""

    name = "rsl_rl"
    title = "RSL-RL: Isaac Lab, legged_gym"
    example = (
        "################################################################################\n"
        "                       Learning iteration 120/1500\n"
        "\n"
        "                       Computation: 14963 steps/s (collection: 6.407s, learning 0.163s)\n"
        "               Value function loss: 0.0132\n"
        "                    Surrogate loss: -0.0021\n"
        "                 Mean total reward: 25.66\n"
        "--------------------------------------------------------------------------------\n"
        "                    Iteration time: 6.57s"
    )
    literals: ClassVar[tuple[str, ...]] = ("Learning iteration ",)

    @staticmethod
    def claims(line: str) -> bool:
        return "Learning iteration " in line and _ITERATION.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if "Learning iteration " in line and (found := _ITERATION.search(line)):
            return self.begin(int(found[1]), self._times.find(line[:80]), line)
        if line.startswith("#") and _RULE.match(line):
            return self.close()
        if self.is_open and ": " in line and (pair := _PAIR.match(line)):
            self.put(pair[1].strip(), pair[2])
        return []


def _with_lost_parts(step: Step) -> Step:
    """``loss`` is no number where a part of it is none."""
    if "loss" in step.values or "loss" in step.nonfinite:
        return step
    lost = next((kind for name, kind in step.nonfinite.items() if "loss" in name), None)
    return step if lost is None else replace(step, nonfinite={**step.nonfinite, "loss": lost})
