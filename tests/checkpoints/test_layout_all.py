"""Every layout on a whole checkpoint of each: exactly one reads it, and what it says is right."""

import os
from pathlib import Path

import layout_makers as make
import pytest

from trainvitals.checkpoints import CheckpointWatcher, find, inspect, layouts
from trainvitals.checkpoints.files import listing
from trainvitals.checkpoints.findings import Findings
from trainvitals.clock import ManualClock


@pytest.mark.parametrize("sample", make.SAMPLES)
def test_each_sample_is_read_by_exactly_its_own_layout_and_is_right(tmp_path, sample):
    expected, step, write = make.SAMPLES[sample]
    path = write(tmp_path)
    report = inspect(str(path))
    assert (report.format, report.step) == (expected, step), report.reasons
    assert str(report.state) == "verified", report.reasons
    specific = [layout.name for layout in layouts.LAYOUTS if layout.matches(listing(str(path)))]
    assert specific[:1] == ([expected] if expected not in ("safetensors", "torch") else [])


@pytest.mark.parametrize("sample", make.SAMPLES)
def test_each_sample_is_found_once_in_its_directory_and_from_the_inside(tmp_path, sample):
    path = make.SAMPLES[sample][2](tmp_path)
    assert find(str(tmp_path)) == [str(path)]
    assert find(str(path)) == [str(path)]


@pytest.mark.parametrize("sample", make.SAMPLES)
def test_a_save_stopped_at_any_file_is_never_complete_before_its_last_needed_file(tmp_path, sample):
    """A file that is written with its last name in place may be cut anywhere; structure must see it."""
    path = make.SAMPLES[sample][2](tmp_path)
    seen = listing(str(path))
    if sample in ("nemo tar", "safetensors", "torch", "olmo unsharded"):
        pytest.skip("no mark of its end: a whole file is a whole checkpoint")
    for entry in seen.entries:
        file = Path(seen.path(entry.name))
        content = file.read_bytes()
        for kept in {0, len(content) // 2, len(content) - 1} - {len(content), -1}:
            file.write_bytes(content[:kept])
            report = inspect(str(path))
            is_prose = file.suffix in (".yaml", "") and not content.startswith((b"\x0c\xdb", b"\x28\xb5", b"\x80"))
            is_cut_json = file.suffix == ".json" and content[:kept].rstrip().endswith(b"}")
            if not is_prose and not is_cut_json:
                assert report.state in ("corrupt", "incomplete"), (entry.name, kept, report)
        file.write_bytes(content)


@pytest.mark.parametrize("sample", [name for name in make.SAMPLES if name not in ("safetensors", "torch", "nemo tar")])
def test_a_save_and_a_deletion_file_by_file_raise_no_false_alarm(tmp_path, sample):
    """The parts in the order of the save, then deleted in two orders; a whole older checkpoint stands beside it."""
    source = tmp_path / "source"
    source.mkdir()
    path = make.SAMPLES[sample][2](source)
    seen = listing(str(path))
    root = tmp_path / "run"
    root.mkdir()
    entries = sorted(seen.entries, key=lambda entry: os.stat(seen.path(entry.name)).st_mtime_ns)
    contents = [(Path(seen.path(entry.name)).relative_to(source), Path(seen.path(entry.name)).read_bytes()) for entry in entries]
    clock = ManualClock()
    watcher = CheckpointWatcher([str(root)], clock)

    def scan() -> set[str]:
        clock.advance(10.0)
        watcher.scan()
        return {str(report.state) for report in watcher.reports}

    states = set()
    for name, content in contents:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
        states |= scan()
    assert not states & {"incomplete", "corrupt"}
    scan()
    after = scan() | scan() | scan() | scan()
    assert after <= {"verified", "complete"}, [report.reasons for report in watcher.reports]
    for name, _ in contents:
        (root / name).unlink()
        assert not scan() & {"incomplete", "corrupt"}, [report.reasons for report in watcher.reports]


HOSTILE = ["a\nb", "\x1b[31mred", "‮gnp.exe", "..", "-" * 250, "x" * 255, "step=" * 50, "￿", "ep1-ba5-rank0.pt\n"]


@pytest.mark.parametrize("sample", make.SAMPLES)
def test_hostile_names_beside_the_files_stay_on_one_line_and_raise_nothing(tmp_path, sample):
    path = make.SAMPLES[sample][2](tmp_path)
    place = path if path.is_dir() else tmp_path
    for number, name in enumerate(HOSTILE):
        for ending in ("", ".pt", ".json", ".distcp"):
            try:
                (place / (name + ending)[:255]).write_bytes(b"x" * number)
            except (IsADirectoryError, OSError):
                continue
    (place / os.fsdecode(b"\xff\xfe.pt")).write_bytes(b"x")
    report = inspect(str(path))
    assert all(reason.isprintable() for reason in report.reasons)
    for found in find(str(tmp_path)):
        assert all(reason.isprintable() and reason.encode() for reason in inspect(found).reasons)
    for layout in (*layouts.LAYOUTS, *layouts.PLAIN):
        if layout.matches(listing(str(path))):
            layout.look(listing(str(path)), Findings(), into_files=True)
            layout.ranges(listing(str(path)))
