"""A damaged checkpoint's finding names no other as the newest that may hold the same numbers."""

from __future__ import annotations

from checkpoint_runs import at, findings, live_run, pointer, report

from trainvitals.records import Finding

NAN = "tensor w in model.pt holds NaN (64 of 64 sampled values)"


def message(*last, rule: str = "checkpoint_corrupt") -> str:
    found: dict[str, Finding] = {one.id: one for one in findings([*live_run(500, 100, keep=5), *last, at(900)])}
    return next(one.message for one in found.values() if one.rule == rule and one.is_open)


def test_one_saved_later_is_not_called_the_newest_until_it_was_loaded() -> None:
    bad = report(300, "corrupt", 600, written=300, reasons=["model.pt: a note", NAN])
    assert "step 500" not in message(bad)
    assert message(bad).endswith("; the newest before damaged numbers is step 200, and nothing has loaded it yet")
    assert message(bad, report(200, second=640, written=203, level="load")).endswith("; newest verified: step 200")
    assert message(bad, report(500, second=650, written=500, level="load")).endswith("; newest verified: step 500")


def test_other_damage_says_nothing_of_what_was_saved_later() -> None:
    assert message(report(300, "corrupt", 600, written=300, reasons=["cut short"])).endswith("; newest verified: step 500")


def test_when_all_others_are_later_none_is_named() -> None:
    assert message(report(100, "corrupt", 600, written=100, reasons=[NAN])).endswith("and nothing has loaded them")


def test_a_pointer_is_not_called_behind_what_may_be_damaged() -> None:
    bad = report(300, "corrupt", 600, written=300, reasons=[NAN])
    run = [*live_run(500, 100, keep=5), bad, pointer("/c/checkpoint-200", 200, 650), at(5000)]
    assert not [one for one in findings(run) if one.rule == "resume_behind"]
