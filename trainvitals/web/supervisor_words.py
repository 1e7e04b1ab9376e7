"""What the pages say of a run's supervisor, in sentences. Pure."""

from __future__ import annotations

from trainvitals.web import format as fmt
from trainvitals.web.supervisor_view import Phase, SupervisorView
from trainvitals.web.view import RunView

#: How long "recovered" is still said beside the verdict.
SAID_FOR_NS = 30 * 60 * 10**9


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
    usual = f" · usually {fmt.span(phase.usual_s)}" if phase.usual_s is not None else ""
    if phase.seconds is not None:
        return f"✓ {name}: {fmt.span(phase.seconds)}{usual}"
    if is_now and seen.phase_began_ns is not None:
        return f"▸ {name}: {fmt.span(max(0.0, (now_ns - seen.phase_began_ns) / 1e9))} so far{usual}"
    return f"– {name}{usual}"


def recovery_words(run: RunView, now_ns: int) -> str:
    """Whether the run is as it was before it died, and what is missing; "" when it did not die, or that is long ago."""
    seen = run.supervisor
    if seen.recovered_ns is not None:
        when = fmt.moment(seen.recovered_ns, run.settings.log_timezone, now_ns=now_ns)
        why = seen.recovered_text.removeprefix("recovered: ")
        return f"Recovered at {when}: {why}." if why else f"Recovered at {when}."
    if seen.lacking and seen.state == "running":
        return f"Recovering; still lacking: {'; '.join(seen.lacking)}."
    return ""


def restart_fact(run: RunView, now_ns: int) -> str:
    """One short phrase beside the verdict, for who looks at another page; "" when there is no news of a restart."""
    seen = run.supervisor
    if seen.state == "held":
        return "the supervisor starts nothing until somebody resumes"
    if seen.state == "waiting" and run.control.supervisor:
        return "the supervisor starts it again soon"
    going_on = seen.going_on
    if going_on is not None and len(seen.phases) and seen.phases[-1].name == "caught_up":
        left_s = seen.left_s(now_ns)
        left = f", about {fmt.coarse(left_s)} left" if left_s else ""
        return f"restarted: {going_on.name.replace('_', ' ')}{left}"
    if seen.lacking and seen.state == "running":
        return "caught up, not recovered yet"
    is_news = seen.recovered_ns is not None and now_ns - seen.recovered_ns <= SAID_FOR_NS
    return "recovered" if is_news else ""
