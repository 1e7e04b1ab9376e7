"""Texts by which a log tells that a run fails: the table, who said it, many lines grouped into one event."""
