"""``python -m trainvitals wall``: links are made, listed and revoked by whoever runs the dashboard."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from trainvitals.__main__ import main
from trainvitals.web.wall_door import LinkBook
from trainvitals.web.wall_files import book_path

RUN = "llama 70b/é"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "trainvitals.toml"
    path.write_text(
        f'[[runs]]\nname = "{RUN}"\ndir = "run"\n[dashboard]\npublic_url = "https://health.example.org/tv/"\nwall_key_file = "keys/wall.key"\n'
        'wiki_origins = ["https://wiki.example.org"]\n',
        encoding="utf-8",
    )
    return str(path)


def wall(*arguments: str, config: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["wall", *arguments, "--config", config])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_link_is_an_address_that_the_dashboard_believes(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = wall(
        "link", RUN, "--days", "2", "--show", "nodes,verdict", "--theme", "dark", "--lang", "zh", config=config, capsys=capsys
    )
    address = urlsplit(out.strip())
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert (
        code == 0
        and out.count("\n") == 1
        and f"{address.scheme}://{address.netloc}{address.path}" == "https://health.example.org/tv/wall"
    )
    key = query.pop("key")
    assert query == {"embed": "true", "run": RUN, "show": "verdict,nodes", "theme": "dark", "lang": "zh"}
    link, why_not = LinkBook(Path(config).parent / "keys/wall.key").read(key, time.time())
    assert link is not None and why_not == "" and (link.run, link.shows) == (RUN, ("verdict", "nodes"))
    assert 0 <= time.time() + 2 * 86_400 - link.expires_s < 60
    assert "https://wiki.example.org" in err and "wall revoke" in err and key not in err


def test_links_are_listed_without_their_keys_and_revoked_by_their_id(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = wall("link", RUN, "--note", "Runbook \x1b[31m page", config=config, capsys=capsys)[1].partition("key=")[2].strip()
    code, out, _ = wall("list", "--json", config=config, capsys=capsys)
    row = json.loads(out)
    assert code == 0 and row["run"] == RUN and row["state"] == "open" and key[:20] not in out
    assert "\x1b" not in wall("list", config=config, capsys=capsys)[1]
    assert wall("revoke", row["id"], config=config, capsys=capsys)[0] == 0
    assert json.loads(wall("list", "--json", config=config, capsys=capsys)[1])["state"] == "revoked"
    assert LinkBook(Path(config).parent / "keys/wall.key").read(key, time.time()) == (None, "revoked")
    assert "already" in wall("revoke", row["id"], config=config, capsys=capsys)[2]


def test_a_link_of_which_only_the_id_is_known_can_be_revoked_too(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    wall("link", RUN, config=config, capsys=capsys)
    assert "not in the book" in wall("revoke", "00112233aabb", config=config, capsys=capsys)[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("link", "gone"), "No run 'gone'"), (("link", RUN, "--show", "control"), "is none of them"),
        (("revoke", "../../etc"), "no id of a link"), (("revoke", "00112233aabb"), "There is no"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_a_sentence(
    arguments: tuple[str, ...], says: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = wall(*arguments, config=config, capsys=capsys)
    assert code == 2 and out == "" and says in err and "Traceback" not in err


@pytest.mark.parametrize("days", ["0", "-1", "367", "nan", "inf", "x"])
def test_no_link_is_for_ever(days: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        wall("link", RUN, f"--days={days}", config=config, capsys=capsys)
    assert ended.value.code == 2


def test_it_says_when_no_site_may_frame_the_wall_and_refuses_origins_that_are_none(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(config).read_text(encoding="utf-8")
    Path(config).write_text(text.replace('["https://wiki.example.org"]', "[]"), encoding="utf-8")
    assert "No site may frame it yet" in wall("link", RUN, config=config, capsys=capsys)[2]
    Path(config).write_text(text.replace("https://wiki.example.org", "*"), encoding="utf-8")
    code, out, err = wall("link", RUN, config=config, capsys=capsys)
    assert code == 2 and out == "" and "is no origin" in err


def test_before_the_first_link_the_list_is_empty_and_says_so(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = wall("list", config=config, capsys=capsys)
    assert (
        (code, out) == (0, "") and "No link was made yet" in err and not book_path(Path(config).parent / "keys/wall.key").exists()
    )
