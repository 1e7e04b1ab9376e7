"""Asking the trainer for something: who, why, one confirmation. The work is done on the server, in the button's callback."""

from functools import partial

import streamlit as st

from pages._shared.dialog_host import press
from pages._shared.far import keep_sent
from pages._shared.state import Look, the_poller
from pages._shared.supervisor import SENT_BACK_KEY, SentBack
from pages._shared.text import plain
from pages._shared.who import asked_by, is_operator, keep_name, who, who_field
from trainvitals.control.rollback import rollback_commands
from trainvitals.web import format as fmt
from trainvitals.web.actions import ACTIONS, Outcome, ask, go_back
from trainvitals.web.control_words import CHECKPOINT_MEANING, has_choice_of_pause, pause_meaning, resume_meaning
from trainvitals.web.doubt import doubt_words
from trainvitals.web.present import possible_actions, rollback_cost

OUTCOME_KEY = "tv_outcome"

ANYWAY = "Tick the box to go back to it all the same."
#: What stands at the choice -> ``how`` of the request.
HOW = {
    "As the trainer is set: it holds; with a limit it parks when that is reached": None,
    "Hold: its GPUs wait, ready to go on at once": "hold",
    "Park: it saves, ends and gives its nodes back; somebody has to start it again": "park",
}


def ask_for(action: str) -> None:
    """A button's callback: open the dialog of an action's id."""
    press(partial(_open, action))


def _open(action: str, seen: Look) -> None:
    """Open the dialog of an action's id; an unknown one opens nothing, nor does any for a viewer."""
    if not is_operator(seen):
        return
    if action in possible_actions(seen.run.control, seen.run.verdict.word) and action in ACTIONS:
        st.session_state.pop(OUTCOME_KEY, None)
        {"pause": _pause, "resume": _resume, "checkpoint": _checkpoint}[action](seen)
    elif action == "safe" and seen.run.recommended is not None:
        st.session_state.pop(OUTCOME_KEY, None)
        _roll_back(seen)


@st.dialog("Pause this run")
def _pause(seen: Look) -> None:
    _ask_form(seen, "pause")


@st.dialog("Resume this run")
def _resume(seen: Look) -> None:
    _ask_form(seen, "resume")


@st.dialog("Save a checkpoint now")
def _checkpoint(seen: Look) -> None:
    _ask_form(seen, "checkpoint")


def _submit(run_name: str, action: str, expected_seq: int, nonce: str, save: bool | None, has_choice: bool) -> None:
    """The button's callback. A press that was carried out is not carried out again, whatever is run again."""
    if st.session_state.get("tv_done_nonce") == nonce:
        return
    by, reason = asked_by("tv_ask_who"), str(st.session_state.get("tv_ask_reason", ""))
    if not by.name or not reason.strip():
        st.session_state[OUTCOME_KEY] = Outcome(False, "Say who you are and why: both are kept with the request.")
        return
    how = HOW.get(str(st.session_state.get("tv_ask_how"))) if action == "pause" and has_choice else None
    outcome = ask(the_poller().settings, run_name, action, by, reason, expected_seq, save=save, how=how)
    st.session_state[OUTCOME_KEY] = outcome
    if outcome.is_done:
        keep_sent(run_name, outcome, the_poller().now_ns())
        keep_name(by)
        st.session_state["tv_done_nonce"] = nonce


def _ask_form(seen: Look, action: str) -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and outcome.is_done:
        st.session_state.pop(OUTCOME_KEY, None)
        st.session_state["tv_asked"] = outcome.sentence
        st.rerun()
    control = seen.run.control
    st.text(f"{seen.run.name}\nNow: {control.sentence}")
    saving = seen.run.pause.why
    meaning = {"pause": pause_meaning(seen.run), "resume": resume_meaning(control), "checkpoint": CHECKPOINT_MEANING}[action]
    st.text(meaning + (f" {saving[0].upper()}{saving[1:]}." if action == "pause" else ""))
    nonce = f"{seen.run.name}/{action}/{control.seq}/{seen.now_ns}"
    with st.form("tv_ask_form", border=False):
        who_field("Who asks", "tv_ask_who")
        st.text_area("Why", key="tv_ask_reason", max_chars=2000, height=80, placeholder="what you saw; a ticket number")
        if action == "pause" and has_choice_of_pause(seen.run):
            st.radio("How", list(HOW), key="tv_ask_how")
        label = {"pause": "Pause", "resume": "Resume", "checkpoint": "Save a checkpoint"}[action]
        asked = (seen.run.name, action, control.seq, nonce, seen.run.pause.save, has_choice_of_pause(seen.run))
        st.form_submit_button(plain(label), type="primary", on_click=_submit, args=asked)
    if outcome is not None:
        st.error(plain(outcome.sentence))


@st.dialog("Roll back", width="large")
def _roll_back(seen: Look) -> None:
    """What a restart from the safe checkpoint costs and takes: the supervisor does it, without one the trainer's own command."""
    safe = seen.run.recommended
    if safe is None:
        return
    level = safe.level.value if safe.level is not None else "not verified"
    optimizer = {
        True: "with optimizer state",
        False: "WITHOUT optimizer state: expect a rebound",
        None: "optimizer state not known",
    }[safe.has_optimizer]
    st.text(
        f"Safe checkpoint: step {fmt.step(safe.step)}, verified by {level}, {optimizer}, {fmt.size(safe.bytes)}.\n"
        f"{rollback_cost(seen.run)}"
    )
    if not safe.path.isprintable():
        st.text(
            "Its path holds control characters, so there is no command to copy: a terminal would act on them. Type it by hand."
        )
        return
    if seen.run.control.supervisor:
        _go_back_form(seen, safe.path, fmt.step(safe.step))
        return
    st.text("Nothing is done from here: your scheduler starts the trainer. On its host, from the checkout:")
    commands = rollback_commands(seen.run.settings.dir, safe.path, who() or "YOUR NAME", "WHY")
    st.code("\n".join(commands), language=None, wrap_lines=True)
    st.text(
        "Afterwards this page names the new attempt and the step it went on from; see that the loss comes back to what was usual. "
        "Resuming instead goes on with the weights in memory."
    )


def _submit_back(run_name: str, to: str, nonce: str) -> None:
    """As ``_submit``, for the supervisor."""
    if st.session_state.get("tv_done_nonce") == nonce:
        return
    by, reason = asked_by("tv_back_who"), str(st.session_state.get("tv_back_reason", ""))
    if not by.name or not reason.strip():
        st.session_state[OUTCOME_KEY] = Outcome(False, "Say who you are and why: both are kept with the request.")
        return
    poller = the_poller()
    now = poller.snapshot().run(run_name)  # a checkpoint may have become suspect since the dialog was opened
    doubt = doubt_words(to, now.suspects) if now is not None else ""
    if doubt and not st.session_state.get("tv_back_anyway"):
        st.session_state[OUTCOME_KEY] = Outcome(False, f"Nothing was asked: {doubt} {ANYWAY}")
        return
    outcome = go_back(poller.settings, run_name, to, by, reason)
    st.session_state[OUTCOME_KEY] = outcome
    if outcome.is_done:
        st.session_state[SENT_BACK_KEY] = SentBack(run_name, outcome.request_id, poller.now_ns())
        keep_name(by)
        st.session_state["tv_done_nonce"] = nonce


def _go_back_form(seen: Look, to: str, step: str) -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and outcome.is_done:
        st.session_state.pop(OUTCOME_KEY, None)
        st.session_state["tv_asked"] = outcome.sentence
        st.rerun()
    st.text(
        "The supervisor looks at the checkpoint, ends the trainer without a save, and starts it again from there. A pause or a stop ends "
        "with it."
    )
    nonce = f"{seen.run.name}/rollback/{to}/{seen.now_ns}"
    doubt = doubt_words(to, seen.run.suspects)
    with st.form("tv_back_form", border=False):
        who_field("Who asks", "tv_back_who")
        st.text_area("Why", key="tv_back_reason", max_chars=2000, height=80, placeholder="what you saw; a ticket number")
        if doubt or (outcome is not None and ANYWAY in outcome.sentence):
            st.text(doubt)
            st.checkbox("Go back to it all the same", key="tv_back_anyway")
        st.form_submit_button(
            plain(f"Go back to step {step}"), type="primary", on_click=_submit_back, args=(seen.run.name, to, nonce)
        )
    if outcome is not None:
        st.error(plain(outcome.sentence))


def asked_note() -> None:
    """Says once that a request went out; the state itself always comes from the trainer's status."""
    sentence = st.session_state.pop("tv_asked", None)
    if sentence:
        st.toast(plain(sentence))
