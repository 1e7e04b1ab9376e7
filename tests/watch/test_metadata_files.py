"""`metadata/attempt-00003.json`: whole, right after every kill, bounded, and never in the way of the watchdog."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_watchdog import Bench

from trainvitals.records import Event
from trainvitals.watch import metadata
from trainvitals.watch.metadata import MetadataFiles, read_file


def told(section, values, attempt=None, part=0, parts=1):
    return Event("metadata", 1, attempt=attempt, data={"section": section, "values": values, "part": part, "parts": parts})


def start(attempt, **data):
    return Event("attempt_start", 1, attempt=attempt, data=data)


def at(tmp_path, attempt):
    return read_file(tmp_path / "metadata" / f"attempt-{attempt:05d}.json")


def test_sections_before_and_after_the_first_step_fall_into_the_attempts_file(tmp_path):
    files = MetadataFiles(str(tmp_path), "r")
    files.take(told("config", {"lr": 1}))
    assert files.flush() == "" and (tmp_path / "metadata" / "next.json").exists()
    files.take(start(3, host="n1", job="7", world_size=8))
    files.take(told("git", {"commit": "a"}, attempt=3))
    assert files.flush() == ""
    found = at(tmp_path, 3)
    assert found["sections"] == {"config": {"lr": 1}, "git": {"commit": "a"}}
    assert found["start"] == {"host": "n1", "job": "7", "world_size": 8} and found["attempt"] == 3
    assert not (tmp_path / "metadata" / "next.json").exists()


def test_a_section_told_again_replaces_the_first(tmp_path):
    files = MetadataFiles(str(tmp_path), "r")
    for part in range(3):
        files.take(told("config", {f"k{part}": 1}, 1, part, 3))
    files.take(told("config", {"lr": 2}, 1))
    files.flush()
    assert at(tmp_path, 1)["sections"] == {"config": {"lr": 2}}


STREAM = [
    told("config", {"a": 1, "b": 2}, None, 0, 3), told("config", {"c": 3}, None, 1, 3), told("config", {"d": 4}, None, 2, 3),
    told("layout", {"tp": 8}), start(1, host="x"), told("git", {"commit": "a"}, 1), told("packages", {"torch": "1"}, 1, 0, 2),
    told("packages", {"numpy": "2"}, 1, 1, 2), told("config", {"a": 9}, None), start(2, host="y"),
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, len(STREAM)), st.integers(0, 4)), max_size=4))
@settings(max_examples=60, deadline=None)
def test_whenever_it_is_killed_and_reads_again_the_files_are_the_same(tmp_path_factory, kills):
    """A kill after a flush whose turn was not committed: up to four events are taken again by a new process."""
    tmp_path = tmp_path_factory.mktemp("run")
    files, position = MetadataFiles(str(tmp_path), "r"), 0
    for cut, again in sorted(kills):
        while position < cut:
            files.take(STREAM[position])
            position += 1
        files.flush()
        files, position = MetadataFiles(str(tmp_path), "r"), max(0, position - again)
    for event in STREAM[position:]:
        files.take(event)
    files.flush()
    assert at(tmp_path, 1)["sections"] == {
        "config": {"a": 1, "b": 2, "c": 3, "d": 4}, "layout": {"tp": 8}, "git": {"commit": "a"}, "packages": {"torch": "1", "numpy": "2"},
    }  # fmt: skip
    assert at(tmp_path, 2)["sections"] == {"config": {"a": 9}} and at(tmp_path, 2)["start"] == {"host": "y"}


def test_what_is_no_metadata_is_counted(tmp_path):
    files = MetadataFiles(str(tmp_path), "r")
    for data in (
        {},
        {"section": "a", "values": []},
        {"section": "a", "values": {}, "part": 3, "parts": 2},
        {"section": 5, "values": {}},
    ):
        files.take(Event("metadata", 1, attempt=1, data=data))
    assert files.left_out == 4 and files.flush() == ""


def test_sections_and_files_have_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(metadata, "MAX_FILES", 3)
    monkeypatch.setattr(metadata, "MAX_FILE_BYTES", 20_000)
    files = MetadataFiles(str(tmp_path), "r")
    for attempt in range(1, 6):
        files.take(start(attempt))
        files.take(told("ranks", {str(n): "x" * 100 for n in range(300)}, attempt))
        files.take(told("config", {"lr": attempt}, attempt))
        files.flush()
    there = sorted(path.name for path in (tmp_path / "metadata").iterdir())
    assert there == ["attempt-00003.json", "attempt-00004.json", "attempt-00005.json"]
    assert at(tmp_path, 5)["sections"] == {"config": {"lr": 5}} and files.left_out == 5
    for n in range(100):
        files.take(told(f"s{n}", {"a": 1}, 5))
    assert files.left_out == 5 + 100 - (metadata.MAX_SECTIONS - 1)


def test_a_place_that_cannot_be_written_is_said_and_tried_again(tmp_path):
    place = tmp_path / "metadata"
    place.write_text("no directory")
    files = MetadataFiles(str(tmp_path), "r")
    files.take(told("config", {"lr": 1}, 1))
    assert "attempt-00001.json" in files.flush()
    for attempt in range(2, 30):
        files.take(start(attempt, host="n"))
    assert files.left_out > 0
    place.unlink()
    assert files.flush() == "" and at(tmp_path, 29)["attempt"] == 29


def test_no_link_is_written_through(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "metadata").symlink_to(elsewhere)
    files = MetadataFiles(str(tmp_path), "r")
    files.take(told("config", {"lr": 1}, 1))
    assert "symbolic link" in files.flush() and list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"schema": 1, "sections": {"a": 5}}', '{"schema":1,"sections":{},"incomplete":{"a":{}}}']
)
def test_a_damaged_file_is_written_anew(tmp_path, content):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "attempt-00001.json").write_text(content)
    files = MetadataFiles(str(tmp_path), "r")
    files.take(told("config", {"lr": 1}, 1))
    assert files.flush() == "" and at(tmp_path, 1)["sections"] == {"config": {"lr": 1}}


def test_the_watchdog_keeps_the_file_stores_the_events_and_finds_the_change(tmp_path):
    bench = Bench(tmp_path)
    for number, lr in ((1, 3e-4), (2, 1e-4)):
        bench.header(pid=number)
        bench.append({"type": "event", "kind": "metadata", "time_ns": bench.clock.time_ns(), "step": None, "text": "",
                      "data": {"section": "config", "values": {"lr": lr}, "part": 0, "parts": 1}})  # fmt: skip
        bench.train(number * 20, 10)
        bench.watchdog.turn()
        bench.start()
    bench.watchdog.turn()
    assert at(bench.dir, 2)["sections"] == {"config": {"lr": 1e-4}} and at(bench.dir, 2)["start"]["host"] == "node1"
    assert [event.data["values"] for event in bench.events("metadata")] == [{"lr": 3e-4}, {"lr": 1e-4}]
    (found,) = [event for event in bench.events("finding") if event.data["rule"] == "resume_config_changed"]
    assert found.attempt == 2 and "lr 3e-4 → 1e-4" in found.text
    assert json.loads((bench.dir / "metadata" / "attempt-00001.json").read_text())["sections"]["config"] == {"lr": 3e-4}
    bench.store.close()


def test_the_largest_part_fits_every_store(tmp_path):
    from trainvitals.hook.metadata import parts
    from trainvitals.store.encode import check_point, event_point
    from trainvitals.store.line_protocol import encode_point

    values = {f'key"{n}': 'a"\\\n\u00e9' * 40 for n in range(3_000)}
    for number, part in enumerate(parts(values)):
        event = Event("metadata", 1, id=f"m/{number}", data={"section": "config", "values": part, "part": number, "parts": 9})
        point = event_point("r", event)
        check_point(point)
        assert len(encode_point(point)) < 64_000 and "_cut" not in str(point.fields["json"])


def test_all_starts_of_a_history_that_is_read_in_one_go_get_their_file(tmp_path):
    files = MetadataFiles(str(tmp_path), "r")
    for attempt in range(1, 31):
        files.take(told("config", {"lr": attempt}))
        files.take(start(attempt, host="n1"))
        files.take(told("git", {"commit": str(attempt)}, attempt))
    assert files.flush() == "" and files.left_out == 0
    for attempt in range(1, 31):
        assert at(tmp_path, attempt)["sections"] == {"config": {"lr": attempt}, "git": {"commit": str(attempt)}}


def test_the_oldest_by_number_go_first_also_when_a_number_has_one_digit_more(tmp_path, monkeypatch):
    monkeypatch.setattr(metadata, "MAX_FILES", 2)
    files = MetadataFiles(str(tmp_path), "r")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "attempt-notes.txt").write_text("of a person")
    for attempt in (99_998, 99_999, 100_000, 100_001):
        files.take(start(attempt, host="n1"))
        files.flush()
    there = sorted(path.name for path in (tmp_path / "metadata").iterdir())
    assert there == ["attempt-100000.json", "attempt-100001.json", "attempt-notes.txt"]
