"""Rows and grids of numbered files: which number is missing, without counting up to a number that anybody can write in a name."""

from __future__ import annotations

from collections.abc import Collection


def lacking(seen: Collection[int], at_least: int | None = None) -> tuple[int, int]:
    """How many of 0 … highest (or ``at_least`` - 1) are missing, and the first of them; (0, 0) when none is."""
    numbers = set(seen)
    size = max(max(numbers, default=-1) + 1, at_least or 0)
    count = size - len(numbers)
    return (count, next(number for number in range(size) if number not in numbers)) if count > 0 else (0, 0)


def lacking_pairs(
    seen: Collection[tuple[int, int]], rows: int | None = None, columns: int | None = None
) -> tuple[int, tuple[int, int]]:
    """The same for a full grid of rows × columns."""
    pairs = set(seen)
    height = max(max((row for row, _ in pairs), default=-1) + 1, rows or 0)
    width = max(max((column for _, column in pairs), default=-1) + 1, columns or 0)
    count = height * width - len(pairs)
    if count <= 0:
        return 0, (0, 0)
    return count, next((row, column) for row in range(height) for column in range(width) if (row, column) not in pairs)
