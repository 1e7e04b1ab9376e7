"""The wall in two languages: nothing of ours is missing in either, numbers stay, and nothing on it acts."""

from __future__ import annotations

import ast
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import dead_run
import pytest
import sample_run as sample
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import settings as settings_module
from trainvitals.charts.nodes import STATES as NODE_STATES
from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import CheckpointState
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web import wall_words, wall_zh
from trainvitals.web.present import METRIC_LABELS
from trainvitals.web.process import make_poller
from trainvitals.web.view import CurveQuery, RunView, Snapshot
from trainvitals.web.wall_chart import figure_zh
from trainvitals.web.wall_door import __file__ as door_file
from trainvitals.web.wall_links import SHOWS
from trainvitals.web.wall_view import band_view, nodes_view, strip_cells, tile_views

ROOT = Path(__file__).resolve().parents[2]
#: Terms that people on call say in English, and names.
TERMS = {
    "loss",
    "checkpoint",
    "ckpt",
    "tokens",
    "samples",
    "s",
    "m",
    "utc",
    "gpu",
    "nan",
    "inf",
    "cst",
    "lr",
    "tflop",
    "xid",
    "k",
    "nov",
}


@pytest.fixture(scope="module", params=["sick", "well", "dead"])
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, RunView, str, int]:
    """A stored run as the dashboard sees it, and its curves."""
    home = tmp_path_factory.mktemp("night")
    store, now_ns = SqliteStore(home / "s.db"), time.time_ns()
    if request.param == "dead":
        dead_run.write_run(store, home / "run", now_ns)
    else:
        sample.write_run(store, home / "run", now_ns, sick=request.param == "sick")
    store.close()
    run = {
        "name": sample.RUN,
        "dir": str(home / "run"),
        "gpus": 128,
        "total_steps": 12_000,
        "checkpoints": [str(home)],
        "breaker": "armed",
    }
    poller = make_poller(settings_module.parse({"store": f"sqlite://{home}/s.db", "runs": [run]}))
    poller.tick()
    query = CurveQuery(sample.RUN, ("loss", "grad_norm", "throughput"), by="time", last_s=1800.0, compact=True)
    poller.curves(query, wait_s=0)
    poller.draw_due()
    result = poller.curves(query, wait_s=0)
    seen = poller.snapshot().run(sample.RUN)
    assert seen is not None and result is not None and result.figure_json, result
    return poller.snapshot(), seen, result.figure_json, poller.now_ns()


def english(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower())) - TERMS


def test_both_languages_say_everything() -> None:
    for table in (wall_words.TEXTS, wall_words.REFUSALS):
        assert table["en"].keys() == table["zh"].keys()
        for name, text in table["en"].items():
            assert text.count("{}") == table["zh"][name].count("{}")
    refusals = set(re.findall(r'refusal="([a-z_]+)"|None, "([a-z]+)"', Path(door_file).read_text()))
    assert {first or second for first, second in refusals} - {"revoked"} <= set(wall_words.REFUSALS["en"])
    assert wall_zh.WORDS.keys() == set(VerdictWord) and wall_zh.STATES.keys() == {state.value for state in CheckpointState}
    assert wall_words.NODE_STATES["zh"].keys() == {*NODE_STATES, "simulated"} - {""}
    assert set(METRIC_LABELS.values()) <= set(wall_zh.LABELS)


@pytest.mark.parametrize(
    ("told", "language"), [("zh", "zh"), ("zh-CN", "zh"), ("ZH", "zh"), ("en", "en"), ("", "en"), ("<x>", "en")]
)
def test_a_language_that_is_not_known_is_english(told: str, language: str) -> None:
    assert wall_words.language_of(told) == language


def test_the_chinese_wall_has_no_english_of_ours(night: tuple[Snapshot, RunView, str, int]) -> None:
    snapshot, run, figure_json, now_ns = night
    band = band_view(snapshot, run, now_ns, 2.0, "zh")
    outside = english(run.control.reason) | english(run.control.by)
    for text in (band["word"], band["headline"], band["automatic"], *band["facts"]):
        assert not english(text) - outside, text
    for tile in tile_views(snapshot, run, now_ns, "zh", SHOWS):
        assert not english(f"{tile['label']} {tile['value']} {tile['context']}"), tile
    for cell in strip_cells(run, "zh"):
        assert not english(cell["title"]), cell
    assert not english(nodes_view(snapshot, "zh")[0])
    figure = json.loads(figure_zh(figure_json, run.findings))
    for one in figure["layout"]["annotations"]:
        bare = re.sub(r"<[^>]*>", "", one["text"])
        assert not english(bare) - {"breaker"}, one["text"]
    for trace in figure["data"]:
        if (trace.get("meta") or {}).get("kind") == "finding":
            assert all("步" in text or not english(text) for text in trace["text"]), trace["text"]


def test_both_languages_have_the_same_numbers_and_tones(night: tuple[Snapshot, RunView, str, int]) -> None:
    snapshot, run, figure_json, now_ns = night
    ours, theirs = (tile_views(snapshot, run, now_ns, language, SHOWS) for language in ("en", "zh"))
    assert [tile.get("tone", "") for tile in ours] == [tile.get("tone", "") for tile in theirs]
    assert [tile["value"] for tile in ours if tile["label"] not in ("Time left",)] == [
        {"无": "none"}.get(tile["value"], tile["value"]) for tile in theirs if tile["label"] != "剩余时间"
    ]
    old, new = json.loads(figure_json), json.loads(figure_zh(figure_json, run.findings))
    for before, after in zip(old["data"], new["data"], strict=True):
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {"name", "text"}


def test_nothing_on_the_wall_offers_to_act_or_tells_a_path(night: tuple[Snapshot, RunView, str, int]) -> None:
    snapshot, run, _, now_ns = night
    for language in wall_words.LANGUAGES:
        view = band_view(snapshot, run, now_ns, 2.0, language)
        assert view["actions"] == [] and view["decision"] == ""
        assert not any("/" in cell["path"] for cell in strip_cells(run, language))


def test_tiles_of_what_is_not_shown_are_left_out(night: tuple[Snapshot, RunView, str, int]) -> None:
    snapshot, run, _, now_ns = night
    labels = {tile["label"] for tile in tile_views(snapshot, run, now_ns, "en", ("verdict",))}
    assert labels & {"Loss", "Step"} and not labels & {"Nodes", "Verified checkpoint", "Safe checkpoint", "Data age"}


@pytest.mark.parametrize("word", list(VerdictWord))
def test_every_verdict_has_a_headline_in_chinese(night: tuple[Snapshot, RunView, str, int], word: VerdictWord) -> None:
    snapshot, run, _, now_ns = night
    changed = replace(run, verdict=replace(run.verdict, word=word))
    told = wall_zh.band(snapshot, changed, now_ns)
    assert told["word"] and told["headline"].strip()
    assert wall_zh.headline(snapshot, replace(changed, incidents=(), last_step=None, watch_seen_ns=None), now_ns)


@given(st.text(max_size=200))
def test_a_label_of_any_text_is_no_error_and_foreign_text_stays(text: str) -> None:
    figure = {
        "data": [{"name": text, "meta": {"kind": "finding"}, "text": [text], "customdata": ["none"]}],
        "layout": {"annotations": [{"text": text}]},
    }
    assert json.loads(figure_zh(json.dumps(figure), ()))["data"][0]["text"] == [text]


def test_the_walls_own_files_draw_and_know_nothing_that_acts() -> None:
    draws = {"text", "container", "fragment", "html", "context", "session_state", "query_params"}
    from_pages = {
        "pages._shared.components": {"checkpoint_strip", "kpi_row", "live_chart", "node_wall", "verdict_band"},
        "pages._shared.state": {"theme"}, "pages._shared.who": {"identity"}, "pages._shared": {"wall_parts"},
        "pages._shared.wall_session": {"admitted", "language"},
    }  # fmt: skip
    files = [ROOT / "pages/wall.py", *(ROOT / "pages/_shared").glob("wall_*.py")]
    assert len(files) == 3
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "st":
                assert node.attr in draws, f"{path.name} uses st.{node.attr}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pages"):
                assert {name.name for name in node.names} <= from_pages[node.module or ""], path
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainvitals"):
                assert not re.search(r"action|control|annotat|request", f"{node.module} {[name.name for name in node.names]}"), (
                    path
                )
