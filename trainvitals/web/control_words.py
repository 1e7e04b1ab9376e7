"""What the control page says of a pause and of the breaker, in sentences. Pure."""

from __future__ import annotations

from trainvitals.incidents.verdict import gpu_hours
from trainvitals.records import Event
from trainvitals.web.format import span
from trainvitals.web.view import ControlView, RunView

LATE_AFTER_S = 15.0


#: Ways through the states of a trainer; the first that holds the present state is shown.
_WAYS = (
    ("running", "pausing", "paused", "resuming"),
    ("running", "stopping", "stopped"),
    ("running", "checkpointing"),
)


def state_line(control: ControlView) -> str:
    """Where the trainer stands on its way: ``○ running → ○ pausing → ● paused → ○ resuming``; "" when nobody knows."""
    way = next((way for way in _WAYS if control.state in way), None)
    if control.state == "running" and control.desired == "stopped":
        way = _WAYS[1]
    if way is None:
        return ""
    return " → ".join(f"{'●' if state == control.state else '○'} {state}" for state in way)


def told(control: ControlView) -> str:
    """The sentence of the control files, without the commands by hand that stand below it."""
    return (
        control.sentence.replace(f" To stop it by hand: {', or '.join(control.by_hand.splitlines())}.", "")
        if control.by_hand
        else control.sentence
    )


def holder(run: RunView, now_ns: int) -> str:
    """Who holds the run, since when, and why where the sentence above it does not say so; "" when nobody does."""
    control = run.control
    if control.state not in ("paused", "pausing"):
        return ""
    who = "the breaker" if control.source == "breaker" else control.by or "somebody"
    since = f" for {span(max(0.0, (now_ns - control.since_ns) / 1e9))}" if control.since_ns is not None else ""
    why = f": {control.reason}" if control.reason and control.reason not in control.sentence else ""
    return f"Held by {who}{since}{why}"


def idle_cost(run: RunView, now_ns: int) -> str:
    """What the pause has cost so far, and each minute; "" when nothing is held or the number of GPUs is not known."""
    control, gpus = run.control, run.settings.gpus
    if control.state != "paused" or control.since_ns is None or not gpus:
        return ""
    hours = gpus * max(0.0, (now_ns - control.since_ns) / 1e9) / 3600
    said = f"{gpus:,} GPU{'s' if gpus != 1 else ''} idle: {hours:,.2f} GPU-hours so far"
    each = gpu_hours(gpus / 60)
    price = run.settings.gpu_hour_price
    money = f" = {hours * price:,.2f} at {price:g} a GPU-hour" if price else ""
    return f"{said}{money}" + (f", {each} a minute." if each else ".")


def breaker_words(mode: str, of_settings: str = "", hold: str = "", *, is_wired: bool = True) -> str:
    """The mode in force, and what the settings say where that is something else. hold: what forbids a pause now, as the watchdog tells it;
    is_wired: a trainer listens that it can pause."""
    does = {
        "armed": "armed: it pauses this run by itself when its conditions are met; it never resumes or stops it",
        "dry-run": "dry-run: it says when it would pause this run, and pauses nothing",
        "off": "off: it does nothing for this run",
    }.get(mode, mode)
    if mode == "armed" and not is_wired:
        does = "armed, but not wired: no trainer listens here, so it says when it would pause this run, and can pause nothing"
    is_other = of_settings not in ("", mode)
    differs = f" trainvitals.toml says {of_settings}; somebody asked for {mode} since." if is_other else ""
    held = f" Held now: {hold}." if hold and mode != "off" else ""
    return f"Circuit breaker {does}.{held}{differs}"


def breaker_fate(run: RunView, request_id: str, sent_at_ns: int, now_ns: int) -> str:
    """What became of a request to arm or disarm, from the watchdog's own events; it is "sent" until one answers."""
    for event in reversed(run.events):
        if event.data.get("request") == request_id:
            return f"Applied: {event.text}" if _is_mode(event) else f"Refused. {event.text}"
    age_s = (now_ns - sent_at_ns) / 1e9
    if age_s <= LATE_AFTER_S:
        return "Sent; waiting for the watchdog."
    return f"Sent {span(age_s)} ago and not applied yet: does the watchdog of this run still run?"


def go_back_fate(run: RunView, request_id: str, sent_at_ns: int, now_ns: int) -> str:
    """What became of the way back that was asked for, from the supervisor's own events; "" once the start from there is told."""
    told = next((event for event in run.events if event.data.get("request") == request_id), None)
    if told is not None and told.data.get("state") == "refused":
        return f"Refused by the supervisor: {told.text}"
    if told is not None and told.data.get("outcome") == "refused":  # before it reached the supervisor
        return f"Refused. {told.text}"
    if told is not None:
        is_begun = run.supervisor.started_ns is not None and run.supervisor.started_ns > (told.time_ns or 0)
        return "" if is_begun else f"The supervisor has taken it: {told.text}"
    age_s = (now_ns - sent_at_ns) / 1e9
    if age_s <= LATE_AFTER_S:
        return "Way back asked for; the supervisor looks at the checkpoint."
    return f"Way back asked for {span(age_s)} ago and not answered yet: a large checkpoint takes its time; does the supervisor still run?"


CHECKPOINT_MEANING = "The trainer saves a checkpoint after its present step and goes on."


def has_choice_of_pause(run: RunView) -> bool:
    """Whether hold and park may both be asked for: a trainer that is controlled in its own way can only park."""
    return run.control.can_park and run.settings.control == "hook"


def pause_meaning(run: RunView) -> str:
    """What "pause" does."""
    if run.settings.control == "hook":
        return "The trainer finishes its step, then holds its GPUs until somebody resumes it."
    return "The trainer saves, ends and gives its nodes back (it is controlled in its own way, and can only park)." + (
        " After a resume the supervisor starts it again."
        if run.control.supervisor
        else " After a resume somebody has to start it again."
    )


def resume_meaning(control: ControlView) -> str:
    """What "resume" does now."""
    if control.state not in ("stopped", "silent", "not_wired"):
        return (
            "The trainer goes on from where it stands, with the weights it has in memory. This is no way back: damaged weights stay "
            "damaged."
        )
    if control.supervisor:
        return (
            f"The trainer is down. The supervisor on {control.supervisor} starts it again, from the newest checkpoint that is safe and "
            "verifies."
        )
    return (
        "The trainer is down, and no supervisor starts it: this only allows its next start, which is yours or your scheduler's."
    )


def _is_mode(event: Event) -> bool:
    return event.kind == "breaker" and event.data.get("decision") == "mode"
