"""``python -m trainvitals spool``: what people see of the spools of a machine, and what they can do."""

from __future__ import annotations

import json

import pytest
from spool_fakes import FakeStore, step, steps

from trainvitals import __main__ as program
from trainvitals.cli import spool as command
from trainvitals.settings import load
from trainvitals.store.sink import spool_file
from trainvitals.store.spool_shipper import Outcome, Shipper


class Machine:
    """A settings file and two spools: one with refused points, one with points that wait."""

    def __init__(self, tmp_path):
        self.config = tmp_path / "trainvitals.toml"
        self.config.write_text(f'store = "influxdb+http://127.0.0.1:1"\n[spool]\ndir = "{tmp_path}/spool"\n')
        self.settings = load(self.config, environ={})
        with_refused = self.file("watch/a")
        with_refused.append([*steps(0, 3), step(3, run="hostile \u202e run")], {})
        Shipper(with_refused, FakeStore(refuses=lambda point: point.fields["step"] > 1)).ship_once()
        with_refused.close()
        waiting = self.file("collector/gpu/n1")
        waiting.append(steps(0, 5), {})
        waiting.close()

    def file(self, owner):
        return spool_file(self.settings, owner)

    def stats(self, owner):
        file = self.file(owner)
        try:
            return file.stats()
        finally:
            file.close()

    def run(self, *words):
        return program.main(["spool", *words, "--config", str(self.config)])


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_list_names_every_spool_and_every_refused_point_with_its_reason(machine, capsys):
    assert machine.run("list") == 1
    out = capsys.readouterr().out
    assert "watch/a: 0 waiting" in out and "collector/gpu/n1: 5 waiting" in out
    assert out.count("400: 1 lines are bad") == 2 and '"step": 2' in out
    assert "\u202e" not in out


def test_the_list_as_json_is_one_object_a_line(machine, capsys):
    machine.run("list", "--json", "--limit", "1")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["spool", "spool", "dead_letter"]
    assert lines[1]["owner"] == "watch/a" and lines[1]["dead_letters"] == 2
    assert lines[2]["content"][0]["fields"]["step"] == 2


def test_a_machine_without_refused_points_is_well(machine):
    assert machine.run("list", "--spool", "collector/gpu/n1") == 0


def test_refused_points_are_queued_again_by_number_or_all_at_once(machine):
    assert machine.run("resend", "1", "--spool", "watch/a") == 0
    assert (machine.stats("watch/a").waiting, machine.stats("watch/a").dead_letters) == (1, 1)
    assert machine.run("resend", "--all") == 0
    assert (machine.stats("watch/a").waiting, machine.stats("watch/a").dead_letters) == (2, 0)


def test_refused_points_are_dropped_only_when_they_are_named(machine, capsys):
    assert machine.run("drop") == 2
    assert "or --all" in capsys.readouterr().err
    assert machine.run("drop", "1") == 2
    assert "--spool with one of" in capsys.readouterr().err
    assert machine.run("drop", "1", "--spool", "no such") == 2
    assert "known: collector/gpu/n1, watch/a" in capsys.readouterr().err
    assert machine.stats("watch/a").dead_letters == 2
    assert machine.run("drop", "--all") == 0
    assert machine.stats("watch/a").dead_letters == 0
    assert machine.run("drop", "1", "--spool", "watch/a") == 1


@pytest.mark.parametrize("words", [("drop", "9" * 30), ("list", "--limit", "9" * 30), ("list", "--limit", "-1")])
def test_a_number_that_no_refused_point_can_have_is_wrong_usage(machine, capsys, words):
    with pytest.raises(SystemExit) as ended:
        machine.run(*words)
    assert ended.value.code == 2 and words[-1] in capsys.readouterr().err


def test_ship_delivers_what_programs_left_that_do_not_run_any_more(machine, monkeypatch, capsys):
    store = FakeStore()
    monkeypatch.setattr(command, "open_store", lambda *_, **__: store)
    assert machine.run("ship") == 0
    assert store.steps == [0, 1, 2, 3, 4] and store.is_closed
    assert machine.stats("collector/gpu/n1").waiting == 0


def test_ship_says_what_is_wrong_with_the_store(machine, monkeypatch, capsys):
    store = FakeStore()
    store.is_away = True
    monkeypatch.setattr(command, "open_store", lambda *_, **__: store)
    assert machine.run("ship") == 2
    assert "5 points of collector/gpu/n1 still wait: The server cannot be reached." in capsys.readouterr().err


def test_ship_leaves_a_spool_alone_that_its_own_process_ships(machine, monkeypatch, capsys):
    monkeypatch.setattr(command, "open_store", lambda *_, **__: FakeStore())
    file = machine.file("collector/gpu/n1")
    with file.shipping() as is_mine:
        assert is_mine and Shipper(file, FakeStore()).ship_once() is Outcome.BUSY
        assert machine.run("ship") == 1
    file.close()
    assert "by its own process" in capsys.readouterr().err


def test_no_spool_at_all_is_said_and_is_no_fault(tmp_path, capsys):
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'[spool]\ndir = "{tmp_path}/none"\n')
    assert program.main(["spool", "list", "--config", str(config)]) == 0
    assert "nothing waits here" in capsys.readouterr().err
