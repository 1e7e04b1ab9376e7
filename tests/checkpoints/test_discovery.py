"""Where checkpoints are looked for, and what is none."""

import os
from pathlib import Path

import checkpoint_makers
import dcp_makers
import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import CheckpointWatcher, discovery, find
from trainvitals.clock import ManualClock


def found(directory):
    return [str(Path(path).relative_to(directory)) for path in find(str(directory))]


def test_the_checkpoints_of_all_layouts_in_one_directory_are_found_once_each_in_order(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    names = []
    for number, (_, _, write) in enumerate(make.SAMPLES.values()):
        place = tmp_path / f"{number:02d}"
        place.mkdir()
        path = write(place)
        parts = list(place.iterdir())
        if any((run / part.name).exists() for part in parts):
            continue  # another trainer's sample has the same name
        for part in parts:
            part.rename(run / part.name)
        names.append(path.name)
    assert len(names) > 15
    assert sorted(found(run)) == sorted(names)


@pytest.mark.parametrize(
    "place",
    [
        "checkpoints",
        "lightning_logs/version_0/checkpoints",
        "non_persistent",
        "2026-11-29_10-00-00/checkpoints",
        "ckpts",
        "checkpoint",
    ],
)
def test_the_directories_that_trainers_put_between_are_looked_into(tmp_path, place):
    make.write(tmp_path / place, make.lightning())
    checkpoint_makers.huggingface(tmp_path, 100)
    assert found(tmp_path) == ["checkpoint-100", f"{place}/epoch=1-step=500.ckpt"]


@pytest.mark.parametrize(
    "place", ["data", "runs", ".cache", ".trainvitals-pinned", "checkpoints/a/b", "checkpoints/.old", "wandb"]
)
def test_no_other_directory_is_looked_into(tmp_path, place):
    make.write(tmp_path / place / "deeper", make.lightning())
    make.write(tmp_path / place / "deeper" / "deeper", make.lightning())
    assert found(tmp_path) == []


def test_pins_are_no_checkpoints_of_their_own(tmp_path):
    checkpoint_makers.huggingface(tmp_path, 100)
    checkpoint_makers.huggingface(tmp_path / ".trainvitals-pinned", 100)
    assert found(tmp_path) == ["checkpoint-100"]


def test_how_deep_is_bounded(tmp_path):
    deep = Path(*["checkpoints"] * discovery.MAX_DEPTH)
    make.write(tmp_path / deep, make.lightning())
    assert len(found(tmp_path)) == 1
    make.write(tmp_path / "other" / deep / "checkpoints", make.lightning())
    assert found(tmp_path / "other") == []


@pytest.mark.parametrize(
    "name", ["500.orbax-checkpoint-tmp", "step500-tmp", "iter_0000500.tmp", "tmp-checkpoint-500", "step-500_tmp"]
)
def test_a_save_under_a_temporary_name_is_writing_while_it_moves_and_incomplete_when_it_stopped(tmp_path, name):
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)
    parts = {"iter": dcp_makers.parts({"w": 3}), "500.": make.orbax(), "step500": make.olmo_core()}
    files = next((files for start, files in parts.items() if name.startswith(start)), None)
    files = files or (
        checkpoint_makers.huggingface_parts(500) if "checkpoint-" in name and "orbax" not in name else make.shards()
    )

    def scan():
        clock.advance(10.0)
        watcher.scan()
        return [str(report.state) for report in watcher.reports]

    for file, content in files.items():
        make.write(tmp_path / name, {file: content})
        assert scan() == ["writing"], file
        assert watcher.reports[0].step in (500, None)
    assert [scan() for _ in range(2)] == [["writing"]] * 2
    for _ in range(4):
        scan()
    assert scan() == ["incomplete"]
    assert "name that it is given while it is saved" in " ".join(watcher.reports[0].reasons)
    # It goes on and is finished after all.
    (tmp_path / name).rename(tmp_path / "done")
    scan()
    assert "deleted" in scan()
    assert "deleted" not in scan()


def test_an_empty_directory_with_a_checkpoints_name_is_shown_at_once(tmp_path):
    for name in ("step-5", "global_step5", "iter_0000005", "checkpoint-5", "5", "ep1-ba5"):
        (tmp_path / name).mkdir()
    assert len(found(tmp_path)) == 6


def test_a_directory_named_by_a_number_that_only_holds_checkpoints_is_none_itself(tmp_path):
    make.write(tmp_path / "2026" / "checkpoints", make.lightning())
    assert found(tmp_path / "2026") == ["checkpoints/epoch=1-step=500.ckpt"]
    make.write(tmp_path / "7", make.lightning(600))
    assert found(tmp_path / "7") == ["epoch=1-step=600.ckpt"]


def test_links_are_not_followed_and_circles_end(tmp_path):
    path = checkpoint_makers.huggingface(tmp_path, 100)
    (tmp_path / "latest").symlink_to(path)
    (tmp_path / "checkpoint-200").symlink_to(path)
    (tmp_path / "checkpoints").symlink_to(tmp_path)
    (tmp_path / "last.ckpt").symlink_to(path)
    assert found(tmp_path) == ["checkpoint-100"]


def test_an_unreadable_directory_between_is_kept_so_that_somebody_says_so(tmp_path, monkeypatch):
    checkpoint_makers.huggingface(tmp_path, 100)
    (tmp_path / "checkpoints").mkdir()
    real = os.scandir

    def refuse(path):
        if str(path).rstrip("/").endswith("checkpoints"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(tmp_path) == ["checkpoints", "checkpoint-100"]
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)
    watcher.scan()
    assert "Permission denied" in watcher.text


def test_a_checkpoint_below_a_directory_between_is_told_when_it_goes(tmp_path):
    path = make.write(tmp_path / "checkpoints", make.lightning()) / "epoch=1-step=500.ckpt"
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)

    def scan():
        clock.advance(10.0)
        watcher.scan()
        return [str(report.state) for report in watcher.reports]

    scan()
    assert scan() == ["verified"]
    path.unlink()
    assert [scan(), scan()] == [["deleting"], ["deleted"]]


def test_watched_directories_that_lie_in_each_other_tell_a_deletion_as_slowly_as_one(tmp_path):
    path = make.write(tmp_path / "checkpoints", make.lightning()) / "epoch=1-step=500.ckpt"
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path), str(tmp_path / "checkpoints")], clock)

    def scan():
        clock.advance(10.0)
        watcher.scan()
        return [str(report.state) for report in watcher.reports]

    assert [scan(), scan()] == [["complete"], ["verified"]]
    path.unlink()
    assert [scan(), scan()] == [["deleting"], ["deleted"]]


def test_a_directory_between_that_is_not_mounted_any_more_deletes_nothing(tmp_path, monkeypatch):
    path = make.write(tmp_path / "checkpoints", make.lightning()) / "epoch=1-step=500.ckpt"
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)

    def scan():
        clock.advance(10.0)
        watcher.scan()
        return [str(report.state) for report in watcher.reports]

    scan()
    assert scan() == ["verified"]
    real = os.stat

    def elsewhere(name, *arguments, **named):
        info = real(name, *arguments, **named)
        if not str(name).endswith("checkpoints"):
            return info
        return os.stat_result([*info[:2], info.st_dev + 1, *info[3:10]])

    path.rename(tmp_path.parent / "away")
    monkeypatch.setattr(os, "stat", elsewhere)
    assert [scan(), scan(), scan()] == [["verified"]] * 3
    assert "is it mounted?" in watcher.text
    monkeypatch.undo()
    (tmp_path.parent / "away").rename(path)
    assert scan() == ["verified"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=40), max_size=8)
)
def test_no_names_make_the_search_raise(tmp_path_factory, names):
    root = tmp_path_factory.mktemp("names")
    for number, name in enumerate(names):
        path = root / name
        if name in (".", "..") or path.exists() or len(os.fsencode(name)) > 255:
            continue
        if number % 2:
            path.mkdir()
        else:
            path.write_bytes(b"x")
    for path in find(str(root)):
        assert path == str(root) or os.path.dirname(path) == str(root)
