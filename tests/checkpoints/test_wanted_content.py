"""What somebody may restart from now is looked at before everything else."""

import os
from dataclasses import replace

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.checkpoints import CheckpointWatcher, life
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.schedule import Candidate, Policy, next_job
from trainvitals.checkpoints.verifier import Verifier
from trainvitals.clock import ManualClock
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel


def candidate(step, **values):
    report = CheckpointReport(
        f"/c/{step}", step, "huggingface", CheckpointState.VERIFIED, VerificationLevel.STRUCTURE, True, 3, 100
    )
    return Candidate(f"/c/{step}", f"s{step}", report, **values)


def test_a_wanted_one_comes_before_the_newest_and_before_a_look_that_was_interrupted():
    every = [candidate(3), candidate(2), candidate(1, round_ns=5)]
    job = next_job(every, 0, Policy(), {"/c/2"})
    assert (job.path, job.is_urgent, job.level) == ("/c/2", True, VerificationLevel.LOAD)
    assert next_job(every, 0, Policy(loads="off"), {"/c/2"}).level is VerificationLevel.CONTENT


@pytest.mark.parametrize(("contents", "expected"), [("all", "/c/2"), ("newest", "/c/2"), ("off", None)])
def test_it_is_read_unless_reading_is_switched_off(contents, expected):
    job = next_job(
        [candidate(3, looked="s3"), candidate(2), candidate(1)], 0, Policy(contents=contents, recheck_days=0), {"/c/2"}
    )
    assert (job.path if job is not None else None) == expected


def test_the_watcher_looks_at_what_it_was_advised_to_first(tmp_path):
    for step in (500, 1000, 1500):
        directory = make.huggingface(tmp_path / "c", step, modified_s=step)
        made.write_manifest(directory, step)
        os.utime(directory / "ckpt_manifest.json", (step, step))
    clock = ManualClock()
    verifier = Verifier(HashStore(str(tmp_path / "kept")), clock, Policy(loads="off"), in_thread=False)
    watcher = CheckpointWatcher([str(tmp_path / "c")], clock, verifier=verifier)
    watcher.advise([str(tmp_path / "c" / "checkpoint-500")], None)
    for _ in range(2):
        clock.advance(10)
        watcher.scan()
    proven = [report.step for report in watcher.reports if report.level is VerificationLevel.CONTENT]
    assert proven == [500]


def test_a_wanted_one_whose_bytes_were_compared_is_loaded_once():
    older = candidate(2, looked="s2")
    policy = Policy(recheck_days=0)
    job = next_job([candidate(3, looked="s3"), older], 0, policy, {"/c/2"})
    assert (job.path, job.level, job.is_urgent) == ("/c/2", VerificationLevel.LOAD, True)
    tried = replace(older, loaded="s2")
    assert next_job([candidate(3, looked="s3"), tried], 0, policy, {"/c/2"}) is None
    assert next_job([candidate(3, looked="s3"), older], 0, replace(policy, loads="off"), {"/c/2"}) is None


def test_what_was_loaded_once_is_loaded_again_when_it_is_looked_at_again():
    loaded = candidate(2, looked="s2")
    loaded = replace(loaded, report=replace(loaded.report, level=VerificationLevel.LOAD))
    job = next_job([candidate(3, looked="s3", looked_at_ns=10**18), loaded], 10**18, Policy())
    assert (job.path, job.level, job.is_urgent) == ("/c/2", VerificationLevel.LOAD, False)


def test_what_was_found_in_a_checkpoint_is_remembered_when_its_files_are_gone():
    reason = "model.pt: tensor w holds NaN (64 of 64 sampled values)"
    report = replace(candidate(2).report, state=CheckpointState.CORRUPT, reasons=(reason,))
    known = life.Known("/c/2", report)
    life.absent(known)
    life.absent(known)
    assert known.report.state is CheckpointState.DELETED
    assert known.report.reasons == ("its files are gone", f"before that: {reason}")
