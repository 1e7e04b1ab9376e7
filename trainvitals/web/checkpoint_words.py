"""What the checkpoints page says: the safe one and its cost, what a restart would load, each checkpoint's story. Free of Streamlit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainvitals.charts.checkpoint_timeline import Around
from trainvitals.charts.checkpoints import DAMAGED, GOING, LOOKS, WHOLE, lanes_of, suspicion
from trainvitals.charts.save_bars import save_sentence
from trainvitals.incidents.amounts import gpu_hours
from trainvitals.incidents.checkpoint_card import GONE
from trainvitals.incidents.suspect import is_about_weights
from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, ResumeChoice, VerificationLevel
from trainvitals.web import format as fmt
from trainvitals.web.death import Line
from trainvitals.web.told_troubles import CHECKPOINTS
from trainvitals.web.view import RunView, SaveTime, Start

#: Rows of the table, and reasons why a newer one is not recommended, that are shown at once.
TABLE_ROWS = 200
SHOWN_REJECTED = 8
_PROOFS: dict[ContentProof, str] = {
    ContentProof.NONE: "",
    ContentProof.MANIFEST: "against the hashes that the writer took",
    ContentProof.INTEGRITY_JSON: "against Megatron's integrity.json",
    ContentProof.CHECKSUM: "against the checksums inside the files",
    ContentProof.FIRST_SEEN: "against what was first seen: unchanged since then, no more",
}


def level_of(report: CheckpointReport) -> str:
    """How far it was looked at."""
    return report.level.value if report.level is not None else "nothing"


def safe_sentence(run: RunView) -> str:
    """``Safe: step 48,000, content verified, 210 steps before the onset, kept from deletion.``; or why there is none."""
    back, safe = run.rollback, run.recommended
    if safe is None:
        return back.why or "No checkpoint is verified yet: none can be called safe."
    parts = [f"step {fmt.step(safe.step)}", f"{level_of(safe)} verified"]
    if _is_sick(run) and back.onset_step is not None and safe.step is not None and safe.step < back.onset_step:
        parts.append(f"{back.onset_step - safe.step:,} steps before the onset at step {fmt.step(back.onset_step)}")
    if safe.has_optimizer is False:
        parts.append("WITHOUT optimizer state: expect a rebound")
    if back.is_pinned:
        parts.append("kept from deletion")
    return f"{'To be loaded before it is used' if back.needs_load else 'Safe'}: {', '.join(parts)}."


def _is_sick(run: RunView) -> bool:
    """An onset of which nobody needs to know any more is not told."""
    return any(one.is_open and is_about_weights(one) for one in run.incidents)


def _is_of_the_program(run: RunView) -> bool:
    """Whether the evidence is in the program or its settings, and none in the data: other batches would not help."""
    marked = {check.layer for check in run.checks if check.mark == "!"}
    return "code" in marked and "data" not in marked


def cost_sentence(run: RunView) -> str:
    """``Going back runs 310 steps again: about 51 min = 4,410 GPU-h, 1.3 G tokens.``; empty without a safe one."""
    back = run.rollback
    if back.checkpoint is None or back.redo_steps is None:
        return ""
    text = f"Going back runs {back.redo_steps:,} step{'s' if back.redo_steps != 1 else ''} again"
    parts = []
    if run.steps_per_s and back.redo_steps:
        hours = gpu_hours(back.redo_gpu_hours) if back.redo_gpu_hours else ""
        parts.append(f"about {fmt.span(back.redo_steps / run.steps_per_s)}" + (f" = {hours}" if hours else ""))
    if back.redo_tokens:
        parts.append(f"{fmt.number(float(back.redo_tokens))} tokens")
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."


def way_back_lines(run: RunView) -> tuple[Line, ...]:
    """What a restart now would do, what going back costs, why that checkpoint, and which data to skip."""
    back = run.rollback
    lines = list(choice_lines(run))
    if back.checkpoint is not None:
        lines.append(Line("going back", cost_sentence(run)))
        lines.append(Line("why this one", back.why))
        if not back.command.text:
            lines.append(Line("command", f"{back.command.problem or 'not known'}."))
    if back.skip is not None and _is_sick(run) and not _is_of_the_program(run):
        lines.append(Line("data", back.skip.sentence))
    return tuple(line for line in lines if line.value)


def verify_command(report: CheckpointReport, level: str = "content") -> str:
    """The command that compares its bytes, or loads it, too; empty where a terminal would act on its path before any shell has seen the quotes."""
    if not report.path.isprintable():
        return ""
    return f"python -m trainvitals checkpoint verify {shlex.quote(report.path)} --level {level}"


def rejected_lines(run: RunView, most: int = SHOWN_REJECTED) -> tuple[Line, ...]:
    """Newer ones that are not recommended, the newest first, each with its reason."""
    step = run.recommended.step if run.recommended is not None else None
    newer = [
        one for one in run.checkpoints
        if one.path in run.rollback.rejected and one.state not in GONE and (step is None or (one.step or 0) >= step)
    ]  # fmt: skip
    newer.sort(key=lambda one: (one.step or 0, one.modified_at_ns or 0), reverse=True)
    lines = [Line(f"step {fmt.step(one.step)}", run.rollback.rejected[one.path]) for one in newer[:most]]
    if len(newer) > most:
        lines.append(Line("", f"and {len(newer) - most:,} more"))
    return tuple(lines)


def choice_lines(run: RunView) -> tuple[Line, ...]:
    """What a restart now would load from each directory, said loudly where that is not the newest verified one."""
    return tuple(line for choice in run.choices if (line := _choice_line(run, choice)) is not None)


def _choice_line(run: RunView, choice: ResumeChoice) -> Line | None:
    label = "a restart now" if len(run.choices) == 1 else f"a restart from {choice.directory}"
    newest = run.newest_verified
    best = f"; the newest verified is step {fmt.step(newest.step)}" if newest is not None else ""
    if choice.path is None:
        here = [one for one in run.checkpoints if one.state in WHOLE and one.path.startswith(choice.directory.rstrip("/") + "/")]
        if not here:
            return None
        return Line(label, f"would begin from scratch ({choice.how}){best}.", choice.problem, tone="critical")
    report = next((one for one in run.checkpoints if one.path == choice.path), None)
    step = choice.step if choice.step is not None else report.step if report is not None else None
    what = f"would load step {fmt.step(step)} ({choice.how})"
    if report is not None and report.state in DAMAGED | GOING | {CheckpointState.UNKNOWN_FORMAT}:
        state = report.state.value.replace("_", " ")
        return Line(label, f"{what}, which is {state}{best}.", choice.problem, tone="critical")
    if choice.path in run.suspects:
        safe = f"; safe is step {fmt.step(run.recommended.step)}" if run.recommended is not None else ""
        onset = fmt.step(run.suspects[choice.path])
        return Line(label, f"{what}, saved at or after the onset at step {onset}{safe}.", choice.problem, tone="critical")
    if newest is not None and choice.path != newest.path and (step or 0) < (newest.step or 0):
        return Line(label, f"{what}{best}.", choice.problem, tone="critical")
    if report is not None and report.state is CheckpointState.VERIFIED:
        tone = "warning" if choice.problem else ""
        return Line(label, f"{what}, {level_of(report)} verified.", choice.problem, tone=tone)
    state = report.state.value.replace("_", " ") if report is not None else "not among those that are watched"
    return Line(
        label, f"{what}: {state}, not verified{best}.", choice.problem, tone="warning" if choice.problem or report is None else ""
    )


def restart_note(run: RunView) -> str:
    """The first of them that must not happen, in a few words; empty when a restart would do the right thing, or nothing is known.
    Before it, that nobody looks: what stands here is then of before."""
    if CHECKPOINTS in run.troubles and (
        run.checkpoints or run.last_step is not None
    ):  # before the first start there is no directory
        return "⚠ they cannot be looked at now" + (": what you see is of before" if run.checkpoints else "")
    for line in choice_lines(run):
        if line.tone == "critical":
            return f"▲ {line.label} {line.value.split('; the newest')[0].rstrip('.')}"
    return ""


def look_sentence(run: RunView) -> str:
    """Why the checkpoints cannot be looked at now; "" when they can."""
    if CHECKPOINTS not in run.troubles:
        return ""
    return f"⚠ {run.troubles[CHECKPOINTS].rstrip('.')}." + (" What you see is of before." if run.checkpoints else "")


def start_lines(run: RunView, most: int = 6) -> tuple[Line, ...]:
    """The newest starts that went on from something, newest first."""
    return tuple(_start_line(one) for one in reversed(run.starts[-most:]))


def _start_line(start: Start) -> Line:
    losses = f"loss {fmt.number(start.loss_before)} → {fmt.number(start.loss_after)}"
    text = f"went on from step {fmt.step(start.from_step)} · {losses} · settings: {start.settings}"
    if start.problem:
        return Line(f"attempt {start.attempt}", f"{text} · {start.problem}", start.path, tone="warning")
    return Line(f"attempt {start.attempt}", text, start.path)


def around_of(run: RunView) -> Around:
    """What the timeline draws around the checkpoints."""
    return Around(
        saves=run.saves,
        starts=run.starts,
        pinned=frozenset({*run.pinned, *filter(None, run.pinned.values())}),
        recommended=run.recommended.path if run.recommended is not None else "",
        picked=frozenset(choice.path for choice in run.choices if choice.path is not None),
    )


def table_reports(run: RunView) -> list[CheckpointReport]:
    """Newest step first: those that are named somewhere, those that are there, then the deleted ones, up to ``TABLE_ROWS``."""
    around = around_of(run)
    named = {around.recommended, *around.picked, *around.pinned}

    def rank(one: CheckpointReport) -> tuple[int, int]:
        return 0 if one.path in named else 1 if one.state not in GONE else 2, -(one.step if one.step is not None else -1)

    chosen = sorted(run.checkpoints, key=rank)[:TABLE_ROWS]
    return sorted(chosen, key=lambda one: (one.step is not None, one.step or 0, one.path), reverse=True)


def marks_of(report: CheckpointReport, run: RunView, around: Around) -> str:
    """What a person must know of it beside its state: safe, suspect, kept, loaded by a restart."""
    parts = []
    if report.path == around.recommended:
        parts.append("◀ safe")
    if report.path in around.picked:
        parts.append("restart loads it")
    if report.path in around.pinned:
        parts.append("kept")
    onset = run.suspects.get(report.path) if report.state in WHOLE else None
    if onset is not None and report.path != around.recommended:
        parts.append(f"! suspect since {fmt.step(onset)}")
    return ", ".join(parts)


def took(save: SaveTime | None) -> str:
    """``0.4 s of 48 s``: how long the training waited, of how long it took."""
    if save is not None and save.problem:
        return "failed"
    if save is None or save.longest_s is None:
        return fmt.UNKNOWN
    waited = fmt.span(save.blocked_s) if save.blocked_s is not None else "?"
    return f"{waited} of {fmt.span(save.persisted_s)}" if save.persisted_s is not None else waited


def save_for(report: CheckpointReport, saves: Sequence[SaveTime], attempt: int | None = None) -> SaveTime | None:
    """The newest save of it: by its path, else by its step."""
    own = [save for save in saves if save.path == report.path] or [
        save for save in saves if not save.path and save.step == report.step
    ]
    own = [save for save in own if attempt is None or save.attempt == attempt] or own
    return max(own, key=lambda save: save.time_ns or 0, default=None)


def detail_lines(report: CheckpointReport, run: RunView, now_ns: int) -> tuple[Line, ...]:
    """Everything that is known of one checkpoint."""
    zone = run.settings.log_timezone
    state = report.state.value.replace("_", " ")
    tone = "critical" if report.state in DAMAGED else ""
    # Only a state that is verified may be called so: the level of a damaged one is what it passed before damage was found.
    how = "verified" if report.state is CheckpointState.VERIFIED else "looked at"
    lines = [
        Line("state", f"{LOOKS[report.state][1]} {state}" + (f", {level_of(report)} {how}" if report.level else ""), tone=tone)
    ]
    lines += [Line("", reason, tone=tone) for reason in report.reasons[:20]]
    if report.path in run.suspects:
        doubt = f"{suspicion(run.suspects[report.path])}. Its files may be whole; its weights may not be"
        lines.append(Line("weights", f"{doubt}.", tone="warning"))
    around = around_of(run)
    if report.path == around.recommended:
        lines.append(Line("recommended", run.rollback.why))
    elif report.path in run.rollback.rejected:
        lines.append(Line("not recommended", f"{run.rollback.rejected[report.path]}."))
    if report.path in run.pinned:
        lines.append(Line("kept from deletion", run.pinned[report.path] or "yes"))
    proof = _PROOFS[report.proof]
    if proof or report.verified_at_ns is not None:
        when = fmt.moment(report.verified_at_ns, zone, now_ns=now_ns) if report.verified_at_ns is not None else ""
        lines.append(Line("bytes compared", " · ".join(part for part in (proof, when) if part)))
    elif report.level is not None and report.level not in (VerificationLevel.CONTENT, VerificationLevel.LOAD):
        lines.append(Line("bytes compared", "not yet: only names, sizes and structure were read"))
    holds = {
        "optimizer": report.has_optimizer, "scheduler": report.has_scheduler, "random state": report.has_rng,
        "data position": report.has_data_position,
    }  # fmt: skip
    words = [f"{name}: {({True: 'yes', False: 'NO', None: 'not known'})[has]}" for name, has in holds.items()]
    lines.append(Line("holds", " · ".join(words), tone="warning" if report.has_optimizer is False else ""))
    parallel = " × ".join(f"{name} {size:,}" for name, size in sorted(report.parallel.items()))
    world = f"{report.world_size:,} ranks" if report.world_size is not None else ""
    if world or parallel:
        lines.append(Line("written by", " · ".join(part for part in (world, parallel) if part)))
    largest = f", the largest {fmt.size(report.largest_file_bytes)}" if report.largest_file_bytes is not None else ""
    lines.append(
        Line(
            "files",
            f"{report.files:,} file{'s' if report.files != 1 else ''}, {fmt.size(report.bytes)}{largest} · {report.format}",
        )
    )
    save = save_for(report, run.saves)
    if save is not None and (save.longest_s is not None or save.problem):
        lines.append(Line("save", save_sentence(save)))
    if report.loss is not None:
        lines.append(Line("loss", fmt.number(report.loss)))
    lines.append(Line("written", fmt.moment(report.modified_at_ns, zone, now_ns=now_ns)))
    lines += [
        Line("went on from it", f"attempt {one.attempt}, {fmt.moment(one.started_ns, zone, now_ns=now_ns)}")
        for one in run.starts if one.path == report.path
    ]  # fmt: skip
    for lane, earlier in lanes_of([entry for entry in run.checkpoint_history if entry[1].path == report.path], run.attempts):
        if earlier.state in DAMAGED and earlier.modified_at_ns != report.modified_at_ns:
            why = f": {'; '.join(earlier.reasons[:5])}" if earlier.reasons else ""
            glyph = LOOKS[earlier.state][1]
            lines.append(Line("before", f"{glyph} attempt {lane} left it {earlier.state.value}{why}.", tone="warning"))
    return tuple(lines)
