"""Noise of the grad norm looks like noise on the page that stands alone, and a small rise of the loss can still be seen."""

from __future__ import annotations

import re

from trainvitals.incidents.static_page_curve import HEIGHT, Curve, svg


def height_of(curve: Curve) -> float:
    """The part of the picture that its line takes."""
    line = re.search(r'<polyline class="line" points="([^"]+)"', svg(curve, None, None))
    assert line is not None
    rows = [float(pair.split(",")[1]) for pair in line[1].split()]
    return (max(rows) - min(rows)) / HEIGHT


def values(name: str, *levels: float) -> Curve:
    return Curve(name, tuple(enumerate(levels)))


def test_noise_of_the_grad_norm_does_not_fill_the_picture() -> None:
    assert height_of(values("grad_norm", *(0.40 + 0.01 * (step % 3) for step in range(60)))) < 0.1


def test_a_spike_of_the_grad_norm_does() -> None:
    assert height_of(values("grad_norm", *([0.4] * 50), 9.0)) > 0.6


def test_a_small_rise_of_the_loss_is_seen() -> None:
    assert height_of(values("loss", *([2.31] * 50), 2.36)) > 0.6


def test_values_that_are_all_zero_or_below_are_drawn() -> None:
    assert 'class="line"' in svg(values("grad_norm", 0.0, 0.0), None, None)
    assert 'class="line"' in svg(values("grad_norm", -1.0, -2.0), None, None)
