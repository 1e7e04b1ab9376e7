"""The supervisor of one run: a turn looks, decides by ``decide``, and does one thing. What must survive it is in ``supervisor.json``."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainvitals.clock import Clock, StopSignal
from trainvitals.control import ControlRequest, supervised
from trainvitals.errors import ControlError, InputError, TrainvitalsError
from trainvitals.incidents.rollback import RollbackInputs
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import deaths, exits, history, holds, knowledge, lock, process, wishes
from trainvitals.supervisor.choice import Choice
from trainvitals.supervisor.decide import Done, GiveUp, Hold, Wait, decide
from trainvitals.supervisor.desk import ME, Desk
from trainvitals.supervisor.healing import Healing
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.looks import Looks, ToldToEnd
from trainvitals.supervisor.progress import size_of_hook_file
from trainvitals.supervisor.recovery import usual_s
from trainvitals.supervisor.roads import road_of
from trainvitals.supervisor.running import Running, exit_file_of, find_again, log_of
from trainvitals.supervisor.slurm_nodes import Plan

if TYPE_CHECKING:
    from trainvitals.store.protocol import Store

POLL_S = 0.5
#: A look at a checkpoint is good for so long; after a longer wait it is looked at again before the start.
CHOICE_S = 60.0
SAVE_EVERY_S = 10.0
ASK_AGAIN_S = 30.0


class Supervisor:
    """``run`` until the training is over, it must not go on, or ``stop`` is set; returns the exit code of the command line."""

    def __init__(
        self, run: RunSettings, settings: SupervisorSettings, command: Sequence[str], clock: Clock, stop: StopSignal, *,
        open_store: Callable[[], Store] | None = None, environment: Mapping[str, str] | None = None,
        generator: random.Random | None = None, poll_s: float | None = None,
    ) -> None:  # fmt: skip
        self._run, self._settings, self._command = run, settings, tuple(command)
        self._clock, self._stop, self._poll_s = clock, stop, POLL_S if poll_s is None else poll_s
        self._open_store = open_store
        self._environment = dict(os.environ if environment is None else environment)
        self._generator = generator or random.Random()  # noqa: S311 - spreads restarts
        self._desk = Desk(run, clock)
        self._road = road_of(run, settings, clock, self._desk, self._environment, self._command)
        self._looks = Looks(run, settings.verify_s, clock, stop, self._desk, self._facts)
        self._mark = ""
        self._history = History()
        self._running: Running | None = None
        self._healing: Healing | None = None
        self._choice: tuple[float, Choice] | None = None
        self._chance = 0.5
        self._due = {"save": 0.0, "ask": 0.0}

    def run(self) -> int:
        """Raises ``TrainvitalsError`` when another one supervises this run, or what is remembered cannot be read."""
        with lock.hold(self._run.dir):
            supervised.make_directories(self._run.dir)
            self._mark, self._history = process.mark_of(self._run.dir), history.load(self._run.dir)
            self._remember(holds.begun_again(self._history, self._desk.request()))
            if self._history.held:
                self._desk.tell("kept_held", f"still held: {holds.sentence(self._history, self._run.dir)}")
            self._adopt()
            self._look_at_old_wish()
            try:
                while True:
                    code = self.turn()
                    if code is not None:
                        return code
                    if self._stop.is_set():
                        self._clock.sleep(self._poll_s)
                    else:
                        self._stop.wait(self._poll_s)
            except ToldToEnd as told:
                self._desk.tell("left", str(told), severity="warning")
                return 0
            finally:
                self._road.close()
                self._desk.close()

    def turn(self) -> int | None:
        """One look; an exit code when it is over."""
        self._desk.announce()
        running = self._running
        if running is not None:
            return self._turn_running(running)
        if self._stop.is_set():
            if self._history.held:
                self._desk.tell("left", "the supervisor was told to end; nobody starts the trainer again")
            return 0
        return self._turn_idle()

    # -- while the trainer runs ---------------------------------------------------------------------------------------

    def _turn_running(self, running: Running) -> int | None:
        is_news = running.look()
        self._keep(running.start, is_news=is_news)
        if not running.is_alive:
            again = self._road.again(running.start)
            if again is None:
                return self._ended(running)
            self._follow(running, again)
            return None
        if self._stop.is_set():
            if self._road.is_outside:
                return 0  # its job goes on; whoever supervises next follows it
            running.end("shutdown")
        if running.is_ending:
            running.push()
            return None
        self._take_wishes()
        if self._history.wish is not None:
            self._end(running, "rollback", f"ending the trainer to go back to {self._history.wish.to}")
        elif must := running.must_end():
            self._end(running, *must)
        elif self._healing is not None:
            self._check_start(running)
            self._road.tend(running)
        return None

    def _follow(self, running: Running, again: process.Process) -> None:
        if again != running.process:
            running.process, running.start = again, replace(running.start, pid=again.pid, began=again.began)
            self._keep(running.start, is_news=True)

    def _check_start(self, running: Running) -> None:
        """Did it go on from where it was told, and is it as it was before?"""
        assert self._healing is not None
        sentence, is_behind = running.went_elsewhere()
        if sentence and not self._healing.was_told:
            self._healing.was_told = True
            must_end = is_behind and self._settings.resumed_behind == "stop" and self._road.is_told(self._command)
            severity = "critical" if is_behind else "warning"
            self._desk.tell("resumed_elsewhere", sentence, severity=severity, step=running.start.first_step)
            if must_end:
                self._end(running, "resumed_behind", f"{sentence}; ending it", "critical")
                return
        for state, text, data in self._healing.look(running, self._history):
            self._desk.tell(state, text, step=running.start.last_step, **data)
        if self._healing.marks(running.start) != running.start:
            running.start = self._healing.marks(running.start)
            self._keep(running.start, is_news=True)

    def _end(self, running: Running, why: str, sentence: str, severity: str = "info") -> None:
        self._desk.tell("ending", sentence, severity=severity, why=why, attempt=running.start.number)
        running.end(why)
        self._keep(running.start, is_news=True)

    def _ended(self, running: Running) -> int | None:
        code = running.finish(lambda text: self._desk.tell("cleaned", text, severity="warning"))
        self._running, start = None, running.start
        known_by_road = self._road.ended(start, code)
        code = known_by_road.code
        now_ns = self._clock.time_ns()
        known = knowledge.ask(self._open_store, self._run.name, now_ns, run_dir=self._run.dir)
        found, hosts = deaths.look_into(
            log_of(self._run.dir, start.number), (*self._road.logs(start), *self._run.logs, *self._run.rank_logs), start.number, start.started_ns, self._clock,
            self._run.log_timezone,
        ) if code != 0 and not start.ended_by_us else (None, 0)  # fmt: skip
        request = self._desk.request()
        told = exits.classify(
            exits.Evidence(
                code, start.ended_by_us, wishes.is_to_end(self._run, request), running.progress.end_reason, found,
                running.start.nonfinite_step, max(hosts, known.faulty_nodes, known_by_road.bad_nodes), self._settings.wide_area_nodes,
                known_by_road.scheduler, start.first_step is not None, self._run.control == "kill_switch" and self._history.has_steps,
            )
        )  # fmt: skip
        start = self._road.blame(replace(start, ended_ns=now_ns, code=code, kind=told.kind, sentence=told.sentence), found)
        self._history = self._history.with_start(start)
        is_wished = exits.POLICIES[told.kind].action in ("done", "stopped", "restart_now")
        self._desk.tell(
            "ended", f"attempt {start.number} ended: {told.sentence}", severity="info" if is_wished else "warning", step=start.last_step,
            attempt=start.number, kind=told.kind, code=code, trouble=known.trouble,
        )  # fmt: skip
        if told.kind not in ("finished", "parked"):
            start = replace(start, safe_step=self._look_for_checkpoint(known).step)
        known_end = wishes.after_end(self._history.with_start(start), running.progress, start)
        self._remember(holds.after_park(known_end, request, running.status))
        self._desk.audit("trainer_ended", {"attempt": start.number, "kind": told.kind, "code": code, "step": start.last_step})
        self._chance = self._generator.random()
        if self._stop.is_set() and told.kind in ("shutdown", "parked"):
            return 75 if code == exits.PARK_CODE else 0
        return None

    # -- while nothing runs -------------------------------------------------------------------------------------------

    def _turn_idle(self) -> int | None:
        self._take_wishes()
        request = self._desk.request()
        if self._history.wish is not None:
            self._release("a person asked to go back")
            return self._begin("going back as asked")
        if request is not None and wishes.is_to_end(self._run, request) and not self._history.held:
            return self._stopped(request)
        if self._history.is_kept and not self._is_released(request):
            return None
        now_ns = self._clock.time_ns()
        self._remember(self._history.not_ahead_of(now_ns))
        decision = decide(self._history, self._settings, now_ns, self._chance)
        if isinstance(decision, (Done, GiveUp)):
            self._remember(replace(self._history, is_over=True))
            is_done = isinstance(decision, Done)
            self._desk.tell("done" if is_done else "gave_up", decision.reason, severity="info" if is_done else "critical")
            return decision.code
        if isinstance(decision, Hold):
            self._hold(decision.reason, decision.rule)
            return None
        if isinstance(decision, Wait):
            self._desk.tell_once(
                f"waiting{decision.until_ns}", "waiting", decision.reason, seconds=max(0, decision.until_ns - now_ns) / 1e9
            )
            return None
        return self._begin(decision.reason)

    def _stopped(self, request: ControlRequest) -> int | None:
        who = f"stopped by {request.by or 'somebody'}: {request.reason or 'no reason given'}"
        if self._settings.when_stopped == "exit":
            self._desk.tell("done", who)
            return 0
        self._desk.tell_once(who, "stopped", f"{who}; waiting until somebody resumes the run")
        # Whatever died before, the person who resumes it has seen it.
        self._remember(replace(self._history.seen_by_a_person(), hold_seq=request.seq))
        return None

    def _hold(self, reason: str, rule: str = "") -> None:
        self._remember(replace(self._history, held=reason, held_rule=rule, hold_seq=None, wish=None))
        text = f"not starting it again: {holds.sentence(self._history, self._run.dir)}"
        self._desk.tell("held", text, severity="critical", rule=rule, reason=reason, **self._facts())
        self._ask_to_stop()

    def _facts(self) -> dict[str, Any]:
        """How the run is started, and how many nodes its job keeps."""
        return {"road": self._road.name, "nodes": self._history.last.nodes if self._history.last is not None else 0}

    def _ask_to_stop(self) -> None:
        """The run is asked to be stopped, so that every page and every start by hand says why, and a resume lets it go on."""
        self._due["ask"] = self._clock.monotonic_s() + ASK_AGAIN_S
        asked = self._desk.ask("stop", ME, holds.reason(self._history))
        if asked is not None:
            self._remember(replace(self._history, hold_seq=asked.seq))

    def _is_released(self, request: ControlRequest | None) -> bool:
        verdict = holds.judged(self._history, request, is_readable=self._desk.is_readable)
        if verdict == holds.ASK and self._clock.monotonic_s() >= self._due["ask"]:
            self._ask_to_stop()
        if request is not None and verdict == holds.TELL:
            self._desk.tell_once(str(request.seq), "kept_held", holds.answer(request))
        if request is None or verdict != holds.GO:
            return False
        self._release(f"resumed by {request.by or 'somebody'}: {request.reason or 'no reason given'}")
        return True

    def _release(self, why: str) -> None:
        if is_hold := bool(self._history.held):
            self._desk.tell("released", why)
        self._remember(replace(self._history.seen_by_a_person(is_hold=is_hold), held="", held_rule="", hold_seq=None))

    # -- starting -----------------------------------------------------------------------------------------------------

    def _begin(self, reason: str) -> int | None:
        if why := wishes.switched_off(self._run):
            self._desk.tell_once(why, "stopped", why)
            return None
        wish = self._history.wish
        if wish is not None:
            choice = self._looks.named(wish.to)
        elif self._choice is not None and self._clock.monotonic_s() - self._choice[0] < CHOICE_S:
            choice = self._choice[1]
        else:
            choice = self._look_for_checkpoint()
        self._choice = None
        if choice.report is None and (choice.seen or choice.trouble or wish is not None or self._history.had_checkpoint):
            why = choice.trouble or (choice.sentence if choice.seen else "the run had checkpoints and none is there now")
            self._hold(f"{holds.NO_CHECKPOINT}: {why}")
            return None
        plan = self._road.plan(self._history)
        if plan.is_pending:
            self._choice = (self._clock.monotonic_s(), choice) if wish is None else None
            return None
        if plan.refusal:
            self._hold(plan.refusal, "restart_failed")
            return None
        if wish is not None and not self._desk.let_run(wish.by, f"rollback: {wish.reason}"):
            return None
        if plan.sentence:
            self._desk.tell("nodes", plan.sentence, nodes=plan.nodes, exclude=plan.exclude)
        return self._start(choice, reason, wish, plan)

    def _start(self, choice: Choice, reason: str, wish: history.Wish | None, plan: Plan) -> int | None:
        path, step = (choice.report.path, choice.step) if choice.report is not None else (None, None)
        skip = wish.skip_samples if wish is not None else ""
        number = history.next_number(self._run.dir, self._history)
        mark = f"{self._mark}/{number}."
        process.kill_all(None, f"{self._mark}/")
        start = self._road.stamped(Start(
            number, self._clock.time_ns(), path, step, skip, host=socket.gethostname(), hook_offset=size_of_hook_file(self._run.dir)
        ), plan)  # fmt: skip
        self._remember(replace(self._history.with_start(start), wish=None))
        try:
            argv = self._road.command(self._command, start, plan, mark)
            own = process.start(
                argv, log_of(self._run.dir, number), exit_file_of(self._run.dir, number), mark,
                {**self._environment, **self._road.variables(start, plan)},
            )  # fmt: skip
        except InputError as error:
            failed = replace(start, ended_ns=self._clock.time_ns(), kind="disk_full", sentence=str(error).rstrip("."))
            self._remember(self._history.with_start(failed))
            return None
        start = replace(start, pid=own.pid, began=own.began)
        self._keep(start, is_news=True)
        self._watch(start, own, mark)
        how = f"from {choice.sentence}" if path is not None else "from the beginning: the run has no checkpoint yet"
        if path is not None and not self._road.is_told(self._command):
            how += " The command names neither {resume_from} nor {step}: the trainer has TRAINVITALS_RESUME_FROM, or chooses by itself."
        self._desk.tell(
            "started", f"attempt {number} started ({reason}) {how}", step=step, attempt=number, resume_from=path, pid=own.pid, passed_over=dict(choice.skipped),
            log=str(log_of(self._run.dir, number)), usual_s=usual_s(self._history.starts[:-1], start.road), nodes=start.nodes, exclude=plan.exclude, hang_s=self._settings.hang_s,
        )  # fmt: skip
        told = {"attempt": number, "resume_from": path, "step": step, "skip_samples": skip, "why": reason}
        self._desk.audit("trainer_started", told)
        return None

    def _watch(self, start: Start, own: process.Process, mark: str) -> None:
        self._running = Running(self._run, self._settings, start, own, mark, self._clock, self._road)
        self._road.begun(start)
        self._healing = Healing(self._run, self._settings, self._clock)

    def _adopt(self) -> None:
        """What a supervisor that was killed left behind: it goes on under this one, or it ended meanwhile."""
        last = self._history.last
        if last is None or last.is_over:
            return
        own, mark = find_again(last, self._mark)
        if last.host and last.host != socket.gethostname() and not self._road.is_outside:
            raise TrainvitalsError(
                f"Attempt {last.number} was started on {last.host} and nobody wrote how it ended; run the supervisor there, or, when "
                f"that machine is gone for good, move {history.STATE_FILE} in {self._run.dir} away."
            )
        self._watch(last, own, mark)
        text = f"attempt {last.number} was started by a supervisor before this one"
        self._desk.tell("adopted", text, attempt=last.number, hang_s=self._settings.hang_s)

    def _look_at_old_wish(self) -> None:
        """One that the supervisor before this one took long ago and never carried out: a trainer that goes on is left alone."""
        running = self._running
        why = wishes.too_old(self._history.wish, self._clock.time_ns(), self._settings.rollback_within_s)
        if why and (running is None or running.start.ended_by_us or not running.is_alive):
            self._hold(why, "restart_failed")
        elif why:
            self._remember(replace(self._history, wish=None))
            self._desk.tell("refused", why, severity="warning")

    # -- parts --------------------------------------------------------------------------------------------------------

    def _look_for_checkpoint(self, known: knowledge.Known | None = None) -> Choice:
        known = known or knowledge.ask(self._open_store, self._run.name, self._clock.time_ns(), run_dir=self._run.dir)
        starts = self._history.starts
        inputs = RollbackInputs(
            (), [*known.incidents, *knowledge.own_incidents(self._run.name, starts)], known.findings,
            [one for one in starts if one.first_step is not None], self._history.peak_step,
        )  # fmt: skip
        choice = self._looks.choose(inputs)
        self._choice = (self._clock.monotonic_s(), choice)
        return choice

    def _take_wishes(self) -> None:
        taken = wishes.take(self._run, self._history, self._clock, self._looks.named_soon, self._save_wish)
        for state, text, request in taken:
            self._desk.tell(state, text, request=request)

    def _save_wish(self, wish: history.Wish) -> None:
        self._remember(replace(self._history, wish=wish))
        self._desk.audit("rollback_taken", {"to": wish.to, "skip_samples": wish.skip_samples, "reason": wish.reason}, by=wish.by)

    def _keep(self, start: Start, *, is_news: bool) -> None:
        now_s = self._clock.monotonic_s()
        self._history = self._history.with_start(start)
        if is_news or now_s >= self._due["save"]:
            self._due["save"] = now_s + SAVE_EVERY_S
            self._save()

    def _remember(self, history_now: History) -> None:
        if history_now != self._history:
            self._history = history_now
            self._save()

    def _save(self) -> None:
        try:
            history.save(self._run.dir, self._history)
        except (ControlError, OSError) as error:  # a full disk: the trainer goes on, and it is tried with the next change
            self._desk.trouble(f"cannot keep {history.STATE_FILE}", error)
