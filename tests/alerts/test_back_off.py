"""When a message is tried again."""

from __future__ import annotations

import pytest

from trainvitals.alerts.back_off import SCHEDULE_S, TRIES, retry_after_s, wait_s


def test_the_waits_follow_the_schedule_and_end():
    assert [wait_s(tries, random_share=1.0) for tries in range(TRIES)] == list(SCHEDULE_S)
    assert wait_s(TRIES) is None


def test_jitter_takes_at_most_half_so_that_the_tries_outlast_an_hour():
    shortest = sum(wait_s(tries, random_share=0.0) for tries in range(TRIES))
    assert shortest > 3600
    assert len({wait_s(3) for _ in range(20)}) > 1


def test_what_the_receiver_asks_for_is_the_least_wait_up_to_two_hours():
    assert wait_s(1, 60.0) == 60.0
    assert wait_s(1, 10.0**9) == 7_200.0
    assert wait_s(5, 1.0, random_share=1.0) == 1_800.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120.0), (" 0 ", 0.0), ("soon", None), ("", None), ("-5", None), ("1e9", None), ("٣", None), ("Wed, 99 Oct 2026 07:28:00 GMT", None),
     ("9" * 400, None), ("Thu, 01 Jan 1970 00:01:00 GMT", 60.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(header, seconds):
    assert retry_after_s(header, 0) == seconds


def test_a_date_that_has_passed_asks_for_no_wait():
    assert retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 10**18) == 0.0
