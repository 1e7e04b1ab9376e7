from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.errors import StoreError
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore
from trainvitals.store.open import open_embedded, open_store


def test_a_sqlite_url_opens_the_file_of_that_path_and_touches_nothing_before_the_first_call(tmp_path: Path) -> None:
    path = tmp_path / "a dir" / "100% #1?.db"
    store = open_embedded(f"sqlite://{path}")
    assert not path.parent.exists()
    store.commit([], {"k": b"v"})
    assert path.is_file() and store.load_state("") == {"k": b"v"}
    reader = open_embedded(f"sqlite://{path}", read_only=True)
    assert reader.load_state("k") == {"k": b"v"}
    reader.close()
    store.close()


def test_an_influxdb_url_opens_that_server_and_sends_nothing_before_the_first_call() -> None:
    store = open_store("influxdb+http://127.0.0.1:1/prefix/", influxdb=InfluxdbSettings(database="hw"))
    assert isinstance(store, InfluxStore) and store.url == "http://127.0.0.1:1/prefix"
    store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("influxdb+https://user:secret@host:8086", "may hold no user"),
        ("influxdb+https://host:8086?token=secret", "may hold no user"),
        ("influxdb://host:8086", "names no InfluxDB server"),
        ("influxdb+ftp://secret", "names no InfluxDB server"),
        ("influxdb+http://host:notaport/secret", "names no InfluxDB server"),
        ("influxdb+http://", "names no InfluxDB server"),
        ("sqlite://relative.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("postgres://x", "no known kind"),
        ("", "no known kind"),
    ],
)
def test_another_url_is_refused_in_a_sentence_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
