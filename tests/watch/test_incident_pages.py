"""`incidents/` in the run directory: pages that stand alone, whatever the store, the disk and the names do."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from test_watchdog import Bench

from trainvitals.errors import StoreUnavailable
from trainvitals.incidents.kept_pages import incidents_of, page_of
from trainvitals.incidents.static_page import IncidentPage, file_name, index_html, to_html, to_json
from trainvitals.incidents.static_page_curve import COLUMNS, Curve, svg
from trainvitals.incidents.triage import Check
from trainvitals.records import Event, Finding, Incident, Severity

HOSTILE = "<script>alert(1)</script><img src=x onerror=a()> &amp; \" ' \x1b[31m \u202e \u0000 ]]> --> javascript:a()"
NOW = 1_764_000_000 * 10**9


class Seen(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def an_incident(text="loss 2.31 → 2.94", **changes):
    told = {
        "id": "r/loss/1/loss_spike/100", "run": "r", "family": "loss", "severity": Severity.CRITICAL, "rules": ("loss_spike",),
        "finding_ids": ("f",), "first_step": 100, "last_step": None, "opened_at_ns": NOW, "updated_at_ns": NOW, "closed_at_ns": None,
        "title": text, "message": text,
    }  # fmt: skip
    return Incident(**{**told, **changes})


def a_page(text="all is said", **changes):
    finding = Finding("f", "loss_spike", "loss", Severity.CRITICAL, 100, 101, None, 1, NOW, 2.9, 2.3, text, True)
    told = {
        "incident": an_incident(text, acknowledged_by=text, acknowledged_at_ns=NOW, acknowledged_note=text), "written_at_ns": NOW,
        "symptom": text, "suspect": text, "action": text, "facts": ((text, text),), "checks": (Check(text, "!", text, text),),
        "findings": (finding,), "near": (Event("fault", NOW, text=text),),
        "curves": (Curve("loss", tuple((s, 2.0 + s / 100) for s in range(200))),), "link": "https://dash.example/incidents?run=r",
    }  # fmt: skip
    return IncidentPage(**{**told, **changes})


ALLOWED = {"html", "head", "meta", "title", "style", "body", "main", "p", "h1", "h2", "table", "tr", "td", "th", "a", "footer", "svg", "rect", "line", "text", "polyline"}  # fmt: skip


def test_hostile_names_stay_text_and_the_page_loads_and_runs_nothing():
    page = to_html(a_page(HOSTILE, incident=an_incident(HOSTILE, id=f"r/{HOSTILE}", run=HOSTILE), link="javascript:alert(1)"))
    seen = Seen(page)
    assert set(seen.tags) <= ALLOWED and "a" not in seen.tags
    assert not [name for name, value in seen.attributes if name.startswith("on") or name in ("src", "srcset", "action")]
    assert "<script" not in page and "\u202e" not in page and "\x1b" not in page and "\x00" not in page
    assert "default-src 'none'" in page
    assert "<script>alert(1)</script>" in "".join(seen.text), "it is shown as it is"


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.integers(-(2**62), 2**62))
def test_no_text_and_no_number_breaks_a_page(text, number):
    incident = an_incident(text, opened_at_ns=number, closed_at_ns=number, first_step=number, last_step=number, id=text, run=text)
    page = to_html(a_page(text, incident=incident, written_at_ns=number))
    assert set(Seen(page).tags) <= ALLOWED
    json.loads(to_json(a_page(text, incident=incident)))
    assert set(Seen(index_html([incident], text, number)).tags) <= ALLOWED
    assert re.fullmatch(r"[A-Za-z0-9_-]{11,80}", file_name(text))


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**53), 2**53), st.floats()), max_size=50), st.lists(st.integers(0, 1000), max_size=5),
    st.none() | st.integers(-(2**53), 2**53), st.none() | st.integers(-(2**53), 2**53),
)  # fmt: skip
def test_a_curve_of_any_numbers_can_be_drawn(points, bad, first, last):
    drawn = svg(Curve("loss<", tuple(sorted(points)), tuple(bad)), first, last)
    assert "nan" not in drawn.lower().replace("name", "") and "inf" not in drawn
    assert not drawn or drawn.endswith("</svg>")


def test_a_long_curve_is_thinned_and_keeps_its_peaks():
    points = tuple((step, 9.0 if step == 2_345 else 2.0 + step % 7 / 100) for step in range(4_000))
    drawn = svg(Curve("loss", points), 2_300, 2_400)
    assert len(re.findall(r"[\d.]+,[\d.]+", drawn)) <= 2 * COLUMNS + 2
    assert ">9</text>" in drawn and 'class="span"' in drawn


def test_the_checks_stand_in_their_order_with_what_is_known():
    layers = ("data", "code", "numerics", "cluster")
    page = to_html(a_page(checks=tuple(Check(layer, "?", f"about {layer}", "nothing") for layer in layers)))
    places = [page.index(f"about {layer}") for layer in layers]
    assert places == sorted(places)


# -- what watch writes ------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()


def sick(bench, steps=40):
    bench.header()
    bench.train(0, 400)
    bench.watchdog.turn()
    for step in range(400, 400 + steps):
        bench.clock.advance(1)
        bench.step(step, loss=float("nan"))
    bench.watchdog.turn()


def pages(bench):
    return {path.name: path.read_text() for path in (bench.dir / "incidents").iterdir()}


def test_an_open_incident_is_a_page_with_its_curve_beside_the_run(bench):
    sick(bench)
    found = pages(bench)
    (name,) = [name for name in found if name.endswith(".html") and name != "index.html"]
    assert "OPEN · critical" in found[name] and "loss_nonfinite" in found[name]
    assert "<polyline" in found[name] and 'class="bad"' in found[name]
    assert name in found["index.html"]
    told = json.loads(found[name.replace(".html", ".json")])
    assert told["incident"]["severity"] == "critical" and told["findings"] and told["checks"]


def test_the_page_says_that_it_is_over_and_stays(bench):
    sick(bench)
    bench.train(440, 200)
    bench.watchdog.turn()
    found = pages(bench)
    (name,) = [name for name in found if name.endswith(".html") and name != "index.html"]
    assert "OVER · critical" in found[name]


def test_the_page_is_written_while_the_store_is_away(bench):
    class Away:
        def load_state(self, _prefix):
            return {}

        def commit(self, _points, _state):
            raise StoreUnavailable("it is away")

    bench.start(Away())
    sick(bench)
    assert any("OPEN · critical" in text for text in pages(bench).values())


def test_a_page_keeps_its_curve_and_findings_over_a_restart(bench):
    sick(bench)
    (name,) = [name for name in pages(bench) if name.endswith(".json") and name != "index.json"]
    before = json.loads(pages(bench)[name])
    bench.start()
    bench.clock.advance(60)
    bench.step(440, loss=float("nan"))
    bench.watchdog.turn()
    bench.clock.advance(60)
    bench.step(441, loss=float("nan"))
    bench.watchdog.turn()
    after = json.loads(pages(bench)[name])
    assert after["written_at"] > before["written_at"]
    assert len(after["curves"][0]["points"]) >= len(before["curves"][0]["points"]) > 100
    assert [one["id"] for one in after["findings"]] == [one["id"] for one in before["findings"]]


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff\x00", b"[]", b'{"incident":5,"findings":[1],"near":[{}],"curves":[{"name":"loss","points":[[1,"x"],[2]]}]}',
        b'{"incidents":[{"id":5}]}', b"[" * 100_000, b'{"findings":[{"id":1,"severity":"critical"}]}',
    ],
)  # fmt: skip
def test_what_others_wrote_into_the_pages_does_no_harm(bench, junk):
    sick(bench)
    for path in (bench.dir / "incidents").iterdir():
        path.write_bytes(junk)
    bench.start()
    bench.clock.advance(60)
    bench.step(440, loss=float("nan"))
    bench.watchdog.turn()
    bench.clock.advance(60)
    bench.watchdog.turn()
    assert any("OPEN · critical" in text for text in pages(bench).values())


def test_a_pipe_or_a_link_in_place_of_a_page_holds_nothing_up(bench, tmp_path):
    (bench.dir / "incidents").mkdir()
    os.mkfifo(bench.dir / "incidents" / "index.json")
    sick(bench)
    assert any("OPEN" in path.read_text() for path in (bench.dir / "incidents").glob("*-*.html"))
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    (bench.dir / "incidents" / "index.html").unlink()
    (bench.dir / "incidents" / "index.html").symlink_to(victim)
    bench.clock.advance(60)
    bench.watchdog.turn()
    assert victim.read_text() == "keep me"


def test_a_directory_that_cannot_be_written_is_told_and_tried_again(bench):
    (bench.dir / "incidents").write_text("in the way")
    sick(bench)
    bench.watchdog.turn()
    assert any("pages of incidents are not written" in sentence for sentence in bench.said)
    (bench.dir / "incidents").unlink()
    bench.clock.advance(60)
    bench.watchdog.turn()
    assert any("OPEN · critical" in text for text in pages(bench).values())


def test_only_the_newest_closed_pages_are_kept(tmp_path):
    from dataclasses import replace

    from trainvitals.settings import parse
    from trainvitals.watch.alert_facts import Seen as Known
    from trainvitals.watch.incident_files import IncidentFiles

    settings = parse({"runs": [{"name": "r", "dir": str(tmp_path)}], "incidents": {"pages_kept": 3}})
    written = IncidentFiles(settings, settings.runs[0])
    for number in range(10):
        closed = replace(an_incident(), id=f"r/loss/{number}/loss_spike/1", closed_at_ns=NOW + number)
        written.poll([closed], Known(), NOW + number, float(number * 100))
    assert written.trouble == ""
    names = {path.name for path in (tmp_path / "incidents").glob("*-*.html")}
    assert names == {f"{file_name(f'r/loss/{number}/loss_spike/1')}.html" for number in (7, 8, 9)}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.dictionaries(
    st.sampled_from(["incident", "incidents", "findings", "near", "curves", "id", "severity", "rules"]), inner | st.lists(inner, max_size=3),
    max_size=4), max_leaves=12))  # fmt: skip
def test_what_is_read_back_never_raises(told):
    if isinstance(told, dict):
        page_of(told)
        list(incidents_of(told))
