"""Which sink the settings ask for, and where its file lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import SettingsError
from trainvitals.settings import parse
from trainvitals.store.sink import file_name, heartbeat_fields, open_sink, spool_file, spool_files, spool_stats
from trainvitals.store.sqlite import SqliteStore


def test_the_embedded_store_needs_no_spool(tmp_path):
    sink = open_sink(parse({"store": f"sqlite://{tmp_path}/t.db"}), "watch/r")
    assert isinstance(sink, SqliteStore)
    assert spool_stats(sink) is None and heartbeat_fields(sink) == {}
    sink.close()


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_owner_has_a_plain_file_name_of_its_own(one, other):
    name = file_name(one)
    assert "/" not in name and not name.startswith(".") and len(name) < 120 and name.isascii()
    assert (name == file_name(other)) == (one == other)


def test_a_spool_too_small_to_be_one_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="max_bytes must be at least"):
        spool_file(parse({"spool": {"dir": str(tmp_path), "max_bytes": 10}}), "x")


def test_a_relative_directory_counts_from_the_settings_file(tmp_path):
    settings = parse({"spool": {"dir": "waiting"}}, str(tmp_path / "trainvitals.toml"))
    assert settings.spool_directory == tmp_path / "waiting"


def test_all_spools_of_a_machine_are_found_with_their_owners(tmp_path):
    settings = parse({"spool": {"dir": str(tmp_path)}})
    for owner in ("watch/b", "watch/a run"):
        file = spool_file(settings, owner)
        file.append([], {"k": b"v"})
        file.close()
    found = list(spool_files(settings))
    assert [file.stats().owner for file in found] == ["watch/a run", "watch/b"]
    for file in found:
        file.close()
