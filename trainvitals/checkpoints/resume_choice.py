"""What a trainer that restarts now would load, found the way that its own code finds it, and what is dangerous about that.

Rules of the trainers: Megatron-LM ``checkpointing.py`` (read_metadata), DeepSpeed ``engine.py`` (load_checkpoint), transformers
``trainer_utils.py`` (get_last_checkpoint), accelerate ``accelerator.py`` (load_state), torchtitan ``checkpoint.py`` (_find_load_step),
Lightning ``checkpoint_connector.py``, NeMo ``exp_manager.py`` (check_resume), Orbax ``CheckpointManager.latest_step``, OLMo
``find_latest_checkpoint``, OLMo-core ``Checkpointer.latest_checkpoint``, Composer ``trainer.py`` (autoresume), llm.c find_max_step,
NeMo Automodel ``components/checkpoint/utils.py`` (find_latest_checkpoint), NeMo-RL ``utils/checkpoint.py`` (get_latest_checkpoint_path).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainvitals.checkpoints import resume_pointers, resume_problem
from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.inspection import stored_path
from trainvitals.checkpoints.names import final_name, marker_of
from trainvitals.checkpoints.parts import step_from_name
from trainvitals.checkpoints.resume_pointers import Seen
from trainvitals.records import CheckpointReport, ResumeChoice


@dataclass(frozen=True, slots=True)
class Pick:
    """name: of the chosen checkpoint in the directory, None = from scratch. is_pointer: a file or link decides, not the names.

    trouble: why the trainer finds nothing, or stops, although it looks; "" otherwise.
    """

    name: str | None
    how: str
    is_pointer: bool = False
    trouble: str = ""
    step: int | None = None


def choose(directory: str, reports: Iterable[CheckpointReport]) -> ResumeChoice | None:
    """The choice in ``directory`` (checkpoints right in it); None when nothing is known about how its trainer chooses.

    reports: of the checkpoints there, as inspected or watched; others are passed over.
    """
    seen = resume_pointers.look(directory)
    return None if seen is None else choose_from(seen, reports)


def choose_all(reports: Iterable[CheckpointReport]) -> list[ResumeChoice]:
    """The choice in each directory that holds a checkpoint of ``reports``."""
    every = list(reports)
    choices = (choose(directory, every) for directory in sorted({os.path.dirname(report.path) for report in every}))  # noqa: PTH120
    return [choice for choice in choices if choice is not None]


def choose_from(seen: Seen, reports: Iterable[CheckpointReport]) -> ResumeChoice | None:
    """As ``choose``, from what was read."""
    directory = os.path.normpath(stored_path(seen.directory))
    here = [report for report in reports if os.path.normpath(os.path.dirname(report.path)) == directory]  # noqa: PTH120
    for rule in _RULES:
        pick = rule(seen, here)
        if pick is None:
            continue
        path = None if pick.name is None else stored_path(os.path.join(seen.directory, pick.name))  # noqa: PTH118
        chosen = next((report for report in here if path and os.path.normpath(report.path) == os.path.normpath(path)), None)
        step = pick.step
        if step is None and pick.name is not None:
            step = chosen.step if chosen is not None else step_from_name(pick.name)
        is_there = pick.name is not None and pick.name in seen.names and pick.name not in seen.broken
        choice = ResumeChoice(directory, path, step, pick.how)
        problem = resume_problem.of(choice, chosen, here, is_there=is_there, is_pointer=pick.is_pointer, trouble=pick.trouble)
        return ResumeChoice(directory, path, step, pick.how, problem)
    return None


_Rule = Callable[[Seen, Sequence[CheckpointReport]], Pick | None]


def _megatron(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    how = resume_pointers.MEGATRON
    names = _matching(seen.directories, r"iter_(\d{7,18})\Z")
    # verl keeps the same file beside directories of its own naming (verl-project/verl issue 7952).
    others = _matching(seen.directories, r"global_step_(\d{1,18})\Z")
    if how in seen.unreadable:
        return Pick(None, how, True, f"{how} {seen.unreadable[how]}: the loader stops")
    text = seen.texts.get(how)
    if text is None:
        if names or (others and not _has(here, "deepspeed")):
            return Pick(None, how, True, f"there is no {how}, so a restart would begin at step 0")
        return None
    text = text.strip()
    if text == "release":
        return Pick("release", how, True)
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        told = "is empty" if not text else f"holds {printable(text, 60)!r}"
        return Pick(None, how, True, f"{how} {told}, which is no iteration: Megatron's loader stops there")
    step = int(text)
    name = others.get(step, f"global_step_{step}") if others and not names else f"iter_{step:07d}"
    return Pick(names.get(step, name), how, True, step=step)


def _latest(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    """A file (DeepSpeed, GPT-NeoX) or a link (OLMo and others) with the name of a directory beside it."""
    how = resume_pointers.DEEPSPEED
    if _has(here, "deepspeed_universal") and not _has(here, "deepspeed"):
        how = resume_pointers.DEEPSPEED_UNIVERSAL
    if how in seen.links:
        return _named(seen, seen.links[how], f"{how} (a link)")
    if how in seen.unreadable:
        return Pick(None, how, True, f"{how} {seen.unreadable[how]}: a restart would begin at step 0 or stop")
    if how in seen.texts:
        return _named(seen, seen.texts[how].strip(), how)
    if _has(here, "deepspeed", "deepspeed_universal"):
        return Pick(None, how, True, f"there is no {how}, so a restart would begin at step 0")
    return None


def _composer(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    how = resume_pointers.COMPOSER
    if how in seen.links:
        return _named(seen, seen.links[how], f"{how} (a link)")
    if resume_pointers.COMPOSER_REMOTE in seen.texts:
        text = seen.texts[resume_pointers.COMPOSER_REMOTE].strip().rpartition("/")[2]
        return _named(seen, text, resume_pointers.COMPOSER_REMOTE)
    if _has(here, "composer"):
        return Pick(None, how, True, f"there is no {how}, so autoresume would begin at step 0")
    return None


def _huggingface(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    names = _matching(seen.directories, r"checkpoint-(\d{1,18})\Z")
    return _highest(names, "highest checkpoint-N") if names else None


def _accelerate(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    names = _matching(seen.directories, r"checkpoint_(\d{1,18})\Z")
    return _highest(names, "highest checkpoint_N") if names and _has(here, "accelerate") else None


def _nemo_steps(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    """Automodel passes over a pointer to what is not there, and both take the highest step then, whatever is in it."""
    names = _matching(seen.directories, r"(?:epoch_\d{1,9}_)?step_(\d{1,18})\Z")
    link, text = resume_pointers.AUTOMODEL, resume_pointers.AUTOMODEL_TEXT
    pick = None
    if link in seen.links:
        pick = _named(seen, seen.links[link], f"{link} (a link)")
    elif text in seen.texts:
        pick = _named(seen, seen.texts[text].strip(), text)
    if pick is not None and pick.name in seen.directories and (names or _has(here, "dcp_parts")):
        return pick
    return _highest(names, "highest step_N") if names and (pick is not None or _has(here, "dcp_parts")) else None


def _torchtitan(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    names = _matching(seen.directories, r"step-(\d{1,18})\Z")
    if not names:
        return None
    how = "highest step-N with .metadata"
    probes = (".metadata", "model.safetensors.index.json")
    loadable = {step: name for step, name in names.items() if any(f"{name}/{probe}" in seen.probed for probe in probes)}
    if loadable:
        return _highest(loadable, how)
    # Others name directories in the same way and do not ask for .metadata (LitGPT).
    return Pick(None, how, trouble="no step-N holds .metadata: a restart would begin at step 0") if _has(here, "dcp") else None


def _olmo(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    names = _matching(seen.directories, r"step(\d{1,18})\Z")
    if not names or not _has(here, "olmo"):
        unsharded = _matching(seen.directories, r"step(\d{1,18})-unsharded\Z")
        return _highest(unsharded, "highest stepN-unsharded") if unsharded and _has(here, "olmo") else None
    asked = ("train/rank0.pt", "model_and_optim/.metadata", ".metadata.json")
    # Only OLMo-core writes the last of them, and it takes no directory without it.
    if any(f"{name}/{asked[2]}" in seen.probed for name in names.values()):
        whole = {step: name for step, name in names.items() if all(f"{name}/{file}" in seen.probed for file in asked)}
        return _highest(whole, "highest stepN that holds .metadata.json") if whole else None
    return _highest(names, "highest stepN")


def _orbax(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    if not _has(here, "orbax"):
        return None
    names = _matching(seen.directories, r"(?:[\w.-]{0,100}?_)?(\d{1,18})\Z")
    how = "highest step that was committed"
    return _highest(names, how) if names else Pick(None, how, trouble="no save was committed: a restart would begin at step 0")


def _nemo(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    if not _has(here, "nemo"):
        return None
    how = "the checkpoint named -last"
    last = [report for report in here if re.search(r"last(?:\.ckpt)?\Z", os.path.basename(report.path))]  # noqa: PTH119
    finished = [report for report in last if marker_of(os.path.basename(report.path)) not in seen.names]  # noqa: PTH119
    if not finished:
        why = "the one named -last is marked unfinished" if last else "none is named -last"
        return Pick(None, how, trouble=f"{why}: NeMo would begin at step 0 or stop")
    newest = max(finished, key=lambda report: report.modified_at_ns or 0)
    return Pick(os.path.basename(newest.path), how)  # noqa: PTH119


def _lightning(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    names = seen.names
    on_slurm = _matching(names, r"hpc_ckpt_(\d{1,9})\.ckpt\Z")
    if on_slurm:
        return Pick(on_slurm[max(on_slurm)], "highest hpc_ckpt_N.ckpt (under Slurm)")
    last = sorted(name for name in names if re.fullmatch(r"last(?:-v\d{1,9})?\.ckpt", name, re.ASCII))
    if last:
        newest = max(last, key=lambda name: (_modified_ns(seen, here, name), name))
        how = f'{newest} (ckpt_path="last")'
        return _named(seen, seen.links[newest], how) if newest in seen.links else Pick(newest, how)
    found = [report for report in here if report.format == "lightning" and report.step is not None]
    if not found:
        return None
    highest = max(found, key=lambda report: (report.step or 0, report.modified_at_ns or 0))
    return Pick(os.path.basename(highest.path), "highest step (there is no last.ckpt: Lightning loads what it is told to)")  # noqa: PTH119


def _nanogpt(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    return Pick("ckpt.pt", "ckpt.pt") if "ckpt.pt" in seen.files else None


def _llm_c(seen: Seen, here: Sequence[CheckpointReport]) -> Pick | None:
    done = _matching(seen.files, r"DONE_(\d{8,18})\Z")
    models = _matching(seen.files, r"model_(\d{8,18})\.bin\Z")
    how = "highest DONE_N"
    if not done:
        return Pick(None, how, trouble="there is no DONE_N: a restart would begin at step 0") if _has(here, "llm_c") else None
    step = max(done)
    return Pick(models.get(step, f"model_{step:08d}.bin"), how, True, step=step)


#: Asked in this order: what a pointer file says goes before what names say; the first that knows the trainer answers.
_RULES: tuple[_Rule, ...] = (
    _megatron, _composer, _latest, _nemo_steps, _huggingface, _torchtitan, _olmo, _orbax, _nemo, _lightning, _accelerate, _nanogpt, _llm_c,
)  # fmt: skip


def _matching(names: Iterable[str], pattern: str) -> dict[int, str]:
    """Step -> name."""
    compiled = re.compile(pattern, re.ASCII)
    return {int(found[1]): name for name in sorted(names) if final_name(name) == name and (found := compiled.match(name))}


def _highest(names: dict[int, str], how: str) -> Pick:
    step = max(names)
    return Pick(names[step], how, step=step)


def _named(seen: Seen, text: str, how: str) -> Pick:
    """What a pointer names, when it is the name of something in the same directory."""
    text = text.removeprefix("./").rstrip("/")
    if not text:
        return Pick(None, how, True, f"{how} is empty: a restart would begin at step 0 or stop")
    name = text
    if os.path.dirname(text) in (os.path.abspath(seen.directory), os.path.realpath(seen.directory)):  # noqa: PTH100, PTH120
        name = os.path.basename(text)  # noqa: PTH119
    if "/" in name or name in (".", "..") or not name.isprintable() or len(name) > 255:
        return Pick(None, how, True, f"{how} names {printable(text, 60)!r}, which is no checkpoint in this directory")
    return Pick(name, how, True)


def _has(here: Sequence[CheckpointReport], *formats: str) -> bool:
    return any(report.format in formats for report in here)


def _modified_ns(seen: Seen, here: Sequence[CheckpointReport], name: str) -> int:
    target = seen.links.get(name, name).rpartition("/")[2]
    return next((report.modified_at_ns or 0 for report in here if os.path.basename(report.path) == target), 0)  # noqa: PTH119
