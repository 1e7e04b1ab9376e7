"""Pins: a second set of names that a trainer's retention cannot reach, made whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoint_makers import huggingface_parts, torch_zip_bytes, write_parts
from layout_makers import llm_c

from trainvitals import checkpoints, manifest
from trainvitals.checkpoints import pin_tree, pinning
from trainvitals.checkpoints.pinning import CannotPin, pin, pins, release, still_holds, tidy
from trainvitals.records import CheckpointState

ROOT = Path(__file__).resolve().parents[2]


def huggingface(path: Path, step: int) -> Path:
    return write_parts(path, huggingface_parts(step))


def tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, modification time and bytes of every file."""
    return {
        str(file.relative_to(path)): (file.stat().st_ino, file.stat().st_mtime_ns, file.read_bytes())
        for file in sorted(path.rglob("*")) if file.is_file()
    }  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    found = huggingface(tmp_path / "checkpoints" / "checkpoint-300", 300)
    (found / "global_step300" / "empty").mkdir(parents=True)
    (found / "global_step300" / "part.bin").write_bytes(b"x" * 5000)
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=40", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_pin_has_the_same_files_and_outlives_their_deletion(saved: Path) -> None:
    before = tree(saved)
    made = pin(str(saved))
    assert (made.how, made.files, made.original) == ("links", len(before), str(saved))
    assert Path(made.path) == saved.parent / ".trainvitals-pinned" / "checkpoint-300"
    assert tree(Path(made.path)) == before == tree(saved)
    assert (Path(made.path) / "global_step300" / "empty").is_dir()
    shutil.rmtree(saved)
    assert tree(Path(made.path)) == before
    report = checkpoints.inspect(made.path)
    assert report.state is CheckpointState.VERIFIED and report.step == 300
    assert still_holds(made.path, report.files, report.bytes, report.modified_at_ns)


def test_a_pin_costs_no_disk_until_the_trainer_deletes(saved: Path) -> None:
    used_blocks = sum(file.stat().st_blocks for file in saved.rglob("*") if file.is_file())
    made = pin(str(saved))
    inodes = {
        file.stat().st_ino: file.stat().st_blocks
        for part in (saved, Path(made.path))
        for file in part.rglob("*")
        if file.is_file()
    }
    assert sum(inodes.values()) == used_blocks


def test_pinning_again_changes_nothing_and_the_pinned_path_is_its_own_pin(saved: Path) -> None:
    made = pin(str(saved))
    assert pin(str(saved)) == made and pin(made.path).path == made.path
    assert pins(str(saved.parent)) == [made.path] and pinning.original_path(made.path) == str(saved)


def test_letting_go_removes_only_names_while_the_trainer_has_its_own(saved: Path) -> None:
    before = tree(saved)
    made = pin(str(saved))
    release(made.path)
    assert tree(saved) == before and not (saved.parent / ".trainvitals-pinned").exists()
    with pytest.raises(CannotPin, match="could not be let go"):
        release(made.path)


def test_nothing_but_a_pin_can_be_let_go(saved: Path, tmp_path: Path) -> None:
    for path in (str(saved), str(tmp_path), "/", str(saved.parent / ".trainvitals-pinned" / ".tmp")):
        with pytest.raises(CannotPin, match="no pinned checkpoint"):
            release(path)
    assert saved.is_dir()


def test_no_more_than_two_are_pinned(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        huggingface(tmp_path / f"checkpoint-{step}", step)
    pin(str(tmp_path / "checkpoint-1"))
    pin(str(tmp_path / "checkpoint-2"))
    with pytest.raises(CannotPin, match="2 checkpoints are pinned already"):
        pin(str(tmp_path / "checkpoint-3"))
    assert len(pins(str(tmp_path))) == 2


def test_another_checkpoint_of_the_same_name_is_never_overwritten(saved: Path) -> None:
    made = pin(str(saved))
    before = tree(Path(made.path))
    shutil.rmtree(saved)
    huggingface(saved, 300)
    with pytest.raises(CannotPin, match="another checkpoint of the same name"):
        pin(str(saved))
    assert tree(Path(made.path)) == before


def test_a_single_file_is_pinned_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "epoch=1-step=500.ckpt"
    file.write_bytes(torch_zip_bytes({"state_dict": {}, "global_step": 500}))
    made = pin(str(file))
    assert Path(made.path).stat().st_ino == file.stat().st_ino and Path(made.path).name == file.name
    file.unlink()
    assert Path(made.path).is_file() and pins(str(tmp_path)) == [made.path]


def test_files_that_are_one_checkpoint_together_are_pinned_and_let_go_together(tmp_path: Path) -> None:
    parts = llm_c(500, ranks=2)
    for name, data in {**parts, **llm_c(400, ranks=2)}.items():
        (tmp_path / name).write_bytes(data)
    main = tmp_path / "model_00000500.bin"
    made = pin(str(main))
    assert made.files == len(parts) and pins(str(tmp_path)) == [made.path]
    for name in parts:
        (tmp_path / name).unlink()
    report = checkpoints.inspect(made.path)
    assert report.state is CheckpointState.VERIFIED and report.step == 500 and report.has_optimizer
    release(made.path)
    assert not (tmp_path / ".trainvitals-pinned").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(llm_c(400, ranks=2))


def test_the_manifest_beside_a_file_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "epoch=1-step=500.ckpt"
    file.write_bytes(torch_zip_bytes({"state_dict": {}, "global_step": 500}))
    Path(manifest.beside(str(file))).write_text("{}")
    made = pin(str(file))
    assert made.files == 2 and pins(str(tmp_path)) == [made.path] and Path(manifest.beside(made.path)).is_file()


def test_a_file_that_the_next_save_writes_over_is_copied_and_keeps_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "ckpt.pt"
    file.write_bytes(b"step 300" * 1000)
    with pytest.raises(CannotPin, match="larger than pin_copy_max_bytes"):
        pin(str(file), copy_limit_bytes=100)
    made = pin(str(file), copy_limit_bytes=1 << 20)
    assert made.how in ("copy", "clone")
    with file.open("r+b") as again:
        again.write(b"step 600" * 1000)
    assert Path(made.path).read_bytes() == b"step 300" * 1000
    assert not pins(str(tmp_path / "nothing"))


def test_links_and_special_files_are_refused_and_nothing_is_left(saved: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"secret")
    for make in (
        lambda place: place.symlink_to(outside),
        lambda place: os.mkfifo(place),
        lambda place: place.symlink_to(tmp_path),
    ):
        place = saved / "global_step300" / "odd"
        make(place)
        with pytest.raises(CannotPin, match="links are not followed"):
            pin(str(saved))
        place.unlink()
        assert not (saved.parent / ".trainvitals-pinned").exists()
    assert outside.stat().st_nlink == 1


def test_a_pin_directory_that_is_a_link_is_refused(saved: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (saved.parent / ".trainvitals-pinned").symlink_to(elsewhere)
    with pytest.raises(CannotPin, match="no directory"):
        pin(str(saved))
    assert list(elsewhere.iterdir()) == []


def test_hostile_names_are_names_and_nothing_else(tmp_path: Path) -> None:
    name = "checkpoint-7 $(touch X)\n\x1b[31m;'\""
    saved = huggingface(tmp_path / name, 7)
    made = pin(str(saved))
    assert os.path.basename(made.path) == name and tree(Path(made.path)) == tree(saved)
    release(made.path)
    with pytest.raises(CannotPin):
        pin(str(tmp_path / ("checkpoint-" + "9" * 300)))
    with pytest.raises(CannotPin):
        pin(str(tmp_path / "no\0thing"))


def test_files_on_another_file_system_are_refused_or_copied(tmp_path: Path, small_disk: Path) -> None:
    """The checkpoint's own directory is a mount, so its files lie on another file system than the place for pins."""
    saved = tmp_path / "checkpoint-5"
    saved.mkdir()
    mounted = subprocess.run(["mount", "--bind", str(small_disk), str(saved)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(mounted.stderr)
    try:
        huggingface(saved, 5)
        with pytest.raises(CannotPin, match="another file system"):
            pin(str(saved))
        assert not (tmp_path / ".trainvitals-pinned").exists()
        made = pin(str(saved), copy_limit_bytes=1 << 20)
        assert made.how == "copy" and {k: v[1:] for k, v in tree(Path(made.path)).items()} == {
            k: v[1:] for k, v in tree(saved).items()
        }
    finally:
        subprocess.run(["umount", "-l", str(saved)], check=True)


def test_a_full_disk_is_told_and_leaves_nothing(small_disk: Path) -> None:
    saved = huggingface(small_disk / "checkpoint-5", 5)
    (small_disk / "ckpt.pt").write_bytes(b"x" * 1_200_000)
    with pytest.raises(CannotPin, match="twice that free"):
        pin(str(small_disk / "ckpt.pt"), copy_limit_bytes=1 << 30)
    number = 0
    while True:  # no inode is left
        try:
            (small_disk / f"filler-{number}").touch()
            number += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
    before = tree(saved)
    with pytest.raises(CannotPin, match="No space left"):
        pin(str(saved))
    (small_disk / "filler-0").unlink()
    (small_disk / "filler-1").unlink()
    with pytest.raises(CannotPin, match="No space left"):  # the place for pins can be made, the tree in it cannot
        pin(str(saved))
    assert tree(saved) == before and not (small_disk / ".trainvitals-pinned").exists()


def test_a_file_with_as_many_names_as_the_file_system_allows_is_refused(tmp_path: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True).stdout.strip() != "ext2/ext3":
        pytest.skip("only ext4 has a limit that can be reached in a test")
    saved = tmp_path / "many" / "checkpoint-5"
    saved.mkdir(parents=True)
    file = saved / "model.safetensors"
    file.write_bytes(b"x")
    names = tmp_path / "names"
    names.mkdir()
    for number in range(64_999):
        os.link(file, names / str(number))
    with pytest.raises(CannotPin, match="as many names"):
        pin(str(saved))


def as_somebody(code: str, user: int = 65_534) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    script = f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom trainvitals.checkpoints.pinning import *\nos.setuid({user})\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


def test_somebody_elses_files_may_not_be_linked_and_the_reason_names_the_kernels_rule() -> None:
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("this machine lets everybody link")
    with tempfile.TemporaryDirectory() as place:  # pytest's own places are closed to others
        saved = huggingface(Path(place) / "checkpoint-5", 5)
        code = f"try: pin({str(saved)!r})\nexcept CannotPin as error: print(error)"
        saved.parent.chmod(0o777)
        done = as_somebody(code)
        assert "fs.protected_hardlinks" in done.stdout, done
        saved.parent.chmod(0o755)
        done = as_somebody(code)
        assert "Permission denied" in done.stdout, done


def die_at_link(number: int) -> None:
    """This process is killed before that link, or before the finished tree gets its name."""
    done = 0
    real = os.link

    def link(*args: object, **more: object) -> None:
        nonlocal done
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        real(*args, **more)  # type: ignore[arg-type]

    def rename(*args: object, **more: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    os.link, os.rename = link, rename  # type: ignore[assignment]


@pytest.mark.parametrize("deleted", ["nothing", "all", "one file"])
def test_a_kill_at_any_link_leaves_the_checkpoint_whole_and_the_next_attempt_tidies_up(tmp_path: Path, deleted: str) -> None:
    count = len(tree(huggingface(tmp_path / "probe" / "checkpoint-9", 9)))
    for at in range(count + 2):
        place = tmp_path / f"{deleted}-{at}"
        saved = huggingface(place / "checkpoint-9", 9)
        before = tree(saved)
        child = os.fork()
        if child == 0:
            die_at_link(at)
            pin(str(saved))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert pins(str(place)) == [] and tree(saved) == before
        if deleted == "all":
            shutil.rmtree(saved)
        elif deleted == "one file":
            (saved / "trainer_state.json").unlink()
        tidy(str(place))
        if deleted == "nothing":
            assert pins(str(place)) == []
            assert tree(Path(pin(str(saved)).path)) == before
        elif at >= count:  # the dead process had linked everything: those were the last names
            (kept,) = pins(str(place))
            assert tree(Path(kept)) == before
        for kept in pins(str(place)):
            assert checkpoints.inspect(kept).state is CheckpointState.VERIFIED
        assert not (place / ".trainvitals-pinned" / ".tmp").exists()


def test_a_checkpoint_that_is_deleted_meanwhile_is_pinned_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer deletes between any two of our links."""
    count = len(tree(huggingface(tmp_path / "probe" / "checkpoint-9", 9)))
    real = os.link
    for at in range(count):
        saved = huggingface(tmp_path / str(at) / "checkpoint-9", 9)
        before = tree(saved)
        done = 0

        def link(*args: object, at: int = at, saved: Path = saved, **more: object) -> None:
            nonlocal done
            if done == at:
                shutil.rmtree(saved)
            done += 1
            real(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(pin_tree.os, "link", link)
        with pytest.raises(CannotPin, match="being deleted"):
            pin(str(saved))
        assert not (saved.parent / ".trainvitals-pinned").exists()
        monkeypatch.setattr(pin_tree.os, "link", real)
        assert before


def test_a_checkpoint_that_grows_meanwhile_is_not_pinned(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(*args: object, **more: object) -> None:
        with (saved / "optimizer.pt").open("ab") as file:
            file.write(b"more")
        real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(pin_tree.os, "link", link)
    with pytest.raises(CannotPin, match="changed while it was pinned"):
        pin(str(saved))
    assert not (saved.parent / ".trainvitals-pinned").exists()


def test_a_kill_while_letting_go_leaves_no_half_checkpoint_under_its_name(saved: Path) -> None:
    made = pin(str(saved))
    child = os.fork()
    if child == 0:

        def unlink(*args: object, **more: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        os.unlink = unlink  # type: ignore[assignment]
        release(made.path)
        os._exit(0)
    os.waitpid(child, 0)
    assert pins(str(saved.parent)) == []
    tidy(str(saved.parent))
    assert list((saved.parent / ".trainvitals-pinned").iterdir()) == [] and saved.is_dir()


def test_pins_are_no_checkpoints_of_the_directory(saved: Path) -> None:
    pin(str(saved))
    assert checkpoints.find(str(saved.parent)) == [str(saved)]
