"""What ends a hold and what does not, whatever the clocks of this host and of the others say; and whose processes are whose."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.supervisor.tools import QUICK, Place, wait_until
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.control import ControlRequest, ControlStatus, files, read_request, submit, supervised
from trainvitals.control.audited import ask
from trainvitals.control.requests import Watcher
from trainvitals.errors import InputError
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import history, holds, process
from trainvitals.supervisor.decide import Begin, Done, Wait, decide
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.process import Process
from trainvitals.supervisor.progress import Progress
from trainvitals.supervisor.road import Road
from trainvitals.supervisor.running import NOBODY, Running, find_again, log_of

S = 10**9
HOUR_NS = 3_600 * S


class Ahead(SystemClock):
    """The clock of a host that is an hour ahead."""

    def time_ns(self) -> int:
        return super().time_ns() + HOUR_NS


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, more=["--steps", "60"])


@pytest.mark.parametrize("then", ["pause", "checkpoint"])
def test_a_hold_ends_by_a_resume_only(place: Place, then: str) -> None:
    place.more += ["--faults", "killed@5,killed@5,killed@5"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "the hold")
        ask(str(place.run_dir), "small", action="pause", by="eve", source="cli", reason="keep it down")
        if then != "pause":
            ask(str(place.run_dir), "small", action=then, by="eve", source="cli", reason="one more")
        wait_until(lambda: "kept_held" in place.states(), "the supervisor's answer")
        assert len(place.history.starts) == 3 and place.history.held
        assert "released" not in place.states()
        ask(str(place.run_dir), "small", action="resume", by="eve", source="cli", reason="go on")
        wait_until(lambda: place.codes == [0], "the end")
    assert place.kinds == ["killed"] * 3 + ["finished"]


def test_a_stop_from_a_host_whose_clock_is_ahead_forgives_nothing_that_dies_after_the_resume(place: Place) -> None:
    place.more += ["--faults", ",".join(["killed@5"] * 60)]
    ask(str(place.run_dir), "small", action="stop", by="eve", source="cli", reason="look", clock=Ahead())
    with place.running():
        wait_until(lambda: "stopped" in place.states(), "the stop")
        ask(str(place.run_dir), "small", action="resume", by="eve", source="cli", reason="go on", clock=Ahead())
        wait_until(lambda: place.history.held_rule or len(place.history.starts) > 5, "the hold")
        assert len(place.history.starts) == 3 and place.history.held_rule == "restart_loop"


def test_a_clock_that_was_set_back_after_a_death_makes_no_wait_longer() -> None:
    settings = SupervisorSettings()
    now_ns = 1_800_000_000 * S
    ended = Start(1, now_ns, first_step=1, ended_ns=now_ns + 8 * HOUR_NS, kind="killed", sentence="why", safe_step=10)
    kept = History((ended,)).not_ahead_of(now_ns)
    decision = decide(kept, settings, now_ns)
    assert isinstance(decision, Wait) and decision.until_ns == now_ns + 5 * S
    later_ns = now_ns + 6 * S
    assert isinstance(decide(kept.not_ahead_of(later_ns), settings, later_ns), Begin)
    assert kept.not_ahead_of(later_ns) is kept


def test_a_supervisor_whose_clock_was_set_back_starts_the_trainer_in_time(place: Place) -> None:
    ended = Start(1, time.time_ns(), first_step=1, ended_ns=time.time_ns() + 8 * HOUR_NS, kind="killed", sentence="why")
    history.save(str(place.run_dir), History((ended,)))
    assert place.supervisor().run() == 0
    assert place.kinds == ["killed", "finished"]


@pytest.mark.parametrize("broken", ["torn", "future", "open"])
def test_a_stop_stays_while_the_control_file_cannot_be_read(place: Place, broken: str) -> None:
    control = place.run_dir / "control"
    ask(str(place.run_dir), "small", action="stop", by="eve", source="cli", reason="bad data, do not start")
    with place.running():
        wait_until(lambda: "stopped" in place.states(), "the stop")
        text = (control / "control.json").read_text()
        if broken == "open":
            control.chmod(0o777)
        else:
            (control / "control.json").write_text(
                '{"schema":1,' if broken == "torn" else text.replace('"schema": 1', '"schema": 99')
            )
        wait_until(lambda: "trouble" in place.states(), "the trouble")
        assert place.history.starts == ()
        control.chmod(0o750)
        (control / "control.json").write_text(text)
        ask(str(place.run_dir), "small", action="resume", by="eve", source="cli", reason="go on")
        wait_until(lambda: place.codes == [0], "the end")
    assert place.kinds == ["finished"]


def test_a_stop_whose_files_were_taken_away_stands_there_again_until_a_person_resumes_the_run(place: Place) -> None:
    for n in range(3):
        ask(str(place.run_dir), "small", action=("pause", "resume", "stop")[n], by="eve", source="cli", reason="bad data")
    with place.running():
        wait_until(lambda: place.history.hold_seq == 3, "the stop")
        (place.run_dir / "control").rename(place.path / "taken_away")
        wait_until(lambda: (seen := read_request(place.run_dir)) is not None and seen.desired == "stopped", "the stop again")
        assert place.history.starts == ()
        wait_until(lambda: place.history.hold_seq == 1, "the number of the new request")
        ask(str(place.run_dir), "small", action="resume", by="eve", source="cli", reason="go on")
        wait_until(lambda: place.codes == [0], "the end")


def test_a_pause_of_a_stopped_run_starts_nothing(place: Place) -> None:
    ask(str(place.run_dir), "small", action="stop", by="eve", source="cli", reason="bad data")
    with place.running():
        wait_until(lambda: place.history.hold_seq == 1, "the stop")
        ask(str(place.run_dir), "small", action="pause", by="eve", source="cli", reason="still bad")
        wait_until(lambda: "kept_held" in place.states(), "the answer")
        assert place.history.starts == ()


# -- started again by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "code", "kind"), [("config@1", 1, "config_error"), ("park@25", 75, "parked"), ("", 0, "finished")]
)
def test_run_starts_the_trainer_again_after_it_came_to_its_end(place: Place, fault: str, code: int, kind: str) -> None:
    place.more += ["--faults", fault]
    assert place.supervisor().run() == code
    assert place.supervisor().run() == 0
    assert place.kinds == [kind, "finished"]


def test_a_parked_run_that_is_still_asked_to_pause_is_not_started(place: Place) -> None:
    place.more += ["--faults", "park@25"]
    assert place.supervisor().run() == 75
    ask(str(place.run_dir), "small", action="pause", by="eve", source="cli", reason="the nodes are needed")
    assert place.supervisor().run() == 75
    ask(str(place.run_dir), "small", action="resume", by="eve", source="cli", reason="they are free")
    assert place.supervisor().run() == 0
    assert place.kinds == ["parked", "finished"]


def test_a_start_after_the_state_was_moved_away_has_a_log_of_its_own(place: Place) -> None:
    place.more += ["--faults", "config@1"]
    assert place.supervisor().run() == 1
    (place.run_dir / "supervisor.json").unlink()
    assert place.supervisor().run() == 0
    assert [start.number for start in place.history.starts] == [2]


def test_a_hold_for_want_of_a_checkpoint_says_what_helps(tmp_path: Path) -> None:
    held = History(held="no checkpoint can be used: the run had checkpoints and none is there now", hold_seq=1)
    assert "To begin at step 0 on purpose" in holds.way_on(held, "/r")
    assert holds.way_on(replace(held, held="restart loop"), "/r").startswith("To go on: ")


# -- whose processes ----------------------------------------------------------------------------------------------------


def test_another_directory_at_the_same_path_is_another_run(place: Place, tmp_path: Path) -> None:
    """As in containers that share the process ids of their host: there everybody's run may be ``/workspace/run``."""
    before = process.mark_of(str(place.run_dir))
    assert process.mark_of(f"{place.run_dir}/../run") == before
    other = process.start(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        tmp_path / "log",
        tmp_path / "exit",
        f"{before}/1.",
        dict(os.environ),
    )
    try:
        place.run_dir.rename(tmp_path / "elsewhere")
        place.run_dir.mkdir()
        assert process.mark_of(str(place.run_dir)) != before
        assert place.supervisor().run() == 0
        assert process.is_alive(other) and len(process.members(f"{before}/")) == 2
    finally:
        process.kill_all(None, f"{before}/")


def test_what_runs_is_found_again_by_its_own_mark_and_a_stranger_with_its_number_is_left_alone(tmp_path: Path) -> None:
    own = process.start(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        tmp_path / "log",
        tmp_path / "exit",
        "01234567/7.",
        dict(os.environ),
    )
    try:
        wait_until(lambda: own.pid in process.members("01234567/7."), "its environment")
        assert find_again(Start(7, 0, pid=own.pid, began=own.began), "89abcdef") == (own, "01234567/7.")
        assert find_again(Start(7, 0), "01234567") == (own, "01234567/7.")
        assert find_again(Start(8, 0, pid=own.pid, began=own.began), "89abcdef") == (NOBODY, "89abcdef/8.")
    finally:
        process.kill_all(None, "01234567/")


# -- what the trainer says ----------------------------------------------------------------------------------------------


def test_a_training_that_goes_on_after_its_good_bye_has_not_ended(tmp_path: Path) -> None:
    end = '{"type":"event","kind":"attempt_end","time_ns":1,"data":{"reason":"stopped: parked"}}\n'
    progress = Progress(str(tmp_path), tmp_path / "log", ManualClock())
    (tmp_path / "metrics.rank00000.jsonl").write_text(end)
    progress.look()
    assert progress.end_reason == "stopped: parked"
    (tmp_path / "metrics.rank00000.jsonl").write_text(end + '{"type":"step","step":5,"time_ns":1,"values":{"loss":1.0}}\n')
    progress.look()
    assert progress.end_reason == ""


def test_what_stays_after_the_trainers_good_bye_is_ended_after_the_grace(place: Place) -> None:
    """A launcher whose other ranks hang: the nodes would be kept, and a resume would start nothing."""
    place.command = lambda: [sys.executable, "-c", STAYS, str(place.run_dir), str(place.path)]  # type: ignore[method-assign]
    ask(str(place.run_dir), "small", action="pause", by="eve", source="cli", reason="the nodes are needed")
    assert place.supervisor().run() == 75
    assert place.kinds == ["parked"]


STAYS = """
import os, sys, time
with open(sys.argv[1] + "/metrics.rank00000.jsonl", "a") as file:
    file.write('{"type":"step","step":5,"time_ns":1,"values":{"loss":1.0}}\\n')
    file.write('{"type":"event","kind":"attempt_end","time_ns":1,"data":{"reason":"stopped: parked"}}\\n')
time.sleep(600)
"""


def test_a_resume_that_comes_while_the_trainer_parks_starts_it_again() -> None:
    parked = History((Start(1, 1, first_step=1, ended_ns=2, kind="parked"),))
    status = ControlStatus(state="stopped", how="park", applied_seq=4)
    resume = ControlRequest(seq=5, desired="running")
    assert isinstance(decide(holds.after_park(parked, resume, status), QUICK, 3), Begin)
    for request in (None, ControlRequest(seq=4, desired="paused"), ControlRequest(seq=3, desired="running")):
        assert isinstance(decide(holds.after_park(parked, request, status), QUICK, 3), Done)


class Paused:
    """A trainer on a host whose clock differs by ``skew_s``, as its supervisor sees it."""

    def __init__(self, run_dir: Path, skew_s: float) -> None:
        self.clock, self.run_dir, self.skew_s, self.beats = ManualClock(), run_dir, skew_s, 0
        files.make_directories(run_dir)
        log_of(str(run_dir), 1).parent.mkdir()
        run = RunSettings(name="small", dir=str(run_dir))
        settings = replace(QUICK, hang_s=100.0)
        self.running = Running(run, settings, Start(1, 0, first_step=1, last_step=5), Process(1, 1), "mark", self.clock, Road())

    def beat(self, state: str) -> None:
        self.beats += 1
        heartbeat_ns = self.clock.time_ns() + round(self.skew_s * S)
        status = ControlStatus(run="small", state=state, heartbeat_ns=heartbeat_ns, heartbeat_seq=self.beats)
        files.replace(self.run_dir / "control" / files.STATUS_FILE, status.to_json().encode(), files.STATUS_MODE)

    def hangs_after(self, seconds: int, state: str = "") -> str:
        """Looked at each second; state: what it says each second, "" = its status reaches no disk."""
        for _ in range(seconds):
            self.clock.advance(1)
            if state:
                self.beat(state)
            self.running.look()
            if why := self.running.hangs():
                return why
        return ""


def test_a_stop_whose_last_save_is_slow_is_no_hang(tmp_path: Path) -> None:
    trainer = Paused(tmp_path, 0)
    trainer.beat("running")
    assert trainer.hangs_after(400, "stopping") == ""


@pytest.mark.parametrize("skew_s", [-3_600.0, -90.0, 0.0, 90.0, 3_600.0])
def test_a_paused_trainer_is_no_hanging_one_whatever_its_clock_says(tmp_path: Path, skew_s: float) -> None:
    trainer = Paused(tmp_path, skew_s)
    trainer.beat("running")
    assert trainer.hangs_after(400, "paused") == ""
    assert "no step after step 5" in trainer.hangs_after(400, "running")


def test_a_paused_trainer_whose_status_reaches_no_disk_is_left_alone_until_it_is_asked_to_go_on(tmp_path: Path) -> None:
    trainer = Paused(tmp_path, 0)
    submit(tmp_path, "small", action="pause", by="eve", source="cli", reason="hold")
    assert trainer.hangs_after(10, "paused") == ""
    assert trainer.hangs_after(1_000) == ""
    submit(tmp_path, "small", action="resume", by="eve", source="cli", reason="go on")
    assert "no step" in trainer.hangs_after(400)


def test_what_an_earlier_start_left_as_its_state_excuses_no_hang(tmp_path: Path) -> None:
    trainer = Paused(tmp_path, 0)
    trainer.beat("paused")
    submit(tmp_path, "small", action="pause", by="eve", source="cli", reason="hold")
    trainer.clock.advance(200)
    assert "no step" in trainer.hangs_after(400)


def test_the_heartbeat_of_a_host_that_is_ahead_grows_old_like_any_other(tmp_path: Path) -> None:
    trainer = Paused(tmp_path, 3_600.0)
    assert trainer.hangs_after(90, "running") == ""
    assert trainer.running.obeys()
    trainer.hangs_after(3)
    trainer.clock.advance(90)
    assert not trainer.running.obeys()


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_way_back_that_nobody_took_for_long_is_refused(place: Place, is_copied: bool) -> None:
    supervised.make_directories(place.run_dir)
    supervised.announce(place.run_dir, Watcher("small", (supervised.ROLLBACK,), "h", 1))
    clock = ManualClock(time.time_ns() - 72 * HOUR_NS) if is_copied else SystemClock()
    to = str(place.checkpoints / "checkpoint-10")
    asked = supervised.ask_rollback(place.run_dir, "small", to=to, by="ana", reason="a spike", source="ui", clock=clock)
    path = supervised.directory_of(place.run_dir) / asked.name
    if not is_copied:
        os.utime(path, (path.stat().st_mtime - 3 * 86_400,) * 2)
    assert place.supervisor().run() == 0
    answer = supervised.answer_to(place.run_dir, asked)
    assert answer is not None and answer.outcome == "refused" and "4,32" in answer.sentence
    assert place.kinds == ["finished"]


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_a_pipe_or_a_link_in_place_of_a_starts_log_blocks_nobody_and_is_written_through_by_nobody(
    tmp_path: Path, what: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("log", "exit", "exit.tmp"):
        if what == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match="Cannot start the trainer with its log"):
        process.start(["true"], tmp_path / "log", tmp_path / "exit", "01234567/9.", dict(os.environ))
    (tmp_path / "log").unlink()
    own = process.start([sys.executable, "-c", "exit(3)"], tmp_path / "log", tmp_path / "exit", "01234567/9.", dict(os.environ))
    wait_until(lambda: not process.is_alive(own), "the end")
    assert process.exit_code(own, tmp_path / "exit") == 3
    assert (tmp_path / "exit").is_file() and not (tmp_path / "exit").is_symlink()
    assert not elsewhere.exists()
