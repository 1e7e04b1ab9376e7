"""Numbers on the curves of a page that stands alone: as the dashboard writes them, and readable where the curve runs below them."""

from __future__ import annotations

import pytest

from trainvitals.incidents.static_page_curve import Curve, svg
from trainvitals.incidents.static_page_style import STYLE


@pytest.mark.parametrize(
    ("high", "shown"),
    [(10_030.0, "10,030"), (999.0, "999"), (1_234_567.0, "1,234,567"), (2.5e12, "2.5e+12"), (0.00012, "0.00012")],
)
def test_a_level_is_written_as_on_the_dashboard(high: float, shown: str) -> None:
    assert f">{shown}</text>" in svg(Curve("tokens_per_s", ((1, 0.0), (2, high))), None, None)


def test_the_levels_are_drawn_over_the_curve_with_a_rim_of_the_papers_colour() -> None:
    drawn = svg(Curve("loss", ((1, 2.0), (2, 3.5))), None, None)
    assert drawn.index("<polyline") < drawn.index(">3.5</text>")
    assert "paint-order:stroke;stroke:var(--paper)" in STYLE
