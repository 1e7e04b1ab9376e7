"""`report RUN --incident ID -o FILE.html`: the incident out of the store, as one file that stands alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "watch"))

from test_watchdog import Bench

from trainvitals.__main__ import main


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.config = tmp_path / "trainvitals.toml"
    made.config.write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[dashboard]\npublic_url = "https://dash.example"\n'
        f'[[runs]]\nname = "r"\ndir = "{made.dir}"\ngpus = 8\n'
    )
    made.header()
    made.train(0, 400)
    made.watchdog.turn()
    for step in range(400, 430):
        made.clock.advance(1)
        made.step(step, loss=float("nan"))
    made.watchdog.turn()
    yield made
    made.store.close()


def test_the_incident_of_the_store_is_one_file_with_curve_checks_and_link(bench, tmp_path, capsys):
    identifier = bench.events("incident")[0].data["id"]
    out = tmp_path / "night.html"
    assert main(["report", "r", "--incident", identifier[:9], "-o", str(out), "--config", str(bench.config)]) == 0
    page = out.read_text()
    assert "loss_nonfinite" in page and "<polyline" in page and "Check in this order" in page
    assert 'href="https://dash.example/incidents?' in page
    assert identifier in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*night*")] == ["night.html"], "nothing is left beside it"


def test_the_newest_one_is_meant_when_none_is_named_and_json_is_the_same_as_data(bench, tmp_path):
    out = tmp_path / "night.json"
    assert main(["report", "r", "-o", str(out), "--config", str(bench.config)]) == 0
    told = json.loads(out.read_text())
    assert told["incident"]["family"] == "loss" and told["findings"] and told["curves"][0]["points"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("r", "--incident", "nothing"), 2), (("other",), 2), (("r", "--incident", "r/"), 0), (("r", "-o", "/no/such/dir/x.html"), 2),
    ],
)  # fmt: skip
def test_what_is_not_there_is_told_in_a_sentence(bench, tmp_path, capsys, words, code):
    out = ["-o", str(tmp_path / "x.html")] if "-o" not in words else []
    assert main(["report", *words, *out, "--config", str(bench.config)]) == code
    err = capsys.readouterr().err
    assert err and "Traceback" not in err
