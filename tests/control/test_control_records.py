import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.control.document import MAX_COUNTER, from_rfc3339, to_rfc3339
from trainvitals.control.records import DESIRED, STATES, ControlRequest, ControlStatus
from trainvitals.errors import InputError

counters = st.integers(0, MAX_COUNTER)
times = st.integers(0, 253_402_300_799_999_999_999)
texts = st.text(max_size=100)

requests = st.builds(
    ControlRequest,
    run=texts, seq=counters, desired=st.sampled_from(DESIRED), checkpoint_request=counters, by=texts, source=texts,
    reason=texts, action=texts, request_id=texts, issued_at_ns=times, expires_at_ns=st.none() | times,
    valid_from_step=st.none() | counters,
)  # fmt: skip
statuses = st.builds(
    ControlStatus,
    run=texts, attempt=counters, state=st.sampled_from(STATES), desired=st.sampled_from(DESIRED), ack_seq=counters,
    ack_request_id=texts, applied_seq=counters, refused_seq=counters, refusal=texts, checkpoint_done=counters,
    applied_at_step=st.none() | counters, checkpoint_step=st.none() | counters, checkpoint_verified=st.none() | st.booleans(),
    error=st.none() | st.text(min_size=1, max_size=100), heartbeat_ns=times, heartbeat_seq=counters,
    pause_started_ns=st.none() | times, since_ns=st.none() | times, step=st.none() | counters,
    step_age_s=st.none() | st.floats(0, 1e9), by=texts, source=texts, reason=texts, pid=counters, host=texts,
    bad_reads=counters, ended=st.booleans(), hook_version=texts,
)  # fmt: skip


@given(requests)
def test_a_request_survives_its_json(request):
    assert ControlRequest.from_json(request.to_json()) == request


@given(statuses)
def test_a_status_survives_its_json(status):
    assert ControlStatus.from_json(status.to_json()) == status


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_with_a_sentence_and_nothing_else(data):
    for record in (ControlRequest, ControlStatus):
        try:
            record.from_json(data, "here.json")
        except InputError as error:
            assert "here.json" in str(error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted(json.loads(ControlStatus().to_json()).keys() | json.loads(ControlRequest().to_json()).keys())),
    json_values,
)
def test_a_wrong_value_under_any_key_is_named_or_harmless(key, value):
    for record in (ControlRequest, ControlStatus):
        document = json.loads(record().to_json()) | {key: value}
        try:
            record.from_json(json.dumps(document), "here.json")
        except InputError as error:
            assert key in str(error) and len(str(error)) < 400


@given(times)
def test_a_time_survives_its_text(time_ns):
    assert from_rfc3339(to_rfc3339(time_ns)) == time_ns


@pytest.mark.parametrize("text", ["", "2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05+01:00"])
def test_a_time_without_utc_is_refused(text):
    with pytest.raises(ValueError):
        from_rfc3339(text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": 2}, "schema 2"),
        ({"schema": True}, "schema True"),
        ({"seq": -1}, "seq"),
        ({"seq": True}, "seq"),
        ({"seq": 10**400}, "seq"),
        ({"desired": "gone"}, "running, paused, stopped"),
        ({"issued_at": "yesterday"}, "issued_at"),
        ({"reason": "x" * 2001}, "reason"),
    ],
)
def test_what_is_wrong_is_named(change, named):
    document = json.loads(ControlRequest().to_json()) | change
    with pytest.raises(InputError, match=named):
        ControlRequest.from_json(json.dumps(document))


def test_keys_of_a_newer_writer_are_ignored():
    document = json.loads(ControlRequest(seq=3).to_json()) | {"approved_by": ["a", "b"]}
    assert ControlRequest.from_json(json.dumps(document)).seq == 3
