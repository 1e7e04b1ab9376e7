"""The one door to Slurm's commands: argument lists, a time limit for each, bounded output. No other file runs one.

``slurmctld`` serves the whole cluster: callers look every ``slurm_poll_s`` at most, and take the text that costs least.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.supervisor import slurm_text
from trainvitals.supervisor.process import MARK
from trainvitals.supervisor.slurm_text import JOB_ID, Job, Node

LIMIT_S = 30.0
#: ``sbatch`` waits longer for a controller that is busy, and says nothing when it gave up: then the job is looked for.
SUBMIT_LIMIT_S = 120.0
MAX_OUTPUT_BYTES = 16 << 20
MAX_SAID = 300
#: A user's own defaults of these commands would leave nodes or jobs out of what they print.
_FILTERS = ("SINFO_", "SQUEUE_", "SCONTROL_", "SCANCEL_")


#: What a command says when the controller did not answer it to the end, so that it may have done what was asked (slurm_errno.c).
_SILENCES = (
    "Unable to contact", "Unable to connect", "timed out", "Connection refused", "Zero Bytes were transmitted", "Message receive failure",
    "Message send failure", "Communication connection failure", "Communication shutdown failure", "in standby mode",
    "Unexpected message received", "Insane message length", "temporarily unable",
)  # fmt: skip


class SlurmError(TrainvitalsError):
    """A command of Slurm did not do what was asked; ``is_silence``: it did not answer, so nothing is known of what it did."""

    def __init__(self, text: str, *, is_silence: bool = False) -> None:
        super().__init__(text)
        self.is_silence = is_silence


class UnknownJobError(SlurmError):
    """Slurm answers, and does not know this job (any more)."""


def run(argv: Sequence[str], limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None) -> str:
    """Its stdout. Raises ``SlurmError`` naming the command, with what it said."""
    # Own processes only carry the mark; what a job inherits must not be taken for one of this host.
    given = {
        name: value
        for name, value in (os.environ if environment is None else environment).items()
        if name != MARK and not name.startswith(_FILTERS)
    }
    is_looking = environment is None
    if is_looking:
        # Times are printed in the caller's zone without saying which.
        given |= {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    name = os.path.basename(argv[0])  # noqa: PTH119 - a command's name, no path to open
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=given, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise SlurmError(f"Cannot run {name}: {getattr(error, 'strerror', None) or error}.") from error
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise SlurmError(f"{name} did not answer within {limit_s:g} s.", is_silence=True) from None
        said, text = _read(errors), _read(output)
    if code == 0:
        return text
    short = " ".join(said.split())[:MAX_SAID] or f"exit code {code}"
    if "Invalid job id" in said:
        raise UnknownJobError(f"{name}: {short}")
    is_silence = code < 0 or any(one in said for one in _SILENCES)
    raise SlurmError(f"{name}: {short}", is_silence=is_silence)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")


def _job_id(job: str) -> str:
    if JOB_ID.fullmatch(job) is None:
        raise InputError(f"{job[:40]!r} is no number of a job.")
    return job


def show_nodes(partition: str = "") -> Mapping[str, Node]:
    """All nodes, or those of a partition; raises ``SlurmError``, as all below."""
    where = [f"--partition={partition}"] if partition else []
    return slurm_text.nodes(run(["sinfo", "-N", "-h", "-o", "%N|%T|%E", *where]))


def show_job(job: str) -> Job:
    """Raises ``UnknownJobError`` when Slurm knows it no more (``MinJobAge`` after its end)."""
    found = slurm_text.job(run(["scontrol", "show", "job", "-o", _job_id(job)]))
    if found is None or found.id != job:
        raise SlurmError(f"scontrol says nothing of job {job} that can be read.")
    return found


def submit(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """``sbatch … --parsable``; the job's id."""
    id = slurm_text.submitted(run(argv, SUBMIT_LIMIT_S, environment))
    if not id:
        raise SlurmError("sbatch told no number of a job.", is_silence=True)
    return id


def jobs_with_comment(beginning: str) -> tuple[tuple[str, str], ...]:
    """Of this user, those that are not over and whose comment begins so: (id, comment)."""
    return slurm_text.with_comment(run(["squeue", "-h", f"--user={os.geteuid()}", "-o", "%i|%k"]), beginning)


def cancel(job: str) -> None:
    """The job and all that it started; one that is over already is none to complain about."""
    with suppress(UnknownJobError):
        run(["scancel", _job_id(job)])


def exclude(job: str, names: str) -> None:
    """The nodes that a waiting job must not get; "" = all may be used."""
    run(["scontrol", "update", f"JobId={_job_id(job)}", f"ExcNodeList={names}"])


def start_soon(job: str) -> None:
    """Without the two minutes that Slurm lets a requeued job wait."""
    run(["scontrol", "update", f"JobId={_job_id(job)}", "StartTime=now"])


def hold(job: str) -> None:
    """Keep a waiting job from being started."""
    run(["scontrol", "hold", _job_id(job)])


def release(job: str) -> None:
    """Let a held job start."""
    run(["scontrol", "release", _job_id(job)])


def requeue_held(job: str) -> None:
    """Back into the queue, running or over, without being started."""
    run(["scontrol", "requeuehold", _job_id(job)])


def steps(job: str, since_ns: int) -> tuple[str, ...]:
    """Steps of this job that ``srun`` began at ``since_ns`` or later and that are not over."""
    return slurm_text.steps(run(["squeue", "-s", "-h", f"--jobs={_job_id(job)}", "-o", "%i|%S"]), since_ns)


def sruns(job: str) -> Mapping[str, tuple[str, int]]:
    """Step -> (host, process id) of the ``srun`` that began it."""
    return slurm_text.sruns(run(["scontrol", "show", "step", "-o", _job_id(job)]))


def cancel_step(step: str) -> None:
    """One of ``steps``."""
    with suppress(UnknownJobError):
        run(["scancel", step])
