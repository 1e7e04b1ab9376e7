"""What a signed request says, who can have made it, and when it counts."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.control import signed
from trainvitals.control.mirror import MAX_BYTES as MIRROR_BYTES
from trainvitals.control.mirror import Mirror
from trainvitals.control.once import standing
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import history, read_request, submit
from trainvitals.control.request_keys import KEY_VARIABLE, read_keys
from trainvitals.control.requests import Watcher
from trainvitals.control.signed import SignedRequest, is_signed, new_request, objection, read, sign
from trainvitals.errors import ControlError, InputError

NOW_NS = 1_767_323_045 * 10**9
KEY, OTHER = b"k" * 32, b"o" * 40
KINDS = ("pause", "annotation")


def request(**more) -> SignedRequest:
    given = {
        "kind": "pause",
        "run": "r",
        "by": "ana",
        "source": "ui",
        "data": {"reason": "spike"},
        "now_ns": NOW_NS,
        "valid_s": 600.0,
    }
    return new_request(**(given | more))


def test_the_signature_is_hmac_sha256_over_the_purpose_and_the_canonical_bytes():
    text = request(expected_seq=4).to_text()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    mac = hmac.new(KEY, b"trainvitals request 1\n" + text.encode(), hashlib.sha256).hexdigest()
    assert sign(text, KEY) == f"v1={mac}" and is_signed(text, f"v1={mac}", [OTHER, KEY])


def test_a_request_comes_back_as_it_was_and_two_have_nothing_in_common():
    one, two = request(expected_seq=4, is_proven=True), request()
    found, reason, _ = read(one.to_text(), sign(one.to_text(), KEY), [KEY])
    assert (found, reason) == (one, "")
    assert one.id != two.id and one.nonce != two.nonce and len(one.nonce) == 32


@given(at=st.integers(0, 10_000), put=st.integers(0, 255))
def test_no_byte_can_be_changed(at, put):
    text = request().to_text()
    at %= len(text)
    changed = text[:at] + chr(put) + text[at + 1 :]
    found, reason, _ = read(changed, sign(text, KEY), [KEY])
    assert (found is None and reason == signed.WRONG_SIGNATURE) or changed == text


@given(text=st.text(max_size=300), signature=st.text(max_size=100))
def test_hostile_text_is_refused_with_a_reason_and_raises_nothing(text, signature):
    found, reason, sentence = read(text, signature, [KEY])
    assert found is None and sentence and reason == (signed.WRONG_SIGNATURE if signature else signed.UNSIGNED)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_what_is_signed_and_is_no_request_is_unreadable(value):
    text = json.dumps(value)
    assert read(text, sign(text, KEY), [KEY])[1] == signed.UNREADABLE


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "{" + '"a":' * 20_000, "1" * 50_000, '{"schema":1,"id":' + "9" * 5_000 + "}", "é" * 70_000]
)
def test_what_would_cost_much_to_read_is_unreadable(text):
    assert read(text, sign(text, KEY), [KEY])[1] == signed.UNREADABLE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": "other"}, signed.OTHER_RUN),
        ({"kind": "format_disk"}, signed.UNKNOWN_KIND),
        ({"now_ns": NOW_NS - 600 * 10**9}, signed.STALE),
        ({"now_ns": NOW_NS + 301 * 10**9}, signed.FROM_THE_FUTURE),
    ],
)
def test_a_signature_alone_is_not_enough(change, reason):
    assert objection(request(**change), "r", KINDS, NOW_NS)[0] == reason


def test_it_counts_until_its_end_and_with_a_clock_that_is_a_little_ahead():
    for late_s in (-300, 0, 599):
        assert objection(request(now_ns=NOW_NS - late_s * 10**9), "r", KINDS, NOW_NS) == ("", "")


def test_no_request_counts_for_longer_than_an_hour_whatever_it_says():
    long = SignedRequest("pause", "r", "ana", "ui", {}, "i", "n", NOW_NS, NOW_NS + 3601 * 10**9)
    assert objection(long, "r", KINDS, NOW_NS)[0] == signed.STALE
    assert request(valid_s=1e6).expires_at_ns == NOW_NS + 3600 * 10**9


def test_what_a_person_left_out_or_is_too_long_is_not_signed():
    with pytest.raises(ControlError, match="by is missing"):
        request(by=" ")
    with pytest.raises(ControlError, match="too much data"):
        request(data={"reason": "x" * 40_000})


def test_keys_come_from_files_and_the_environment_and_the_first_one_signs(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(KEY + b"\n")
    new.write_bytes(OTHER)
    for path in (old, new):
        path.chmod(0o600)
    assert read_keys([new, old], {}) == (OTHER, KEY)
    assert read_keys([old], {KEY_VARIABLE: "e" * 32}) == (b"e" * 32, KEY)


def test_a_key_that_is_missing_short_or_open_to_everyone_is_a_sentence_without_the_secret(tmp_path):
    path = tmp_path / "key"
    cases = [("no key", None), ("cannot be read", tmp_path / "nowhere"), ("not a regular file", tmp_path)]
    for words, missing in cases:
        with pytest.raises(InputError, match=words):
            read_keys([missing] if missing else [], {})
    path.write_bytes(b"short-secret")
    path.chmod(0o600)
    with pytest.raises(InputError, match="12 bytes; it needs at least 32") as told:
        read_keys([path], {})
    assert "short-secret" not in str(told.value)
    path.write_bytes(KEY)
    path.chmod(0o604)
    with pytest.raises(InputError, match="chmod o-rwx"):
        read_keys([path], {})


def test_a_mirror_comes_back_as_it_was(tmp_path):
    status = ControlStatus(run="r", state="paused", ack_seq=3, step=7, heartbeat_ns=NOW_NS, understands=("save",))
    whole = Mirror(
        ControlRequest(run="r", seq=3, desired="paused", by="ana"), status, 0.5, Watcher("r", KINDS, "node1", 7, "armed"),
        Watcher("r", ("rollback",), "node2", 8), "", {signed.STALE: 2}, (ControlRequest(run="r", seq=2),),
    )  # fmt: skip
    assert Mirror.from_text(whole.to_text()) == whole
    assert Mirror.from_text(Mirror().to_text()) == Mirror()


def test_a_mirror_is_never_longer_than_the_store_keeps():
    long = ControlRequest(run="r", seq=3, reason="損" * 2_000)
    status = ControlStatus(run="r", refusal="拒" * 9_000, error="e" * 20_000, reason="r" * 20_000)
    told = Mirror(long, status, history=(long,) * 10).to_text()
    assert len(told) <= MIRROR_BYTES
    assert Mirror.from_text(told).request == long and Mirror.from_text(told).status is not None


@given(st.text(max_size=200))
def test_a_hostile_mirror_is_an_input_error(text):
    with pytest.raises(InputError):
        Mirror.from_text(text)


def test_a_request_that_stands_is_found_by_its_id_also_after_others(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    assert standing(run_dir, "mine") is None
    mine = submit(run_dir, "r", action="pause", by="ana", source="ui", reason="x", request_id="mine")
    submit(run_dir, "r", action="resume", by="ben", source="ui", reason="y")
    assert standing(run_dir, "mine") == mine and standing(run_dir, "other") is None


def test_of_a_writer_killed_between_its_two_files_the_second_is_written_and_nothing_is_asked_twice(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    first = submit(run_dir, "r", action="checkpoint", by="ben", source="ui", reason="y")
    mine = submit(run_dir, "r", action="pause", by="ana", source="ui", reason="x", request_id="mine")
    (run_dir / "control" / "control.json").write_text(first.to_json())
    assert standing(run_dir, "mine") == mine == read_request(run_dir)
    assert [one.seq for one in history(run_dir)] == [1, 2]


def test_what_a_killed_writer_left_under_a_temporary_name_was_never_asked(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    mine = submit(run_dir, "r", action="pause", by="ana", source="ui", reason="x", request_id="mine")
    (run_dir / "control" / "control.json").unlink()
    (run_dir / "control" / "history" / "1.json").unlink()
    (run_dir / "control" / "history" / ".1.json.tmp.node.7.0").write_text(mine.to_json())
    assert standing(run_dir, "mine") is None
