"""`import` and `watch` store the same of what is more than a step: faults with the places of their ranks; and a rule that fails."""

from __future__ import annotations

import json

import pytest
from import_place import FOR_EVER, Place, megatron, said

from trainvitals.detect.engine import Engine
from trainvitals.records import Step
from trainvitals.watch import metadata
from trainvitals.watch.metadata import METADATA_DIR, SCHEMA, read_file

OUT_OF_MEMORY = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def faults(place):
    store = place.open()
    try:
        return [(event.id, event.time_ns, dict(event.data)) for event in store.events("r", ["fault"], *FOR_EVER)]
    finally:
        store.close()


def tell_ranks(place):
    (place.run_dir / METADATA_DIR).mkdir(parents=True, exist_ok=True)
    content = {"schema": SCHEMA, "run": "r", "attempt": 1, "start": {}, "sections": {"ranks": {"3": "node9/3/GPU-1"}}}
    (place.run_dir / METADATA_DIR / "attempt-00001.json").write_text(json.dumps(content))


@pytest.mark.parametrize("order", [("watch", "run"), ("run", "watch")])
def test_a_fault_names_host_and_gpu_of_its_rank_whoever_read_it(tmp_path, order):
    place = Place(tmp_path / "a")
    tell_ranks(place)
    log = place.file("train.log", megatron(1, 40) + OUT_OF_MEMORY + megatron(41, 10, at=90))
    found = []
    for way in order:
        place.watch() if way == "watch" else place.run(log)
        found.append(faults(place))
    assert found[0] == found[1]
    ((_, _, data),) = found[0]
    assert (data["rank"], data["host"], data["place"]) == (3, "node9", "node9/3/GPU-1")


def test_a_rule_that_fails_costs_its_findings_and_not_the_import(tmp_path, capsys, monkeypatch):
    place = Place(tmp_path / "a")
    update = Engine.update

    def failing(engine, record):
        if isinstance(record, Step) and record.step == 7:
            raise ZeroDivisionError
        return update(engine, record)

    monkeypatch.setattr(Engine, "update", failing)
    assert place.run(place.file("train.log", megatron(1, 30))) == 0
    told, err = said(capsys)
    assert (told["steps"], told["new_steps"], told["detector_errors"]) == (30, 30, 1)
    assert "1 record not judged" in err


ARGUMENTS = (
    "------------------------ arguments ------------------------\n"
    "  lr ............................................ {}\n"
    "-------------------- end of arguments ---------------------\n"
)


@pytest.mark.parametrize("way", ["watch", "run"])
def test_what_every_start_of_a_long_history_was_made_of_is_kept(tmp_path, way):
    place = Place(tmp_path / "a")
    starts = [ARGUMENTS.format(f"{n}e-4") + megatron(n * 5, 10, at=100 * n) for n in range(1, 21)]
    log = place.file("train.log", "".join(starts))
    place.watch() if way == "watch" else place.run(log)
    files = [read_file(place.run_dir / METADATA_DIR / f"attempt-{number:05d}.json") for number in range(1, 21)]
    assert [float(file["sections"]["config"]["lr"]) for file in files] == pytest.approx([n * 1e-4 for n in range(1, 21)])


def test_settings_for_which_no_room_is_left_are_counted_by_an_import(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(metadata, "MAX_SECTIONS", 0)
    place = Place(tmp_path / "a")
    assert place.run(place.file("train.log", ARGUMENTS.format("1e-4") + megatron(1, 10))) == 0
    assert said(capsys)[0]["left_out"] == 1


def test_logs_of_several_jobs_are_the_same_attempts_whoever_read_them(tmp_path):
    rows = []
    for way in ("watch", "run"):
        place = Place(tmp_path / way)
        logs = [
            place.file(f"job-{name}.log", megatron(1 + 50 * number, 50, at=1000 * number), written_s=1_767_400_000 + number)
            for number, name in enumerate(("c", "a", "b"))
        ]
        place.watch() if way == "watch" else place.run(*logs)
        rows.append([(attempt, step) for attempt, step, *_ in place.rows()])
    assert rows[0] == rows[1] == [(str(1 + step // 50), step + 1) for step in range(150)]


@pytest.mark.parametrize("order", [("watch", "run"), ("run", "watch"), ("run",), ("watch",)])
def test_what_is_told_before_the_first_step_belongs_to_the_attempt_that_begins(tmp_path, order):
    place = Place(tmp_path / "a")
    log = place.file("train.log", "".join(ARGUMENTS.format(f"{n}e-4") + megatron(n * 5, 10, at=100 * n) for n in (1, 2, 3)))
    for way in order:
        place.watch() if way == "watch" else place.run(log)
    store = place.open()
    told = sorted((event.attempt, event.data["values"]["lr"], event.text) for event in store.events("r", ["metadata"], *FOR_EVER))
    store.close()
    assert [(attempt, float(lr)) for attempt, lr, _ in told] == [(1, 1e-4), (2, 2e-4), (3, 3e-4)] and all(
        text for *_, text in told
    )
