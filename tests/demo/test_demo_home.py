"""The demo's home, settings, port, simulated nodes and plan of processes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trainvitals import settings
from trainvitals.cli import demo as demo_command
from trainvitals.clock import ManualClock, StopSignal
from trainvitals.demo import config, simulated_nodes
from trainvitals.errors import InputError
from trainvitals.store.open import open_store

NOW_NS = 1_767_323_045_000_000_000


def test_the_settings_written_are_valid_and_arm_the_breaker(tmp_path: Path) -> None:
    home = config.prepare_home(tmp_path / 'odd "name" \\ é', NOW_NS)
    loaded = settings.load(config.write_settings(home, 8600), environ={})
    run = loaded.run("demo")
    assert (run.breaker, run.dir, run.checkpoints) == ("armed", str(home.run_dir), (str(home.checkpoints),))
    assert loaded.store == f"sqlite://{home.store}"
    assert loaded.dashboard.port == 8600
    assert loaded.breaker.points == config.BREAKER["points"]


def test_an_earlier_demo_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "home"
    old = config.prepare_home(path, NOW_NS)
    (old.run_dir / "kept").touch()
    assert not list(config.prepare_home(path, NOW_NS + 10**9).run_dir.iterdir())
    assert (tmp_path / "home-until-20260102T030406" / "run" / "kept").is_file()


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not the demo's"):
        config.prepare_home(tmp_path, NOW_NS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(InputError, match="cannot be prepared"):
        config.prepare_home(tmp_path / "home", NOW_NS)


def test_a_taken_port_gives_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert config.free_port(port) > port
        with pytest.raises(InputError, match="--port"):
            config.free_port(port, tries=1)


def test_every_simulated_node_is_marked_and_one_falls_silent_and_comes_back() -> None:
    def states(elapsed_s: float) -> dict[str, str]:
        return {sample.node: sample.state for sample in simulated_nodes.samples(elapsed_s, NOW_NS)}

    assert all(sample.is_simulated and "simulated" in sample.text for sample in simulated_nodes.samples(100.0, NOW_NS))
    assert len(states(0)) == 63
    assert states(0)[simulated_nodes.WARM_NODE] == "warm"
    assert states(100)[simulated_nodes.SILENT_NODE] == "fail"
    assert simulated_nodes.SILENT_NODE not in states(140)
    assert states(180)[simulated_nodes.SILENT_NODE] == "ok"


def test_simulated_nodes_are_stored(tmp_path: Path) -> None:
    store = open_store(f"sqlite://{tmp_path / 'nodes.db'}")
    stopping = StopSignal()
    stopping.set()
    simulated_nodes.publish(store, stopping, ManualClock(NOW_NS), run="demo")
    frame = store.latest("node", ["state", "is_simulated", "run"], {}, 10**9, NOW_NS)
    store.close()
    assert len(frame) == 63
    assert frame["is_simulated"].all()
    assert set(frame["run"]) == {"demo"}


def test_the_plan_starts_the_dashboard_and_the_trainer_first_and_leaves_the_users_settings_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINVITALS_STORE", "sqlite:///somewhere/else.db")
    monkeypatch.setenv("TRAINVITALS_LOCAL_DIR", "/somewhere/else")
    (tmp_path / "app.py").touch()
    monkeypatch.setattr("trainvitals.cli.up.CHECKOUT", tmp_path)
    home = config.prepare_home(tmp_path / "home", NOW_NS)
    path = str(config.write_settings(home, 8600))
    children = demo_command.plan(home, settings.load(path, environ={}), path)
    assert [child.name for child in children] == ["dashboard", "supervisor", "watch demo", "gpu collector", "simulated nodes"]
    assert [child.name for child in children if child.ends_first] == ["watch demo"], "a demo that is ended pages nobody"
    assert [child.restart for child in children] == [True, False, True, True, True]
    for child in children:
        assert {name for name in child.env if name.startswith("TRAINVITALS_")} == {"TRAINVITALS_CONFIG"}
        assert child.env["PATH"] == os.environ["PATH"]
    assert "default" in children[1].argv
    assert "none" in demo_command.plan(home, settings.load(path, environ={}), path, schedule="none")[1].argv
