"""What the nodes looked like when an incident opened is kept with it, whatever they look like now."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "watch"))

from test_watchdog import Bench

from trainvitals.__main__ import main
from trainvitals.records import Event, Incident, NodeSample, Severity
from trainvitals.store.encode import event_point, node_point
from trainvitals.store.rollup import NODE_FIELDS, node_rollup
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.incident import incident_story
from trainvitals.web.nodes_then import AFTER_NS, NodesThenReader, nodes_at, then_words
from trainvitals.web.process import read_control

S = 10**9
THEN = 1_795_000_000 * S // (600 * S) * (600 * S) + 300 * S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


def say(store: SqliteStore, name: str, at_ns: int, state: str = "ok", text: str = "") -> None:
    store.write([node_point(NodeSample(name, at_ns, state, gpus=8, text=text))])


def summed_up(store: SqliteStore) -> None:
    store.write(node_rollup(store.raw("node", NODE_FIELDS, {}, 0, 2**62)))


def fill(store: SqliteStore) -> None:
    for second in range(-900, 60, 60):
        say(store, "node15", THEN + second * S)
        say(store, "node16", THEN + second * S, *(("fail", "GPU 3 is lost") if second == 0 else ("ok", "")))
        if second < -300:
            say(store, "node17", THEN + second * S)
    summed_up(store)


def test_the_worst_that_each_node_said_then_is_told_and_who_had_gone_silent(store: SqliteStore) -> None:
    fill(store)
    found = nodes_at(store, THEN)
    assert {one.node: one.state for one in found} == {"node15": "ok", "node16": "fail", "node17": "silent"}
    assert then_words(found) == "2 of 3 reported; node16 fail (GPU 3 is lost), node17 silent"


def test_long_after_single_samples_are_gone_the_ten_minutes_around_it_tell(store: SqliteStore, tmp_path: Path) -> None:
    fill(store)
    rows = store.raw("node_10m", ["state", "worst_state", "gpus"], {}, 0, 2**62)
    later = SqliteStore(tmp_path / "later.db")
    points = node_rollup(store.raw("node", NODE_FIELDS, {}, 0, 2**62))
    assert len(points) == len(rows)
    later.write(points)
    assert {one.node: one.state for one in nodes_at(later, THEN)} == {"node15": "ok", "node16": "fail", "node17": "silent"}
    later.close()


def test_nothing_is_told_where_nothing_was_collected(store: SqliteStore) -> None:
    assert nodes_at(store, THEN) == ()
    assert then_words(()) == then_words([NodeSample("laptop", THEN, "no_gpu")]) == ""


def incident(id: str, opened_ns: int) -> Incident:
    return Incident(id, "r", "loss", Severity.WARNING, ("loss_spike",), (), 1, 2, opened_ns, opened_ns, opened_ns, "t", "m")


def test_it_is_read_once_for_each_incident_and_not_while_samples_may_still_come(store: SqliteStore) -> None:
    fill(store)
    reader = NodesThenReader()
    assert reader.of(store, "r", [incident("i", THEN)], THEN + AFTER_NS) == {}
    assert set(reader.of(store, "r", [incident("i", THEN)], THEN + AFTER_NS + 1)) == {"i"}
    store.close()
    assert set(reader.of(store, "r", [incident("i", THEN)], THEN + AFTER_NS + 2)) == {"i"}, "the store is asked no more"
    assert reader.of(store, "r", [], THEN + AFTER_NS + 3) == {}


def test_an_incident_that_is_over_is_told_with_the_nodes_of_then_on_its_page_and_in_the_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'store = "sqlite://{tmp_path}/store.db"\n[[runs]]\nname = "r"\ndir = "{bench.dir}"\n')
    bench.header()
    bench.train(0, 400)
    for step in range(400, 430):
        bench.clock.advance(1)
        bench.step(step, loss=float("nan"))
    bench.watchdog.turn()
    opened_ns = bench.clock.time_ns()
    say(bench.store, "node17", opened_ns, "fail", "GPU 5 <b>is lost</b>")
    alert = Event(
        "external", opened_ns - 3_600 * S, id="a/1", severity=Severity.CRITICAL, source="alertmanager", text="LinkDown on node17",
        data={"state": "firing", "node": "node17", "heard_ns": opened_ns},
    )  # fmt: skip
    flaps = [
        Event(
            "external",
            opened_ns + 600 * S + n,
            id=f"a/f{n}",
            severity=Severity.WARNING,
            source="alertmanager",
            text="FanSlow on node1",
        )
        for n in range(300)
    ]
    bench.store.write([event_point("", one) for one in (alert, *flaps)])
    bench.train(430, 700)
    bench.watchdog.turn()
    bench.clock.advance(3_600)
    now_ns = bench.clock.time_ns()
    run = bench.settings.runs[0]
    view = run_view(bench.settings, bench.store, run, read_control(run, now_ns), now_ns)
    (past,) = [one for one in view.incidents if "loss_nonfinite" in one.rules]
    assert not past.is_open
    story = incident_story(view, [NodeSample("node17", now_ns, "ok")], past)
    assert story.nodes_then == "1 of 1 reported; node17 fail (GPU 5 <b>is lost</b>)"
    assert any(check.layer == "cluster" and "node17 fail" in check.evidence for check in story.checks)
    assert any("LinkDown on node17" in check.evidence for check in story.checks), "an alert that flaps pushed it out"
    for name in ("night.html", "night.json"):
        assert main(["report", "r", "--incident", past.id, "-o", str(tmp_path / name), "--config", str(config)]) == 0
    assert "GPU 5 &lt;b&gt;is lost&lt;/b&gt;" in (tmp_path / "night.html").read_text()
    assert ["Nodes when it began", story.nodes_then] in json.loads((tmp_path / "night.json").read_text())["facts"]
    bench.store.close()
