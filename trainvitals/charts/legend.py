"""What the marks on the curves mean, for whoever sees them for the first time at three in the morning."""

from __future__ import annotations

from collections.abc import Mapping

#: A sign, or how a line looks, and what it says; in the order of urgency.
MARKS: tuple[Mapping[str, str], ...] = (
    {"label": "▲ red", "value": "something critical began here; the red line through all rows is its onset"},
    {"label": "○ amber", "value": "a warning began here"},
    {"label": "◇ blue", "value": "worth knowing, nobody is woken"},
    {"label": "▼ on the top edge", "value": "no value to stand on: NaN or infinite, or a finding that is about no curve"},
    {"label": "shaded red, amber", "value": "not well, as long as it lasted; by time also from a death to the next start"},
    {"label": "shaded blue", "value": "paused"},
    {"label": "green dots", "value": "a checkpoint; ✓ verified"},
    {
        "label": "red dashes",
        "value": "a checkpoint that cannot be trusted: ✕ damaged, ! incomplete or saved while the run was sick",
    },
    {"label": "grey dashes", "value": "a new start of the trainer"},
    {"label": "faint grey line", "value": "steps that a later start ran again"},
    {"label": "thin line around a line", "value": "lowest and highest of the steps that one point stands for"},
    {"label": "◆", "value": "a loss on held-out data"},
    {"label": "✎ ■ olive", "value": "a note of a person"},
)
