import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import checkpoint_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals import manifest
from trainvitals.checkpoints import CheckpointWatcher
from trainvitals.checkpoints.watcher import report_from_mapping, report_to_mapping
from trainvitals.clock import ManualClock

SCAN_S = 10.0
BAD = {"incomplete", "corrupt"}


class Watched:
    """A watcher with a clock; ``scan`` moves the clock by one period first."""

    def __init__(self, *directories: Path) -> None:
        self.clock = ManualClock()
        self.directories = [str(directory) for directory in directories]
        self.watcher = CheckpointWatcher(self.directories, self.clock)

    def scan(self, times: int = 1) -> dict[str, str]:
        for _ in range(times):
            self.clock.advance(SCAN_S)
            self.changed = self.watcher.scan()
        return self.states()

    def states(self) -> dict[str, str]:
        return {Path(report.path).name: str(report.state) for report in self.watcher.reports}

    def restart(self) -> None:
        state = json.loads(json.dumps(self.watcher.to_state()))
        self.watcher = CheckpointWatcher(self.directories, self.clock)
        self.watcher.restore(state)


def touch(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def test_a_whole_checkpoint_is_complete_at_first_sight_and_verified_when_it_stands_still(tmp_path):
    make.huggingface(tmp_path, 500)
    watched = Watched(tmp_path)
    assert watched.scan() == {"checkpoint-500": "complete"}
    assert watched.scan() == {"checkpoint-500": "verified"}
    assert [report.level for report in watched.changed] == ["structure"]
    watched.scan()
    assert watched.changed == []


def test_a_save_in_hugging_face_order_is_writing_until_its_last_file(tmp_path):
    make.huggingface(tmp_path, 500, modified_s=1_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    directory = tmp_path / "checkpoint-1000"
    directory.mkdir()
    assert watched.scan()["checkpoint-1000"] == "writing"
    seen = set()
    for number, (name, content) in enumerate(make.huggingface_parts(1000, shards=2, ranks=2).items()):
        for kept in (0, len(content) // 2, len(content)):
            (directory / name).write_bytes(content[:kept])
            touch(directory / name, 2_000 + number)
            # Twice: a save may pause as long as one scan.
            seen |= {watched.scan()["checkpoint-1000"], watched.scan()["checkpoint-1000"]}
            assert watched.states()["checkpoint-500"] == "verified"
    assert not seen & BAD
    watched.scan(2)
    assert watched.states()["checkpoint-1000"] == "verified"


def manifest_of(directory: Path, spoil: str = "") -> str:
    files = [
        {
            "path": path.name,
            "size": path.stat().st_size + (path.name == spoil),
            "hash": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(directory.iterdir())
    ]
    return json.dumps({"schema": manifest.SCHEMA, "algorithm": "sha256", "step": 500, "files": files})


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_verified_checkpoint_stays_so_while_its_hashes_are_written_beside_it_and_is_judged_by_them_then(tmp_path, is_restarted):
    directory = make.huggingface(tmp_path, 500)
    watched = Watched(tmp_path)
    watched.scan(2)
    text = manifest_of(directory)
    for name, part in (
        ("ckpt_manifest.json.tmp", text[:9]),
        ("ckpt_manifest.json.tmp", text),
        ("ckpt_manifest.rank00000.json", text),
    ):
        (directory / name).write_text(part)
        if is_restarted:
            watched.restart()
        assert watched.scan() == {"checkpoint-500": "verified"}
        assert watched.watcher.reports[0].level == "structure"
    (directory / "ckpt_manifest.json.tmp").rename(directory / "ckpt_manifest.json")
    assert [watched.scan()["checkpoint-500"] for _ in range(3)] == ["verified"] * 3


def test_hashes_that_say_something_else_end_the_verdict(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    watched = Watched(tmp_path)
    watched.scan(2)
    (directory / "ckpt_manifest.json").write_text(manifest_of(directory, spoil="model.safetensors"))
    assert watched.scan() == {"checkpoint-500": "verified"}
    assert watched.scan(6) == {"checkpoint-500": "corrupt"}
    assert "model.safetensors" in watched.watcher.reports[0].reasons[0]


def test_files_that_change_together_with_their_hashes_are_looked_at_anew_at_once(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    watched = Watched(tmp_path)
    watched.scan(2)
    (directory / "ckpt_manifest.json").write_text(manifest_of(directory))
    touch(directory / "model.safetensors", 5)
    assert watched.scan()["checkpoint-500"] != "verified"


def test_a_save_that_died_is_incomplete_only_after_it_stood_still(tmp_path):
    watched = Watched(tmp_path)
    directory = make.write_parts(tmp_path / "checkpoint-500", dict(list(make.huggingface_parts(500).items())[:3]))
    assert [watched.scan()["checkpoint-500"] for _ in range(3)] == ["writing"] * 3
    watched.scan()
    assert watched.states() == {"checkpoint-500": "incomplete"}
    assert "trainer_state.json is missing" in watched.watcher.reports[0].reasons[0]
    # The trainer comes back and saves the same step again.
    make.write_parts(directory, make.huggingface_parts(500))
    assert watched.scan()["checkpoint-500"] == "writing"
    assert watched.scan()["checkpoint-500"] == "verified"


def test_a_save_in_progress_when_the_watcher_starts_is_writing(tmp_path):
    make.huggingface(tmp_path, 500, modified_s=1_000)
    make.write_parts(tmp_path / "checkpoint-1000", dict(list(make.huggingface_parts(1000).items())[:4]))
    watched = Watched(tmp_path)
    assert watched.scan() == {"checkpoint-1000": "writing", "checkpoint-500": "complete"}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deletion_file_by_file_is_never_called_damage(tmp_path, is_restarted):
    names = sorted(make.huggingface_parts(500, shards=2, ranks=2))
    for order in (names, names[::-1], names[3:] + names[:3]):
        root = tmp_path / f"order-{order[0]}"
        make.huggingface(root, 500, modified_s=1_000, shards=2, ranks=2)
        make.huggingface(root, 1000, modified_s=2_000)
        watched = Watched(root)
        watched.scan(2)
        for name in order:
            (root / "checkpoint-500" / name).unlink()
            if is_restarted:
                watched.restart()
            # Twice: a deletion may pause too.
            assert watched.scan()["checkpoint-500"] == "deleting"
            assert watched.scan()["checkpoint-500"] == "deleting"
        (root / "checkpoint-500").rmdir()
        assert watched.scan()["checkpoint-500"] == "deleting"
        assert watched.scan() == {"checkpoint-1000": "verified", "checkpoint-500": "deleted"}


def test_a_deletion_first_seen_half_way_is_not_called_damage(tmp_path):
    directory = make.huggingface(tmp_path, 500, modified_s=1_000)
    make.huggingface(tmp_path, 1000, modified_s=2_000)
    watched = Watched(tmp_path)
    for name in ("trainer_state.json", "model.safetensors", "optimizer.pt"):
        (directory / name).unlink()
        assert watched.scan()["checkpoint-500"] == "deleting"
    shutil.rmtree(directory)
    watched.scan(2)
    assert watched.states()["checkpoint-500"] == "deleted"


def test_a_deletion_stays_one_when_a_file_that_is_left_changes_on_the_way(tmp_path):
    directory = make.huggingface(tmp_path, 500, modified_s=1_000)
    make.huggingface(tmp_path, 1000, modified_s=2_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    (directory / "optimizer.pt").unlink()
    watched.scan()
    (directory / "model.safetensors").write_bytes(b"")
    touch(directory / "model.safetensors", 1_500)
    assert watched.scan(3)["checkpoint-500"] == "deleting"


def test_a_save_that_renames_its_first_files_is_still_writing(tmp_path):
    directory = make.write_parts(tmp_path / "checkpoint-500", {"config.json.new": b"{}", "state.new": b"1234"})
    watched = Watched(tmp_path)
    assert watched.scan()["checkpoint-500"] == "writing"
    (directory / "config.json.new").rename(directory / "config.json")
    assert watched.scan()["checkpoint-500"] == "writing"
    (directory / "state.new").unlink()
    assert watched.scan()["checkpoint-500"] == "writing"


def test_an_old_half_checkpoint_that_nobody_deletes_is_incomplete_in_the_end(tmp_path):
    directory = make.huggingface(tmp_path, 500, modified_s=1_000)
    make.huggingface(tmp_path, 1000, modified_s=2_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    (directory / "optimizer.pt").unlink()
    assert watched.scan(50)["checkpoint-500"] == "deleting"
    assert watched.scan(20)["checkpoint-500"] == "incomplete"


@pytest.mark.parametrize("name", sorted(make.huggingface_parts(500)))
@pytest.mark.parametrize("step", [500, 1000])
def test_a_verified_checkpoint_that_is_cut_short_later_is_corrupt(tmp_path, name, step):
    make.huggingface(tmp_path, 500, modified_s=1_000)
    make.huggingface(tmp_path, 1000, modified_s=2_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    file = tmp_path / f"checkpoint-{step}" / name
    file.write_bytes(file.read_bytes()[:-1])
    assert watched.scan()[f"checkpoint-{step}"] == "verifying"
    watched.scan(4)
    assert watched.states()[f"checkpoint-{step}"] == "corrupt"
    assert "it was verified before it changed" in watched.watcher.reports[0].reasons


def test_the_restart_of_the_watcher_forgets_nothing_and_looks_again_only_at_what_changed(tmp_path, monkeypatch):
    make.huggingface(tmp_path, 500, modified_s=1_000)
    make.huggingface(tmp_path, 1000, modified_s=2_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    watched.restart()
    before = watched.watcher.reports
    looked = []
    monkeypatch.setattr("trainvitals.checkpoints.watcher.look_at", lambda seen, level, run: looked.append(seen))
    watched.scan(3)
    assert looked == []
    assert watched.changed == []
    assert watched.watcher.reports == before


def test_a_directory_that_goes_missing_keeps_its_reports_and_heals(tmp_path):
    root = tmp_path / "run"
    make.huggingface(root, 500)
    watched = Watched(root)
    watched.scan(2)
    root.rename(tmp_path / "away")
    assert watched.scan(5) == {"checkpoint-500": "verified"}
    assert watched.watcher.errors == 5
    assert "There is no directory" in watched.watcher.text
    (tmp_path / "away").rename(root)
    assert watched.scan() == {"checkpoint-500": "verified"}
    assert watched.watcher.text == ""


def test_an_empty_place_where_a_file_system_was_mounted_deletes_nothing(tmp_path):
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    real, mounted = tmp_path / "real", tmp_path / "mounted"
    make.huggingface(real, 500)
    mounted.symlink_to(real)
    watched = Watched(mounted)
    watched.scan(2)
    with tempfile.TemporaryDirectory(dir=other) as empty:
        mounted.unlink()
        mounted.symlink_to(empty)
        assert watched.scan(3) == {"checkpoint-500": "verified"}
        assert "is it mounted?" in watched.watcher.text
    mounted.unlink()
    mounted.symlink_to(real)
    assert watched.scan() == {"checkpoint-500": "verified"}
    assert watched.changed == []


def test_a_restart_while_the_file_system_is_not_mounted_deletes_nothing_either(tmp_path):
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    real, mounted = tmp_path / "real", tmp_path / "mounted"
    make.huggingface(real, 500)
    mounted.symlink_to(real)
    before = Watched(mounted)
    before.scan(2)
    kept = json.loads(json.dumps(before.watcher.to_state()))
    after = Watched(mounted)
    with tempfile.TemporaryDirectory(dir=other) as empty:
        mounted.unlink()
        mounted.symlink_to(empty)
        after.watcher.restore(kept)
        assert after.scan(3) == {"checkpoint-500": "verified"}
        assert "is it mounted?" in after.watcher.text
    mounted.unlink()
    mounted.symlink_to(real)
    assert after.scan() == {"checkpoint-500": "verified"} and after.watcher.text == ""


def test_a_save_that_removes_old_shards_is_writing_not_deleting(tmp_path):
    directory = make.huggingface(tmp_path, 500, shards=3)
    watched = Watched(tmp_path)
    watched.scan(2)
    for name in list(make.huggingface_parts(500, shards=3)):
        if "-of-" in name or "index" in name:
            (directory / name).unlink()
    (directory / "model.safetensors").write_bytes(make.safetensors_bytes({"w": ("F32", (64, 64))}))
    assert watched.scan()["checkpoint-500"] == "writing"
    assert watched.scan()["checkpoint-500"] == "verified"


def test_a_file_overwritten_in_place_is_writing_and_then_verified_again(tmp_path):
    path = tmp_path / "ckpt.pt"
    path.write_bytes(make.torch_zip_bytes())
    watched = Watched(tmp_path)
    assert watched.scan(2) == {"ckpt.pt": "verified"}
    content = make.torch_zip_bytes({"optimizer": {}}, storages=(64, 64))
    seen = []
    for number, kept in enumerate((0, 100, 500, len(content))):
        path.write_bytes(content[:kept])
        touch(path, 5_000 + number)
        seen.append(watched.scan()["ckpt.pt"])
    assert not set(seen) & BAD
    assert watched.scan(2) == {"ckpt.pt": "verified"}
    assert watched.watcher.reports[0].has_optimizer is True


def test_the_newest_is_known_by_time_because_a_run_may_have_gone_back(tmp_path):
    make.huggingface(tmp_path, 1500, modified_s=1_000)
    watched = Watched(tmp_path)
    watched.scan(2)
    parts = make.huggingface_parts(1100)
    directory = make.write_parts(tmp_path / "checkpoint-1100", dict(list(parts.items())[:2]), modified_s=2_000)
    assert watched.scan()["checkpoint-1100"] == "writing"
    make.write_parts(directory, parts, modified_s=2_001)
    watched.scan(2)
    assert [report.step for report in watched.watcher.reports] == [1100, 1500]
    assert watched.states()["checkpoint-1100"] == "verified"


def test_a_file_that_cannot_be_read_is_named_and_looked_at_again(tmp_path, monkeypatch):
    directory = make.huggingface(tmp_path, 500)
    real_open = os.open
    blocked = [True]

    def refuse(path, flags, *rest, **more):
        if blocked[0] and str(path).endswith("optimizer.pt"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    watched = Watched(tmp_path)
    assert watched.scan(2) == {"checkpoint-500": "complete"}
    assert watched.watcher.reports[0].reasons == ("optimizer.pt cannot be read: Permission denied",)
    assert watched.watcher.errors == 1
    blocked[0] = False
    assert watched.scan() == {"checkpoint-500": "verified"}
    assert directory.exists()


def test_a_file_that_vanishes_during_the_look_is_no_fault(tmp_path, monkeypatch):
    directory = make.huggingface(tmp_path, 500)
    watched = Watched(tmp_path)
    watched.scan()
    from trainvitals.checkpoints import watcher as module

    real = module.look_at

    def delete_meanwhile(seen, level, run):
        shutil.rmtree(directory, ignore_errors=True)
        return real(seen, level, run)

    monkeypatch.setattr(module, "look_at", delete_meanwhile)
    assert watched.scan() == {"checkpoint-500": "complete"}
    assert watched.scan(2) == {"checkpoint-500": "deleted"}


def test_structure_looks_are_spread_over_scans_when_they_take_long(tmp_path, monkeypatch):
    for step in (100, 200, 300):
        make.huggingface(tmp_path, step, modified_s=step)
    watched = Watched(tmp_path)
    from trainvitals.checkpoints import watcher as module

    real = module.look_at

    def slow(seen, level, run):
        watched.clock.advance(3.0)
        return real(seen, level, run)

    watched.scan()
    monkeypatch.setattr(module, "look_at", slow)
    assert list(watched.scan().values()) == ["verified", "complete", "complete"]
    assert list(watched.scan().values()) == ["verified", "verified", "complete"]


def test_a_report_survives_the_way_through_json(tmp_path):
    watched = Watched(tmp_path)
    make.huggingface(tmp_path, 500)
    watched.scan(2)
    report = watched.watcher.reports[0]
    assert report_from_mapping(json.loads(json.dumps(report_to_mapping(report)))) == report


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "cut", "unlink", "scan", "restart", "fifo", "rmtree"]), st.integers(0, 6)),
        max_size=25,
    )
)
def test_whatever_happens_to_the_files_a_scan_never_raises(tmp_path_factory, actions):
    root = tmp_path_factory.mktemp("any")
    directory = root / "checkpoint-5"
    parts = list(make.huggingface_parts(5).items())
    watched = Watched(root)
    for action, number in actions:
        name, content = parts[number]
        path = directory / name
        if action in ("write", "cut", "fifo"):
            directory.mkdir(exist_ok=True)
        if action == "scan":
            watched.scan()
        elif action == "restart":
            watched.restart()
        elif action == "rmtree":
            shutil.rmtree(directory, ignore_errors=True)
        elif action == "fifo" and not path.exists():
            os.mkfifo(path)
        else:
            if path.is_fifo() or action == "unlink":
                path.unlink(missing_ok=True)
            if action in ("write", "cut"):
                path.write_bytes(content if action == "write" else content[: len(content) // 2])
    watched.scan(70)
    assert all(state in {"verified", "incomplete", "corrupt", "deleted"} for state in watched.states().values())
