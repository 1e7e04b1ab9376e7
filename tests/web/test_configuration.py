"""What starts were made of and what they changed, from stored parts to rows on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dead_run
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.records import Event, Finding, Severity
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.metadata import MetadataFiles
from trainvitals.web.changes import arrow, changes_at, changes_of, full, lines_of, nothing_changed, title
from trainvitals.web.configuration import MAX_STARTS, ConfigurationReader, configurations_of, rows_of
from trainvitals.web.view import AttemptView

NOW = 1_795_000_000 * 10**9
ATTEMPTS = (AttemptView(1, NOW, 1, 900), AttemptView(2, NOW + 100, 801, None))


def part(section: str, values: Any, number: int = 0, parts: Any = 1, attempt: int | None = 1, time_ns: int = NOW) -> Event:
    data = {"section": section, "values": values, "part": number, "parts": parts}
    return Event("metadata", time_ns, attempt=attempt, id=f"{section}/{number}/{attempt}/{time_ns}", source="hook", data=data)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


class Counting:
    """A store that counts the rows it was asked for."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.limits = store, []

    def events(self, *arguments: Any, limit: int, **named: Any) -> Sequence[Event]:
        self.limits.append(limit)
        return self.store.events(*arguments, limit=limit, **named)


def test_parts_become_sections_of_text_with_the_newest_start_first() -> None:
    events = [
        part("config", {"b": 1e-4, "x": None}, 1, 2),
        part("config", {"a": "1"}, 0, 2),
        part("git", {"dirty": True}, attempt=2),
    ]
    newest, first = configurations_of(events, ATTEMPTS)
    assert (newest.attempt, newest.sections) == (2, {"git": {"dirty": "True"}})
    assert (first.attempt, first.sections) == (1, {"config": {"a": "1", "b": "1e-4", "x": "None"}})


def test_numbers_read_as_in_what_changed() -> None:
    told = {"lr": 4.5e-4, "eps": 1e-8, "beta": 0.95, "big": 1e22, "nan": float("nan"), "zero": 0.0, "flag": True, "n": 3}
    (only,) = configurations_of([part("config", told)], ATTEMPTS)
    assert list(only.sections["config"].values()) == ["4.5e-4", "1e-8", "0.95", "1e22", "nan", "0.0", "True", "3"]


def test_a_part_that_is_missing_is_said() -> None:
    (only,) = configurations_of([part("config", {"a": 1}, 0, 2)], ATTEMPTS)
    assert only.incomplete == ("config",)


def test_a_section_told_again_replaces_the_first() -> None:
    (only,) = configurations_of([part("git", {"a": 1, "b": 2}), part("git", {"a": 3}, time_ns=NOW + 5)], ATTEMPTS)
    assert only.sections["git"] == {"a": "3"}


def test_what_was_told_before_a_first_step_belongs_to_the_start_that_follows() -> None:
    for time_ns, attempt in ((NOW + 50, [2]), (NOW + 500, [2]), (NOW + 3600 * 10**9, [])):
        found = configurations_of([part("config", {"lr": 1}, attempt=None, time_ns=time_ns)], ATTEMPTS)
        assert [one.attempt for one in found] == attempt


def test_only_the_newest_starts_are_kept() -> None:
    found = configurations_of([part("git", {"n": n}, attempt=n) for n in range(1, 30)], ())
    assert [one.attempt for one in found] == list(range(29, 29 - MAX_STARTS, -1))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["section", "values", "part", "parts"]),
            st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.none() | st.floats()),
        )
    )
)
def test_whatever_stands_in_the_events_nothing_raises(data: list[dict[str, Any]]) -> None:
    configurations_of([Event("metadata", NOW, attempt=1, data=one) for one in data], ATTEMPTS)


def test_rows_are_filtered_by_words_and_by_what_changed_and_secrets_are_dots() -> None:
    now, before = configurations_of(
        [
            part("config", {"optimizer.lr": 2, "token": "***", "data.seed": 1}, attempt=2),
            part("config", {"optimizer.lr": 1, "token": "***", "data.seed": 1}),
            part("git", {"commit": "abc"}, attempt=2),
        ],
        ATTEMPTS,
    )
    assert [(row.key, row.value, row.before) for row in rows_of(now, before, text="optim LR")] == [("optimizer.lr", "2", "1")]
    assert [row.key for row in rows_of(now, before, changed_only=True)] == ["optimizer.lr"]
    assert [row.value for row in rows_of(now, before, text="token")] == ["•••"]
    assert [row.section for row in rows_of(now, before, section="git")] == ["git"]


def test_the_parts_are_read_again_only_when_there_is_news(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    counting, reader = Counting(store), ConfigurationReader()
    first = reader.of(counting, dead_run.RUN, ATTEMPTS, NOW)
    assert [one.attempt for one in first] == [2, 1] and not any(one.incomplete for one in first)
    assert reader.of(counting, dead_run.RUN, ATTEMPTS, NOW + 10**9) == first
    assert counting.limits == [1, 120, 1]
    store.write([event_point(dead_run.RUN, part("job", {"id": "7"}, attempt=2))])
    assert reader.of(counting, dead_run.RUN, ATTEMPTS, NOW + 2 * 10**9)[0].sections["job"] == {"id": "7"}


def test_the_files_of_the_run_directory_know_best_which_start_told_what(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    files = MetadataFiles(str(tmp_path / "run"), "r")
    files.take(part("config", {"lr": 1e-4}, attempt=None))
    files.take(Event("attempt_start", NOW, attempt=2, data={}))
    assert files.flush() == ""
    reader, counting = ConfigurationReader(), Counting(store)
    (only,) = reader.of(counting, dead_run.RUN, ATTEMPTS, NOW, str(tmp_path / "run"))
    assert (only.attempt, only.sections, counting.limits) == (2, {"config": {"lr": "1e-4"}}, [])
    files.take(part("git", {"commit": "abc"}, attempt=2))
    files.flush()
    assert "git" in reader.of(counting, dead_run.RUN, ATTEMPTS, NOW, str(tmp_path / "run"))[0].sections


@pytest.mark.parametrize(
    "content", ["", "[]", "null", '{"schema": 1, "sections": [1]}', "[" * 100_000, '{"schema": 9, "sections": {"a": {}}}']
)
def test_a_file_that_is_none_leaves_it_to_the_store(store: SqliteStore, tmp_path: Path, content: str) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    (tmp_path / "run" / "metadata").mkdir()
    (tmp_path / "run" / "metadata" / "attempt-00002.json").write_text(content)
    (tmp_path / "run" / "metadata" / "attempt-00001.json").symlink_to("/dev/zero")
    found = ConfigurationReader().of(store, dead_run.RUN, ATTEMPTS, NOW, str(tmp_path / "run"))
    assert [one.attempt for one in found] == [2, 1]


def finding(data: dict[str, Any], attempt: int = 2) -> Finding:
    return Finding(
        "f", "resume_config_changed", "resume", Severity.WARNING, 801, 801, 801, attempt, NOW, None, None, "", False, data
    )


def test_changes_are_told_old_to_new_with_the_whole_values_behind_them(store: SqliteStore, tmp_path: Path) -> None:
    told = [dict(zip(("section", "key", "before", "after", "severity"), one, strict=True)) for one in dead_run.CHANGES]
    changes = changes_of(finding({"compared_with": 1, "changed": 12, "changes": told, "not_compared": ["software"]}))
    assert changes is not None
    assert title(changes) == "Attempt 2 changed 12 settings of attempt 1: 6 may change what is learnt"
    lines = lines_of(changes, 8)
    assert [line.label for line in lines[:3]] == ["git", "optimizer.lr", "training.micro_batch_size"]
    assert lines[0].value == "1a2b3c4 → 4d5e6f7" and dead_run.CHANGES[0][2] in lines[0].full
    assert lines[3].value.count("…") == 1 and dead_run.CHANGES[3][2] in lines[3].full
    assert lines[5].value == "not set → Ring" and lines[6].value == "not set → •••"
    assert [line.value for line in lines[8:]] == ["and 4 more", "software: not told by both starts"]
    assert arrow(changes.keys[1]) == "3e-4 → 4.5e-4" and full(changes.keys[1]) == ""


def test_a_start_without_a_finding_is_told_apart_from_one_that_told_nothing() -> None:
    assert changes_at([finding({}, attempt=3)], 2) is None
    assert "the same settings" in nothing_changed(2, [2, 1]) and "Not known" in nothing_changed(2, [2])


@given(
    st.dictionaries(
        st.sampled_from(["changes", "changed", "compared_with", "not_compared"]),
        st.none()
        | st.integers()
        | st.text()
        | st.lists(
            st.none()
            | st.dictionaries(st.sampled_from(["section", "key", "before", "after"]), st.none() | st.integers() | st.text())
        ),
    )
)
def test_whatever_stands_in_the_finding_is_told_without_an_error(data: dict[str, Any]) -> None:
    changes = changes_of(finding(data))
    assert changes is not None and title(changes)
    assert all(line.value is not None for line in lines_of(changes))
