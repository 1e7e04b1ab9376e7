"""The content of checkpoints inside the watcher: what is looked at when, what it ends with, and what a restart keeps."""

import json
import os
import shutil
import threading

import checkpoint_makers as make
import content_makers as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import CheckpointWatcher, load
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.life import LOOKING
from trainvitals.checkpoints.schedule import DAY_NS, Candidate, Policy, next_job
from trainvitals.checkpoints.verifier import Verifier
from trainvitals.checkpoints.watcher import report_from_mapping, report_to_mapping
from trainvitals.clock import ManualClock
from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, VerificationLevel

SCAN_S = 10.0
NO_LOAD = Policy(loads="off")


class Watched:
    """A watcher that looks at contents too, in the calling thread, with a clock that is moved."""

    def __init__(self, directory, kept, policy=NO_LOAD, in_thread=False) -> None:
        self.clock = ManualClock()
        self.directory, self.kept, self.policy, self.in_thread = str(directory), str(kept), policy, in_thread
        self.build()

    def build(self) -> None:
        limits = load.Limits(seconds=60, tries_torch=False)
        self.verifier = Verifier(HashStore(self.kept), self.clock, self.policy, "run", limits, in_thread=self.in_thread)
        self.watcher = CheckpointWatcher([self.directory], self.clock, verifier=self.verifier, run="run")

    def scan(self, times: int = 1, seconds: float = SCAN_S) -> dict[str, str]:
        for _ in range(times):
            self.clock.advance(seconds)
            self.watcher.scan()
        return self.states()

    def report(self, name="checkpoint-500") -> CheckpointReport:
        return next(report for report in self.watcher.reports if report.path.endswith(name))

    def states(self) -> dict[str, str]:
        return {os.path.basename(one.path): f"{one.state.value} {(one.level or '-')}" for one in self.watcher.reports}

    def restart(self) -> None:
        state = json.loads(json.dumps(self.watcher.to_state()))
        self.build()
        self.watcher.restore(state)


def test_the_newest_is_looked_at_first_and_then_the_older_ones_one_after_the_other(tmp_path):
    for step in (500, 1000, 1500):
        directory = make.huggingface(tmp_path / "c", step, modified_s=step)
        made.write_manifest(directory, step)
        os.utime(directory / "ckpt_manifest.json", (step, step))
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    watched.scan()
    levels = [watched.scan() for _ in range(3)]
    assert [list(one.values()).count("verified content") for one in levels] == [1, 2, 3]
    assert levels[0]["checkpoint-1500"] == "verified content"
    assert watched.report("checkpoint-1500").proof is ContentProof.MANIFEST
    assert watched.report("checkpoint-1500").verified_at_ns is not None
    again = watched.watcher.reports
    watched.scan(3)
    assert watched.watcher.reports == again


def test_the_newest_is_loaded_when_the_settings_say_so(tmp_path):
    path = tmp_path / "c" / "step_500.pt"
    path.parent.mkdir()
    path.write_bytes(made.torch_zip_with({"a.weight": [0.5, 0.25] * 600}))
    watched = Watched(tmp_path / "c", tmp_path / "kept", Policy())
    assert watched.scan(2) == {"step_500.pt": "verified load"}
    path.write_bytes(made.torch_zip_with({"a.weight": [0.5, float("nan")] * 600}))
    os.utime(path, (5, 5))
    watched.scan(8)
    assert watched.states() == {"step_500.pt": "corrupt content"}
    assert "holds NaN" in watched.report("step_500.pt").reasons[0]
    assert "it was verified" in " ".join(watched.report("step_500.pt").reasons)


def test_a_flipped_bit_is_found_by_the_next_check_after_days(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    assert watched.scan(2) == {"checkpoint-500": "verified content"}
    file = directory / "model.safetensors"
    before = file.stat()
    file.write_bytes(made.flipped(file.read_bytes(), before.st_size - 3))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watched.scan() == {"checkpoint-500": "verified content"}
    watched.scan(seconds=7 * 86_400 + 60)
    assert watched.scan() == {"checkpoint-500": "corrupt structure"}
    assert "model.safetensors: its content is not what ckpt_manifest.json says" in watched.report().reasons[0]


def test_without_a_manifest_the_first_hashes_are_compared_at_the_next_check(tmp_path):
    make.huggingface(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    assert watched.scan(2) == {"checkpoint-500": "verified structure"}
    assert "hashed now for the first time" in " ".join(watched.report().reasons)
    assert watched.scan(seconds=7 * 86_400 + 60) == {"checkpoint-500": "verified content"}
    assert watched.report().proof is ContentProof.FIRST_SEEN


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_change_of_the_files_takes_the_level_back_until_it_was_looked_at_again(tmp_path, is_restarted):
    directory = made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    watched.scan(2)
    if is_restarted:
        watched.restart()
    os.utime(directory / "model.safetensors", (7, 7))
    assert watched.scan() == {"checkpoint-500": "verifying presence"}
    assert watched.scan() == {"checkpoint-500": "verified content"}


def test_a_restart_keeps_what_was_proven_and_reads_nothing_again(tmp_path):
    made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    watched.scan(2)
    before = watched.watcher.reports
    watched.restart()
    shutil.rmtree(tmp_path / "kept")
    watched.scan(4)
    assert watched.watcher.reports == before
    assert not (tmp_path / "kept").exists()


def test_a_save_in_the_same_place_beside_the_old_manifest_is_never_called_corrupt_while_it_goes_on(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    watched.scan(2)
    parts = make.huggingface_parts(500)
    seen = set()
    for number, (name, content) in enumerate(parts.items()):
        changed = (
            content if name.endswith(".json") else make.torch_zip_bytes(storages=(number + 3,)) if name[-3:] != "ors" else content
        )
        (directory / name).write_bytes(changed)
        os.utime(directory / name, (2_000_000_000 + number,) * 2)
        seen |= {watched.scan()["checkpoint-500"], watched.scan()["checkpoint-500"]}
    made.write_manifest(directory, 500)
    watched.scan(3)
    assert not any(state.startswith(("corrupt", "incomplete")) for state in seen), seen
    assert watched.states() == {"checkpoint-500": "verified content"}


def test_a_deletion_while_the_content_is_looked_at_is_no_damage(tmp_path, monkeypatch):
    directory = made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    watched.scan()
    from trainvitals.checkpoints import verifier as module

    real = module.deepen

    def delete_meanwhile(*arguments):
        (directory / "model.safetensors").unlink()
        (directory / "optimizer.pt").unlink()
        return real(*arguments)

    monkeypatch.setattr(module, "deepen", delete_meanwhile)
    assert watched.scan() == {"checkpoint-500": "verified structure"}
    assert watched.scan() == {"checkpoint-500": "deleting -"}


def test_a_fault_of_ours_while_looking_is_counted_told_and_tried_again(tmp_path, monkeypatch):
    made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    from trainvitals.checkpoints import verifier as module

    real = module.deepen

    def broken(*arguments):
        raise RuntimeError("boom")

    monkeypatch.setattr(module, "deepen", broken)
    assert watched.scan(2) == {"checkpoint-500": "verified structure"}
    assert watched.watcher.errors == 1
    assert "RuntimeError: boom" in watched.watcher.text
    monkeypatch.setattr(module, "deepen", real)
    assert watched.scan(3) == {"checkpoint-500": "verified structure"}
    assert watched.watcher.errors == 1
    assert watched.scan(seconds=3_600) == {"checkpoint-500": "verified content"}


def test_a_newer_checkpoint_overtakes_an_older_one_and_the_older_one_goes_on_where_it_was(tmp_path):
    directory = make.huggingface(tmp_path / "c", 500, modified_s=500)
    made.write_manifest(directory, 500)
    os.utime(directory / "ckpt_manifest.json", (500, 500))
    make.huggingface(tmp_path / "c", 400, modified_s=600)  # newer by time: 500 is paced
    watched = Watched(tmp_path / "c", tmp_path / "kept", Policy(loads="off", mb_per_s=1e-6), in_thread=True)

    def wait_for_idle():
        for thread in threading.enumerate():
            if thread.name == "checkpoint-content":
                thread.join(20)

    watched.scan(2)
    wait_for_idle()
    watched.scan()
    # With the manual clock a pace of one byte a second only moves the clock: the look ends all the same.
    wait_for_idle()
    watched.scan()
    wait_for_idle()
    watched.scan(2)
    assert watched.states()["checkpoint-500"] == "verified content"


def test_a_look_of_hours_says_how_far_it_is(tmp_path):
    made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    from trainvitals.checkpoints.verifier import Progress

    watched_path = None

    class Slow(Verifier):
        done = 0

        def offer(self, candidates, wanted=()):
            nonlocal watched_path
            watched_path = candidates[0].path if candidates else None
            return None

        @property
        def progress(self):
            return Progress(watched_path, VerificationLevel.CONTENT, self.done, 1_000) if watched_path else None

    watched.watcher._verifier = slow = Slow(HashStore(None), watched.clock)
    watched.scan(2)
    told = []
    for done in range(0, 1_000, 50):
        slow.done = done
        watched.scan(seconds=30.0)
        told.append(watched.report().reasons)
    assert told[-1] == (f"{LOOKING}: 90 % of its bytes",)
    assert len(set(told)) <= 11


def report_of(step, state=CheckpointState.VERIFIED, level=VerificationLevel.STRUCTURE):
    return CheckpointReport(f"/c/{step}", step, "huggingface", state, level, True, 3, 100)


def candidate(step, **values):
    return Candidate(f"/c/{step}", f"s{step}", values.pop("report", None) or report_of(step), **values)


def test_the_newest_is_first_an_interrupted_look_second_then_by_age():
    newest, middle, oldest = candidate(3), candidate(2), candidate(1, round_ns=5)
    assert next_job([newest, middle, oldest], 0, Policy()).path == "/c/3"
    assert next_job([newest, middle, oldest], 0, Policy()).level is VerificationLevel.LOAD
    done = candidate(3, looked="s3", looked_at_ns=10)
    job = next_job([done, middle, oldest], 20, Policy())
    assert (job.path, job.since_ns, job.is_urgent, job.level) == ("/c/1", 5, False, VerificationLevel.CONTENT)
    assert next_job([done, middle], 20, Policy()).path == "/c/2"


def test_a_look_again_is_due_after_days_oldest_first_and_never_when_switched_off():
    done = [candidate(3, looked="s3", looked_at_ns=0), candidate(2, looked="s2", looked_at_ns=DAY_NS)]
    assert next_job(done, 6 * DAY_NS, Policy()) is None
    assert next_job(done, 9 * DAY_NS, Policy()).path == "/c/3"
    assert next_job(done, 9 * DAY_NS, Policy(recheck_days=0)) is None
    assert next_job(done, 9 * DAY_NS, Policy(contents="off")) is None
    assert next_job([candidate(1), candidate(2)], 0, Policy(contents="newest")).path == "/c/1"
    assert next_job([candidate(1, looked="s1"), candidate(2)], 1, Policy(contents="newest")) is None


def test_what_could_not_be_read_is_tried_again_within_the_hour():
    failed = candidate(1, looked="s1", looked_at_ns=0, could_not_read=True)
    assert next_job([failed], 3_599 * 10**9, Policy()) is None
    assert next_job([failed], 3_600 * 10**9, Policy()) is not None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            candidate,
            st.integers(1, 9),
            report=st.builds(report_of, st.integers(1, 9), st.sampled_from(list(CheckpointState))),
            looked=st.sampled_from(["", "s1", "s2", "s3"]),
            looked_at_ns=st.integers(0, 10 * DAY_NS),
            round_ns=st.sampled_from([0, 7]),
        ),
        max_size=6,
    ),
    st.integers(0, 20 * DAY_NS),
)
def test_only_checkpoints_whose_structure_is_good_are_ever_looked_at(candidates, now_ns):
    job = next_job(candidates, now_ns, Policy())
    if job is not None:
        chosen = [one for one in candidates if one.path == job.path and one.signature == job.signature]
        assert any(one.report.state in (CheckpointState.VERIFIED, CheckpointState.COMPLETE) for one in chosen)


def test_watch_takes_what_other_nodes_hashed_and_reads_the_rest(tmp_path, capsys):
    from trainvitals.__main__ import main

    made.huggingface_with_manifest(tmp_path / "c", 500, shards=3)
    shares = str(tmp_path / "shares")
    assert main(["checkpoint", "verify", str(tmp_path / "c"), "--level", "content", "--share", "1/2", "--record", shares]) == 0
    (tmp_path / "shares" / "other.json").write_text("{")
    watched = Watched(tmp_path / "c", tmp_path / "kept")
    import time

    watched.clock = ManualClock(time.time_ns())
    store = HashStore(watched.kept, shares)
    verifier = Verifier(store, watched.clock, NO_LOAD, in_thread=False)
    read = []
    tell, verifier._tell = verifier._tell, lambda count: read.append(count)
    watched.watcher = CheckpointWatcher([watched.directory], watched.clock, verifier=verifier)
    assert watched.scan(2) == {"checkpoint-500": "verified content"}
    assert 0 < sum(read) < watched.report().bytes * 2 // 3
    assert store.errors == 0
    assert callable(tell)


def test_the_mark_that_a_look_is_running_is_gone_when_it_has_ended(tmp_path):
    made.huggingface_with_manifest(tmp_path / "c", 500)
    watched = Watched(tmp_path / "c", tmp_path / "kept", in_thread=True)
    watched.scan(2)
    for thread in threading.enumerate():
        if thread.name == "checkpoint-content":
            thread.join(20)
    watched.scan()
    assert watched.states() == {"checkpoint-500": "verified content"}
    assert LOOKING not in watched.report().reasons
    assert report_from_mapping(json.loads(json.dumps(report_to_mapping(watched.report())))) == watched.report()
