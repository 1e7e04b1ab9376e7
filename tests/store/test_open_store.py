from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.errors import StoreError
from trainvitals.store.open import open_store


def test_a_sqlite_url_opens_the_file_of_that_path_and_touches_nothing_before_the_first_call(tmp_path: Path) -> None:
    path = tmp_path / "a dir" / "100% #1?.db"
    store = open_store(f"sqlite://{path}")
    assert not path.parent.exists()
    store.commit([], {"k": b"v"})
    assert path.is_file() and store.load_state("") == {"k": b"v"}
    reader = open_store(f"sqlite://{path}", read_only=True)
    assert reader.load_state("k") == {"k": b"v"}
    reader.close()
    store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("influxdb+https://user:secret@host:8086", "embedded store only"),
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
