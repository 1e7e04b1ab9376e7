"""Faults of a small real training: the right class, the right checkpoint, the right decision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.__main__ import main
from trainvitals.control import read_request, submit, supervised


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, more=["--steps", "60"])


def resumed(place: Place) -> list[int | None]:
    return [start.resume_step for start in place.history.starts]


@pytest.mark.parametrize(
    ("fault", "kind", "step"),
    [
        ("oom@25", "out_of_memory", 20),
        ("nccl@35", "nccl_timeout", 30),
        ("killed@15", "killed", 10),
        ("hostile@25", "unknown", 20),
    ],
)
def test_a_death_is_told_by_its_class_and_the_run_goes_on_from_the_newest_checkpoint(
    place: Place, fault: str, kind: str, step: int
) -> None:
    place.more += ["--faults", fault]
    assert place.supervisor().run() == 0
    assert place.kinds == [kind, "finished"]
    assert resumed(place) == [None, step]
    assert place.last_step() == 60


def test_after_a_loss_that_was_no_number_the_run_goes_back_before_the_onset_by_its_margin(place: Place) -> None:
    place.more += ["--faults", "nan@42"]
    assert place.supervisor().run() == 0
    assert place.kinds == ["numerics", "finished"]
    assert resumed(place) == [None, 30], "checkpoint 40 lies two steps before the onset: damage begins unseen"


def test_what_was_saved_again_after_going_back_is_used_like_any_other(place: Place) -> None:
    place.more += ["--faults", "nan@42,killed@55"]
    assert place.supervisor().run() == 0
    assert resumed(place) == [None, 30, 50]


def test_a_damaged_newest_checkpoint_is_passed_over_and_that_is_said(place: Place) -> None:
    place.more += ["--faults", "corrupt@45"]
    assert place.supervisor().run() == 0
    assert resumed(place) == [None, 30]
    (started,) = [event for event in place.events() if event["data"]["state"] == "started" and event["data"]["attempt"] == 2]
    assert "truncated" in started["data"]["passed_over"][str(place.checkpoints / "checkpoint-40")]
    assert "(step 40) is not safe: it is damaged" in started["text"]


def test_a_training_that_hangs_is_ended_and_started_again(place: Place) -> None:
    place.more += ["--faults", "hang@33"]
    assert place.supervisor().run() == 0
    assert place.kinds == ["hang", "finished"]
    assert resumed(place) == [None, 30]


def test_a_wrong_configuration_is_not_tried_again(place: Place) -> None:
    place.more += ["--faults", "config"]
    assert place.supervisor().run() == 1
    assert place.kinds == ["config_error"]
    assert place.states()[-1] == "gave_up"


def test_a_parked_training_ends_the_supervisor_with_its_code(place: Place) -> None:
    place.more += ["--faults", "park@25"]
    assert place.supervisor().run() == 75


def test_a_full_disk_holds_until_a_person_resumes_the_run(place: Place) -> None:
    place.more += ["--faults", "disk@25"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "the hold")
        assert place.kinds == ["disk_full"]
        request = read_request(place.run_dir)
        assert (request.desired, request.by) == ("stopped", "supervisor")
        submit(place.run_dir, "small", action="resume", by="alice", source="cli", reason="there is room again")
        wait_until(lambda: place.codes == [0], "the end")
    assert place.kinds == ["disk_full", "finished"]
    assert resumed(place) == [None, 20]


def test_the_same_death_at_one_place_again_and_again_holds(place: Place) -> None:
    place.more += ["--faults", "killed@15,killed@16,killed@17,killed@18"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "the hold")
    assert place.kinds == ["killed", "killed", "killed"]
    assert place.history.held_rule == "restart_loop"


def test_a_trainer_that_begins_behind_what_it_was_told_is_ended_and_held(place: Place) -> None:
    place.more += ["--faults", "killed@25,behind", "--step-s", "0.05"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "the hold")
    assert place.kinds == ["killed", "resumed_behind"]
    assert place.last_step() < 60


def test_no_checkpoint_that_can_be_used_holds_instead_of_beginning_at_step_0(place: Place) -> None:
    place.more += ["--faults", "corrupt@10"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "the hold")
    assert len(place.kinds) == 1
    assert "no checkpoint can be used" in place.history.held


def test_a_run_that_never_had_a_checkpoint_begins_again_at_the_beginning(place: Place) -> None:
    place.more += ["--faults", "killed@5"]
    assert place.supervisor().run() == 0
    assert resumed(place) == [None, None]


def test_a_person_asks_to_go_back_and_the_supervisor_does_it(place: Place) -> None:
    place.more += ["--steps", "100000", "--step-s", "0.01"]
    with place.running():
        wait_until(lambda: place.last_step() > 35, "some steps")
        submit(place.run_dir, "small", action="pause", by="breaker", source="breaker", reason="loss")
        to = str(place.checkpoints / "checkpoint-10")
        request = supervised.ask_rollback(
            place.run_dir, "small", to=to, by="alice", reason="loss spike", source="cli", skip_samples="100:200"
        )
        wait_until(lambda: len(place.history.starts) == 2 and place.history.starts[1].first_step is not None, "the second start")
        answer = supervised.answer_to(place.run_dir, request)
    assert answer is not None and answer.outcome == "applied"
    second = place.history.starts[1]
    assert (second.resume_from, second.resume_step, second.first_step, second.skip_samples) == (to, 10, 11, "100:200")
    assert read_request(place.run_dir).desired == "running", "a pause that stands would hold the new start at once"


@pytest.mark.parametrize("to", ["/etc", "checkpoint-999", "../run"])
def test_a_way_back_to_what_is_no_checkpoint_of_the_run_is_refused_and_the_training_goes_on(place: Place, to: str) -> None:
    place.more += ["--steps", "100000", "--step-s", "0.01"]
    with place.running():
        wait_until(lambda: place.last_step() > 15, "some steps")
        request = supervised.ask_rollback(
            place.run_dir, "small", to=str(place.checkpoints / to), by="a", reason="b", source="cli"
        )
        wait_until(lambda: supervised.answer_to(place.run_dir, request) is not None, "the answer")
        answer = supervised.answer_to(place.run_dir, request)
        assert answer is not None and answer.outcome == "refused"
        assert len(place.history.starts) == 1 and not place.history.starts[0].is_over


def test_a_restart_tells_its_phases_and_when_it_has_recovered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainvitals.supervisor.healing.LOOK_EVERY_S", 0.05)
    place.more += ["--faults", "killed@55", "--steps", "100000", "--step-s", "0.005"]
    with place.running():
        wait_until(lambda: "recovered" in place.states(), "the recovery")
    phases = [
        event["data"]["phase"] for event in place.events() if event["data"]["state"] == "phase" and event["data"]["attempt"] == 2
    ]
    assert phases[-2:] == ["first_step", "caught_up"]
    assert place.history.starts[1].recovered_ns is not None


def test_what_the_supervisor_did_is_in_the_audit(place: Place) -> None:
    place.more += ["--faults", "killed@15"]
    assert place.supervisor().run() == 0
    lines = [json.loads(line) for line in (place.run_dir / "control" / "audit.jsonl").read_text().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["trainer_started", "trainer_ended", "trainer_started", "trainer_ended"]


def test_control_rollback_asks_the_supervisor_and_says_its_answer(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.more += ["--steps", "100000", "--step-s", "0.01"]
    who = ["--by", "alice", "--reason", "loss spike", "--wait", "20"]
    with place.running():
        wait_until(lambda: place.last_step() > 25, "some steps")
        refused = main(["control", "rollback", str(place.run_dir), "--to", "/etc", *who])
        taken = main(
            [
                "control",
                "rollback",
                str(place.run_dir),
                "--to",
                str(place.checkpoints / "checkpoint-10"),
                "--skip-samples",
                "3:9",
                *who,
            ]
        )
        wait_until(lambda: len(place.history.starts) == 2, "the second start")
    said = [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert (refused, taken, said) == (1, 0, ["refused", "applied"])
    assert place.history.starts[1].skip_samples == "3:9"
    lines = [json.loads(line) for line in (place.run_dir / "control" / "audit.jsonl").read_text().splitlines()]
    assert {"request", "rollback_taken"} <= {line["kind"] for line in lines if line["by"] == "alice"}
