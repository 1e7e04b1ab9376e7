"""Troubles that last: each is told when it begins and when it changes, not at every turn."""

from __future__ import annotations

from collections.abc import Iterable


class Troubles:
    """Remembers what each source said last."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def news(self, now: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Of (source, sentence; "" = all is well) those that were not told yet."""
        news = []
        for source, sentence in now:
            if sentence and sentence != self._told.get(source):
                news.append((source, sentence))
            self._told[source] = sentence
        return news
