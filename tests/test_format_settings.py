"""``[formats.NAME]`` tables: read, refused, and used by parse, detect and the watchdog's sources."""

import json

import pytest

from trainvitals import settings
from trainvitals.__main__ import main
from trainvitals.clock import SystemClock
from trainvitals.errors import SettingsError
from trainvitals.logs.registry import home_made_grammars
from trainvitals.records import Step
from trainvitals.settings import RunSettings
from trainvitals.watch.sources import LocalProcessTable, RunSources

TABLE = r"""
[formats.ours]
pattern = 'update (?P<step>\d+) xent (?P<loss>\S+)'
"""
LOG = "hello\nupdate 1 xent 2.5\nupdate 2 xent 2.25\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "trainvitals.toml"
    path.write_text(TABLE + f"[[runs]]\nname = 'a'\ndir = '{tmp_path}'\nlogs = ['{tmp_path}/*.log']\nlog_format = 'ours'\n")
    return path


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(LOG)
    return path


def test_a_table_is_read_and_a_run_may_name_it(config):
    loaded = settings.load(config)
    assert loaded.runs[0].log_format == "ours"
    assert list(home_made_grammars(loaded.formats)) == ["ours"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[formats.ours]\npattern = 'loss (?P<loss>.*)'", r"\[formats.ours\]: the pattern needs a group named step"),
        ("[formats.ours]\n", r"\[formats.ours\] needs a pattern"),
        ("[formats.ours]\npattern = '(?P<step>a)(?<!x)(?P<loss>b)'", "no regular expression of RE2"),
        ("[formats.ours]\npatern = 'x'", "Did you mean 'pattern'"),
        ("[formats.megatron]\npattern = 'x'", "name of a built-in format"),
        ("[formats.'a b']\npattern = 'x'", "no name for a format"),
        ("[formats]\nours = 3", r"must be \[formats.NAME\] tables"),
        ("[[runs]]\nname = 'a'\ndir = 'x'\nlog_format = 'our'\n" + TABLE, "Did you mean 'ours'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_what_to_do(tmp_path, text, told):
    path = tmp_path / "trainvitals.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=told) as caught:
        settings.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("format", ["auto", "ours"])
def test_parse_reads_a_home_made_log_with_the_settings(config, log, capsys, format):
    assert main(["parse", str(log), "--config", str(config), "--format", format]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["step"], row["values"]) for row in rows if row["type"] == "step"] == [(1, {"loss": 2.5}), (2, {"loss": 2.25})]


def test_parse_without_the_settings_names_the_formats_there_are(log, capsys):
    assert main(["parse", str(log), "--format", "ours"]) == 2
    assert "'ours' is no known log format; use one of auto," in capsys.readouterr().err


def test_detect_reads_a_home_made_log_with_the_settings(config, log, capsys):
    log.write_text("".join(f"update {n} xent {2.5 if n < 300 else 'nan'}\n" for n in range(1, 320)))
    assert main(["detect", str(log), "--config", str(config)]) == 1
    assert "loss_nonfinite" in capsys.readouterr().out


def test_the_watchdogs_sources_read_a_home_made_log(tmp_path, log):
    run = RunSettings(name="a", dir=str(tmp_path), logs=(str(log),), log_format="ours")
    custom = home_made_grammars(
        settings.parse({"formats": {"ours": {"pattern": r"update (?P<step>\d+) xent (?P<loss>\S+)"}}}).formats
    )
    sources = RunSources(run, SystemClock(), LocalProcessTable("host", lambda pid: (True, None)), custom=custom)
    for each in (sources, sources.fresh()):
        assert [record.step for record in each.poll() if isinstance(record, Step)] == [1, 2]
