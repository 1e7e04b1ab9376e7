"""The directory in which people ask the watchdog: what is written, what is refused, and what others may have planted there."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control import inbox
from trainvitals.control.requests import SOURCES, Answer, Watcher, WatchRequest, name_parts, new_id
from trainvitals.errors import ControlError, InputError

KINDS = ("annotation",)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=60)
requests = st.builds(
    WatchRequest, kind=names, by=names, source=st.sampled_from(SOURCES), data=st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    run=names, id=st.uuids().map(str), issued_at_ns=st.integers(0, 253_402_300_799_999_999_999),
)  # fmt: skip


@pytest.fixture
def watched(tmp_path):
    inbox.announce(tmp_path, Watcher("r", KINDS, "node1", 7))
    return tmp_path


def ask(run_dir, **more):
    given = {"kind": "annotation", "by": "ana", "source": "cli", "data": {"text": "new mix"}} | more
    return inbox.submit(run_dir, given.pop("run", "r"), **given)


@given(requests)
def test_a_request_that_is_written_and_read_is_the_same(request_):
    assert WatchRequest.from_json(request_.to_json(), request_.name) == request_
    answer = Answer(request_.name, "applied", "done", request_.issued_at_ns, request_)
    assert Answer.from_json(answer.to_json(), "answer") == answer
    if request_.issued_at_ns < 10**19:
        assert name_parts(request_.name) == (request_.issued_at_ns, request_.id)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_bytes_that_are_no_request_are_named_and_nothing_else_happens(data):
    for read in (WatchRequest.from_json, Answer.from_json, Watcher.from_json):
        with pytest.raises(InputError, match=r"^where"):
            read(data, "where")


@given(requests, st.sampled_from(["schema", "id", "kind", "by", "source", "data", "run", "issued_at"]), json_values)
def test_a_request_with_one_wrong_value_is_read_or_refused_in_words(request_, key, value):
    document = {**request_.to_document(), key: value}
    try:
        found = WatchRequest.from_json(json.dumps(document), "where")
    except InputError as error:
        assert str(error).startswith("where")
    else:
        assert found.by.isprintable() and found.kind.isprintable() and found.source in SOURCES


@pytest.mark.parametrize("data", ['{"a":' * 3000 + "1" + "}" * 3000, '{"a":"' + "x" * 40_000 + '"}', "[1]", '"text"'])
def test_data_that_is_deep_long_or_no_object_is_refused(data):
    text = WatchRequest("annotation", "ana", "cli", {}, "r", new_id(), 1).to_json().replace('"data": {}', f'"data": {data}')
    with pytest.raises(InputError):
        WatchRequest.from_json(text, "where")


def test_a_request_is_one_complete_file_for_owner_and_group_and_nothing_else_is_left(watched):
    made = ask(watched, clock=ManualClock(1_767_323_045_000_000_123))
    directory = watched / "control" / "requests"
    assert sorted(os.listdir(directory)) == sorted([made.name, "answered", "watcher.json"])
    assert made.name.startswith("1767323045000000123-")
    assert (directory / made.name).stat().st_mode & 0o777 == 0o660
    document = json.loads((directory / made.name).read_text())
    assert document == {
        "schema": 1, "id": made.id, "kind": "annotation", "run": "r", "issued_at": "2026-01-02T03:04:05.000000123Z", "by": "ana",
        "source": "cli", "data": {"text": "new mix"},
    }  # fmt: skip
    assert inbox.read(watched, made.name) == made


def test_without_a_watchdog_nothing_is_written_and_how_to_start_one_is_said(tmp_path):
    with pytest.raises(ControlError, match=r"Nobody watches this run.*python -m trainvitals watch --run r"):
        ask(tmp_path)
    assert inbox.listing(tmp_path).names == ()


def test_a_watchdog_that_was_heard_of_long_ago_is_nobody(watched):
    path = watched / "control" / "requests" / "watcher.json"
    old = path.stat().st_mtime - 100
    os.utime(path, (old, old))
    with pytest.raises(ControlError, match=r"Nobody watches.*process 7 on node1, was heard of 100 s ago"):
        ask(watched)
    inbox.announce(watched, Watcher("r", KINDS))
    assert ask(watched).run == "r"
    inbox.withdraw(watched)
    with pytest.raises(ControlError, match="Nobody watches"):
        ask(watched)


def test_what_the_watchdog_there_does_not_know_or_does_not_watch_is_refused_at_once(watched):
    with pytest.raises(ControlError, match="does not know requests of the kind 'silence'"):
        ask(watched, kind="silence")
    with pytest.raises(ControlError, match="watches the run 'r', not 'other'"):
        ask(watched, run="other")
    assert ask(watched, run="").run == ""


@pytest.mark.parametrize("more", [{"by": " "}, {"by": "a\x1b[2J"}, {"by": "x" * 201}, {"source": "breaker"}, {"data": {"x": float("nan")}},
                                  {"data": {"x": "y" * 40_000}}, {"data": {"x": {1, 2}}}, {"kind": ""}])  # fmt: skip
def test_what_cannot_be_a_request_is_never_written(watched, more):
    with pytest.raises(ControlError):
        ask(watched, **more)
    assert inbox.listing(watched).names == ()


def test_a_full_directory_takes_no_more(watched, monkeypatch):
    monkeypatch.setattr(inbox, "MAX_WAITING", 3)
    for _ in range(3):
        ask(watched)
    with pytest.raises(ControlError, match="3 requests wait"):
        ask(watched)


def test_a_directory_that_everyone_may_write_to_and_one_that_is_a_link_are_refused(watched, tmp_path_factory):
    directory = watched / "control" / "requests"
    directory.chmod(0o777)
    with pytest.raises(ControlError, match="chmod o-w"):
        ask(watched)
    with pytest.raises(ControlError):
        inbox.listing(watched)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    directory.rename(elsewhere / "requests")
    directory.symlink_to(elsewhere / "requests")
    with pytest.raises(ControlError, match="symbolic link"):
        ask(watched)
    with pytest.raises(ControlError):
        inbox.listing(watched)


def test_links_pipes_directories_and_huge_files_under_a_requests_name_are_never_read(watched):
    directory = watched / "control" / "requests"
    secret = watched / "secret"
    secret.write_text(WatchRequest("annotation", "ana", "cli", {}, "r", new_id(), 1).to_json())
    planted = [f"{number}-{new_id()}.json" for number in range(1, 5)]
    (directory / planted[0]).symlink_to(secret)
    os.mkfifo(directory / planted[1])
    (directory / planted[2]).mkdir()
    (directory / planted[3]).write_text("x" * 100_000)
    assert inbox.listing(watched).names == tuple(planted)
    for name in planted:
        with pytest.raises(InputError):
            inbox.read(watched, name)
        inbox.settle(watched, Answer(name, "refused", "no request", 5))
    assert inbox.listing(watched).names == () and secret.exists()


def test_a_name_that_is_not_that_of_its_request_is_refused(watched):
    made = ask(watched)
    directory = watched / "control" / "requests"
    other = f"5-{made.id}.json"
    (directory / made.name).rename(directory / other)
    with pytest.raises(InputError, match="not that of the request in it"):
        inbox.read(watched, other)
    assert inbox.read(watched, made.name) is None


def test_foreign_files_are_counted_and_hidden_ones_are_somebodys_half_written_work(watched):
    directory = watched / "control" / "requests"
    for name in ("notes.txt", "5.json", "5-not-a-uuid.json", "..json", ".half.tmp", "5-" + new_id() + ".JSON"):
        (directory / name).write_text("x")
    assert inbox.listing(watched) == inbox.Listing((), 4, False)


def test_no_more_than_a_bounded_number_of_names_is_looked_at(watched, monkeypatch):
    monkeypatch.setattr(inbox, "MAX_NAMES", 5)
    for _ in range(9):
        ask(watched)
    found = inbox.listing(watched)
    assert found.is_cut and len(found.names) <= 5


def test_requests_come_in_the_order_in_which_they_were_made(watched):
    made = [ask(watched, clock=ManualClock(time_ns)) for time_ns in (10**18, 9 * 10**17, 10**18 + 1, 10**9)]
    assert list(inbox.listing(watched).names) == [made[3].name, made[1].name, made[0].name, made[2].name]


def test_an_answer_takes_the_request_away_and_may_be_written_again(watched):
    made = ask(watched)
    assert inbox.answer_to(watched, made) is None
    answer = Answer(made.name, "applied", "done", 10**18, made)
    for _ in range(2):
        inbox.settle(watched, answer)
        assert inbox.listing(watched).names == ()
        assert inbox.answer_to(watched, made) == answer


def test_only_the_newest_answers_are_kept_and_unreadable_ones_are_left_out(watched, monkeypatch):
    monkeypatch.setattr(inbox, "MAX_ANSWERED", 2)
    made = [ask(watched, clock=ManualClock(time_ns)) for time_ns in (10**9, 2 * 10**9, 3 * 10**9)]
    for one in made:
        inbox.settle(watched, Answer(one.name, "applied", "done", 10**18, one))
    inbox.prune(watched)
    assert [answer.request for answer in inbox.answered(watched)] == made[1:]
    (watched / "control" / "requests" / "answered" / made[1].name).write_text("{")
    assert [answer.request for answer in inbox.answered(watched)] == made[2:]


def test_a_directory_with_something_in_it_is_moved_out_of_the_way_of_a_request_and_of_an_answer(watched):
    directory = watched / "control" / "requests"
    name = f"1-{new_id()}.json"
    for place in (directory / name, directory / inbox.ANSWERED_DIR / name):
        (place / "mine").mkdir(parents=True)
    inbox.settle(watched, Answer(name, "refused", "no request", 5))
    assert inbox.listing(watched) == inbox.Listing() and [one.name for one in inbox.answered(watched)] == [name]
    assert sorted(path.name for path in directory.rglob("mine")) == ["mine", "mine"], "what is not ours is not deleted"
