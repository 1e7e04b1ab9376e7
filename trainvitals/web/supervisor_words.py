"""What the pages say of a run's supervisor, in sentences. Pure."""

from __future__ import annotations

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.web import format as fmt
from trainvitals.web.supervisor_view import Phase, SupervisorView
from trainvitals.web.view import RunView

#: How long "recovered" is still said beside the verdict.
SAID_FOR_NS = 30 * 60 * 10**9
#: Something that stays lacking for this long after it was last told is the run's new usual; the control page goes on saying it.
LACKING_FOR_NS = 2 * 3600 * 10**9


def supervisor_head(run: RunView, now_ns: int) -> str:
    """Who starts the trainer, what of the day's restarts is used up; "" when nobody ever did."""
    seen, host = run.supervisor, run.control.supervisor
    if not seen.state and not host:
        return ""
    who = f"Supervisor on {host}" if host else "No supervisor runs now: nobody starts the trainer again"
    parts = [who]
    if seen.attempt and seen.started_ns is not None:
        begun = f"from step {fmt.step(seen.resume_step)}" if seen.resume_step is not None else "from the beginning"
        parts.append(
            f"attempt {seen.attempt} started {fmt.clock(seen.started_ns, run.settings.log_timezone, now_ns=now_ns)} {begun}"
        )
    if seen.budget:
        parts.append(f"{seen.deaths:,} of {seen.budget:,} restarts used in 24 h")
    if seen.limit_ns is not None:
        parts.append(f"the job's time limit ends it in {fmt.span((seen.limit_ns - now_ns) / 1e9)}")
    return " · ".join(parts)


def supervisor_state(run: RunView, now_ns: int) -> str:
    """What it waits for, or why it holds and what lets it go on; "" while the trainer runs."""
    seen = run.supervisor
    if seen.state == "held":
        since = f" for {fmt.span((now_ns - seen.since_ns) / 1e9)}" if seen.since_ns is not None else ""
        return (
            f"It starts nothing{since}: {seen.text.rstrip('.')}. What releases it: Resume (it starts again from the safe checkpoint, all "
            "counts anew), or Roll back to another checkpoint."
        )
    if seen.state == "stopped":
        return f"It waits: {seen.text}. Resume starts the trainer again from the safe checkpoint."
    if seen.state == "going_back":
        return f"It goes back as asked: {seen.text}."
    if seen.state in ("waiting", "ended"):
        return f"The trainer is down: {seen.text}."
    return f"It has ended: {seen.text}." if seen.state == "done" else ""


def phase_lines(seen: SupervisorView, now_ns: int) -> tuple[str, ...]:
    """The restart as it goes: one line a phase, and when it will have caught up."""
    if (
        seen.state != "running"
        or not seen.phases
        or (seen.recovered_ns is None and seen.phase_began_ns is None and not seen.lacking)
    ):
        return ()
    going_on = seen.going_on
    lines = [_line(phase, phase is going_on, seen, now_ns) for phase in seen.phases]
    if going_on is not None:
        left_s = seen.left_s(now_ns)
        lines.append(f"about {fmt.span(left_s)} left, by earlier starts" if left_s else _late(left_s))
    return tuple(lines)


def _late(left_s: float | None) -> str:
    return "time left not known: the first start of this kind" if left_s is None else "longer than usual"


def _line(phase: Phase, is_now: bool, seen: SupervisorView, now_ns: int) -> str:
    name = phase.name.replace("_", " ")
    usual = f" · usually {fmt.span(phase.usual_s)}" if phase.usual_s is not None and phase.usual_s >= 1 else ""
    if phase.seconds is not None:
        return f"✓ {name}: {fmt.span(phase.seconds) if phase.seconds >= 1 else 'under 1 s'}{usual}"
    if is_now and seen.phase_began_ns is not None:
        return f"● {name}: {fmt.span(max(0.0, (now_ns - seen.phase_began_ns) // 10**9))} so far{usual}"
    return f"○ {name}{usual}"


def recovery_words(run: RunView, now_ns: int) -> str:
    """Whether the run is as it was before it died, and what is missing; "" when it did not die, or that is long ago."""
    seen = run.supervisor
    if seen.state != "running":
        return ""
    if seen.recovered_ns is not None:
        when = fmt.moment(seen.recovered_ns, run.settings.log_timezone, now_ns=now_ns)
        why = seen.recovered_text.removeprefix("recovered: ")
        if run.verdict.tone not in ("ok", "info"):  # a word of then would read as if what came since were over
            return f"It had recovered at {when}; since then: {run.verdict.word.value}."
        return f"Recovered at {when}: {why}." if why else f"Recovered at {when}."
    if seen.lacking:
        return f"Recovering; still lacking: {'; '.join(seen.lacking)}."
    return ""


def needs_eyes(seen: SupervisorView) -> bool:
    """Whether what the supervisor does comes before what the trainer says: it is down, or on its way back."""
    return seen.state in ("held", "going_back", "waiting", "stopped", "ended") or (
        seen.state == "running" and seen.recovered_ns is None and (bool(seen.lacking) or _is_catching_up(seen))
    )


def with_restart(verdict: Verdict, seen: SupervisorView, host: str, now_ns: int) -> Verdict:
    """A run that was started again is not called healthy or recovered before it is as it was, nor stopped while it comes back: until
    then it is on its way there. host: of the live supervisor, "" = none."""
    is_well = verdict.word in (VerdictWord.HEALTHY, VerdictWord.RECOVERED)
    is_down = verdict.word is VerdictWord.STOPPED and bool(host)
    over = f"Over: {verdict.headline}." if verdict.word is VerdictWord.RECOVERED else ""
    if is_down and seen.state == "going_back":
        return _recovering(verdict, f"going back: {seen.text}", seen.since_ns, "")
    if seen.state != "running" or seen.recovered_ns is not None or not (is_well or is_down):
        return verdict
    begun = f"attempt {seen.attempt} started" + (
        f" from step {fmt.step(seen.resume_step)}" if seen.resume_step is not None else ""
    )
    if seen.lacking and is_well:
        is_news = now_ns - (seen.lacking_ns or 0) <= LACKING_FOR_NS
        what = f"{begun}; caught up, still lacking: {'; '.join(seen.lacking)}"
        return _recovering(verdict, what, seen.started_ns, over) if is_news else verdict
    is_newer = seen.started_ns is not None and seen.started_ns > (verdict.since_ns or 0)
    if not _is_catching_up(seen) or (is_down and not is_newer):
        return verdict
    return _recovering(
        verdict, f"{begun}; now {_going_on(seen, now_ns)}", seen.started_ns, over or (verdict.headline if is_down else "")
    )


def _recovering(verdict: Verdict, headline: str, since_ns: int | None, before: str) -> Verdict:
    tone = "warning" if verdict.word is VerdictWord.STOPPED else "info"
    decision = "Nothing yet: this turns into RECOVERED, or says what is wrong."
    return Verdict(VerdictWord.RECOVERING, tone, headline, since_ns, before, decision, verdict.incident_id)


def _going_on(seen: SupervisorView, now_ns: int) -> str:
    """``load, about 4 min left``"""
    going_on, left_s = seen.going_on, seen.left_s(now_ns)
    name = "" if going_on is None else going_on.name.replace("_", " ").replace("caught up", "catching up")
    return name + (f", about {fmt.coarse(left_s)} left" if left_s else "")


def _is_catching_up(seen: SupervisorView) -> bool:
    return seen.going_on is not None and bool(seen.phases) and seen.phases[-1].name == "caught_up"


def restart_fact(run: RunView, now_ns: int) -> str:
    """One short phrase beside the verdict, for who looks at another page; "" when there is no news of a restart."""
    seen = run.supervisor
    if seen.state == "held":
        return "the supervisor starts nothing until somebody resumes"
    if seen.state == "waiting" and run.control.supervisor:
        return "the supervisor starts it again soon"
    if _is_catching_up(seen):
        return f"restarted: {_going_on(seen, now_ns)}"
    if seen.lacking and seen.state == "running":
        return "caught up, not recovered yet"
    is_news = seen.recovered_ns is not None and now_ns - seen.recovered_ns <= SAID_FOR_NS
    # Beside trouble that came since, the word would read as if that were over.
    return "recovered" if is_news and run.verdict.tone in ("ok", "info") else ""
