"""The wall's signed links: what they let look at, what is refused, and that revoking works at once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import InputError
from trainvitals.web import wall_files
from trainvitals.web.wall_door import Admission, Asked, LinkBook, admit
from trainvitals.web.wall_links import SHOWS, WallLink, read, sign

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_S = 1_800_000_000
LINK = WallLink("00112233aabb", "llama-70b", NOW_S + 60)
RUNS = ["other", "llama-70b"]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys" / "wall.key"
    wall_files.make(path)
    return path


def made(key_file: Path, **changes: object) -> str:
    link = WallLink(**{**LINK.__dict__, **changes})
    wall_files.add(key_file, link, NOW_S)
    return sign(link, wall_files.read_secret(key_file))


def asked(key_file: Path, key: str, now_s: float = NOW_S, **more: object) -> Admission:
    return admit(Asked(key=key, is_embedded=True, **more), LinkBook(key_file), now_s, RUNS, lambda run: False)


@given(st.text(min_size=1, max_size=128), st.integers(0, 2**40), st.sets(st.sampled_from(SHOWS)))
def test_a_link_is_read_as_it_was_signed(run: str, expires_s: int, shows: set[str]) -> None:
    link = WallLink("0123456789ab", run, expires_s, tuple(one for one in SHOWS if one in shows))
    key = sign(link, SECRET)
    assert read(key, SECRET) == link and key.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_every_other_letter_anywhere_in_a_key_makes_it_worthless() -> None:
    key = sign(LINK, SECRET)
    assert read(key, SECRET) == LINK
    for place, letter in enumerate(key):
        for other in ("A", "B", "-", ".", "=", "\n", "é"):
            if other != letter:
                assert read(key[:place] + other + key[place + 1 :], SECRET) is None
        assert read(key[:place] + key[place + 1 :], SECRET) is None


@given(st.text(max_size=300))
def test_no_text_at_all_is_taken_for_a_key(text: str) -> None:
    assert read(text, SECRET) is None


def test_another_secret_or_a_signature_for_another_purpose_opens_nothing() -> None:
    assert read(sign(LINK, SECRET), b"f" * 32) is None
    payload = json.dumps({"v": 1, "id": LINK.id, "run": LINK.run, "exp": LINK.expires_s}).encode()
    bare = [
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (payload, hmac.new(SECRET, payload, hashlib.sha256).digest())
    ]
    assert read(".".join(bare), SECRET) is None


@pytest.mark.parametrize(
    "payload",
    [
        [], {}, None, "x", {"v": 2, "id": LINK.id, "run": "r", "exp": 1}, {"v": 1, "id": "../x", "run": "r", "exp": 1},
        {"v": 1, "id": LINK.id, "run": "", "exp": 1}, {"v": 1, "id": LINK.id, "run": "r", "exp": True},
        {"v": 1, "id": LINK.id, "run": "r", "exp": 1e12}, {"v": 1, "id": LINK.id, "run": "r", "exp": 1, "show": []},
        {"v": 1, "id": LINK.id, "run": "r", "exp": 1, "show": ["control"]}, {"v": 1, "id": LINK.id, "run": ["r"], "exp": 1},
    ],
)  # fmt: skip
def test_a_signed_payload_of_another_shape_opens_nothing(payload: object) -> None:
    text = json.dumps(payload).encode()
    signature = hmac.new(SECRET, b"trainvitals wall link v1\n" + text, hashlib.sha256).digest()
    assert read(".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (text, signature)), SECRET) is None


def test_a_link_opens_its_run_and_no_other(key_file: Path) -> None:
    key = made(key_file)
    assert asked(key_file, key) == Admission("llama-70b", SHOWS)
    assert asked(key_file, key, run="llama-70b").run == "llama-70b"
    assert asked(key_file, key, run="other") == Admission(refusal="other_run")
    assert asked(key_file, made(key_file, run="gone")) == Admission(refusal="no_run")


def test_a_link_ends_to_the_second(key_file: Path) -> None:
    key = made(key_file)
    assert asked(key_file, key, NOW_S + 59.9).run and asked(key_file, key, NOW_S + 60) == Admission(refusal="expired")


def test_a_link_shows_no_more_than_it_was_made_for(key_file: Path) -> None:
    key = made(key_file, shows=("verdict", "nodes"))
    assert asked(key_file, key).shows == ("verdict", "nodes")
    assert asked(key_file, key, shows="nodes,checkpoints,curves").shows == ("nodes",)
    assert asked(key_file, key, shows="curves").shows == ("verdict", "nodes"), "nothing of what was asked: what is allowed"
    assert asked(key_file, made(key_file), shows="nodes, verdict, control").shows == ("verdict", "nodes")


def test_a_revoked_link_is_refused_by_a_dashboard_that_runs(key_file: Path) -> None:
    key, other = made(key_file), made(key_file, id="ffffffffffff")
    book = LinkBook(key_file)
    assert book.read(key, NOW_S)[0] is not None
    wall_files.revoke(key_file, LINK.id, NOW_S)
    assert book.read(key, NOW_S) == (None, "revoked") and book.read(other, NOW_S)[1] == ""


def test_a_new_secret_closes_every_link(key_file: Path) -> None:
    key, book = made(key_file), LinkBook(key_file)
    assert book.read(key, NOW_S)[1] == ""
    key_file.write_text("f" * 64)
    assert book.read(key, NOW_S) == (None, "altered")


def test_without_its_book_or_with_a_damaged_one_no_link_is_believed(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    key, book, path = made(key_file), LinkBook(key_file), wall_files.book_path(key_file)
    whole = path.read_text()
    for broken in (None, whole + '{"revoked": "0', whole + "[]\n", '{"id": 1}\n'):
        path.unlink(missing_ok=True)
        if broken is not None:
            path.write_text(broken)
        assert book.read(key, NOW_S) == (None, "closed")
        assert book.read(key, NOW_S) == (None, "closed")
    assert len(caplog.records) == 3 and "damaged" in caplog.text and "There is no" in caplog.text
    path.write_text("")
    assert book.read(key, NOW_S) == (None, "revoked"), "a book that was emptied names no link"
    path.write_text(whole)
    assert book.read(key, NOW_S)[1] == ""


def test_secret_and_book_are_readable_by_nobody_else_and_a_secret_for_everyone_is_refused(key_file: Path) -> None:
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert wall_files.book_path(key_file).stat().st_mode & 0o007 == 0
    key = made(key_file)
    key_file.chmod(0o644)
    assert LinkBook(key_file).read(key, NOW_S) == (None, "closed")
    with pytest.raises(InputError, match="chmod o-rwx"):
        wall_files.read_secret(key_file)


def test_making_it_twice_keeps_the_first_secret_and_leaves_no_draft(key_file: Path) -> None:
    before = key_file.read_bytes()
    wall_files.make(key_file)
    assert key_file.read_bytes() == before and len(os.listdir(key_file.parent)) == 2


def test_a_pipe_in_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "wall.key")
    with pytest.raises(InputError, match="not a regular file"):
        wall_files.read_secret(tmp_path / "wall.key")


def test_in_a_frame_only_a_link_counts_whoever_is_logged_in(key_file: Path) -> None:
    book = LinkBook(key_file)
    framed = admit(Asked(run="llama-70b", is_embedded=True), book, NOW_S, RUNS, lambda run: True)
    assert framed == Admission(refusal="needs_link")


def test_outside_of_a_frame_a_person_sees_what_the_person_may_see(key_file: Path) -> None:
    book = LinkBook(key_file)
    assert admit(Asked(), book, NOW_S, RUNS, lambda run: True).run == "other"
    assert admit(Asked(run="llama-70b"), book, NOW_S, RUNS, lambda run: run == "llama-70b").run == "llama-70b"
    assert admit(Asked(run="other"), book, NOW_S, RUNS, lambda run: run == "llama-70b") == Admission(refusal="needs_link")
    assert admit(Asked(), book, NOW_S, RUNS, lambda run: False) == Admission(refusal="needs_link")


def test_a_bad_link_is_refused_even_for_somebody_who_may_look(key_file: Path) -> None:
    key = made(key_file)
    told = admit(Asked(key=key[:-1]), LinkBook(key_file), NOW_S, RUNS, lambda run: True)
    assert told == Admission(refusal="altered")
