"""``wall``: links by which the read-only wall opens in a frame of a wiki: make one, list them, revoke one."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from trainvitals import settings as settings_module
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.settings import Settings
from trainvitals.web import wall_files
from trainvitals.web.wall_framing import WALL_PAGE, ancestors
from trainvitals.web.wall_links import SHOWS, WallLink, is_id, sign

DAY_S = 86_400
MAX_DAYS = 366.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    link = actions.add_parser("link", help="make a link to the wall of a run and print its address")
    link.add_argument("run", metavar="RUN", help="name of a run of the settings")
    link.add_argument("--days", type=_days, default=90.0, help="days after which it ends (default 90, at most 366)")
    link.add_argument("--show", default="", help=f"what it may show at most, of {','.join(SHOWS)}; default everything")
    link.add_argument("--theme", choices=("light", "dark"), help="colours; default those of the browser")
    link.add_argument("--lang", choices=("en", "zh"), help="language; default English")
    link.add_argument("--note", default="", help="where it stands, for example the name of the wiki page; shown by list only")
    listed = actions.add_parser("list", help="links that were made, and which of them still open the wall")
    listed.add_argument("--json", action="store_true", help="JSON lines")
    revoked = actions.add_parser("revoke", help="close a link at once, also walls that hang open")
    revoked.add_argument("id", metavar="ID", help="of the link, as list shows it")
    for action in (link, listed, revoked):
        action.add_argument("--config", help="settings file")


def _days(text: str) -> float:
    """Argparse turns the ``ValueError`` into a sentence."""
    days = float(text)
    if not 0 < days <= MAX_DAYS:
        raise ValueError(text)
    return days


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    now_s = SystemClock().time_ns() // 10**9
    if options.action == "link":
        return _link(settings, options, now_s)
    return _list(settings, options.json, now_s) if options.action == "list" else _revoke(settings, options.id, now_s)


def _link(settings: Settings, options: argparse.Namespace, now_s: int) -> int:
    name = settings.run(options.run).name
    asked = [word.strip() for word in options.show.split(",") if word.strip()]
    unknown = [word for word in asked if word not in SHOWS]
    if unknown:
        raise InputError(f"The wall shows {', '.join(SHOWS)}; {unknown[0][:60]!r} is none of them.")
    sources = ancestors(settings.dashboard.wiki_origins, settings.path)
    key_file = wall_files.key_path(settings)
    wall_files.make(key_file)
    link = WallLink(secrets.token_hex(6), name, now_s + round(options.days * DAY_S), tuple(one for one in SHOWS if one in asked))
    try:
        key = sign(link, wall_files.read_secret(key_file))
    except ValueError as error:
        raise InputError(f"No link can be made for the run {name[:60]!r}: its name is too long or no text.") from error
    wall_files.read_book(wall_files.book_path(key_file))
    wall_files.add(key_file, link, now_s, options.note)
    print(address(settings, link, key, options.theme, options.lang))  # noqa: T201
    _say(
        f"Link {link.id} opens the wall of {name!r}, and nothing else, until {_moment(link.expires_s)}. Close it: wall revoke {link.id}"
    )
    if sources == "'none'":
        _say("No site may frame it yet: name the wiki in [dashboard] wiki_origins, then start the dashboard again.")
    else:
        _say(f"It may be framed by {sources}.")
    return 0


def address(settings: Settings, link: WallLink, key: str, theme: str | None = None, language: str | None = None) -> str:
    """Below ``public_url``; without one, that of a dashboard on this machine."""
    base = settings.dashboard.public_url.rstrip("/") or f"http://localhost:{settings.dashboard.port}"
    query = {"embed": "true", "run": link.run}
    if link.shows:
        query["show"] = ",".join(link.shows)
    query |= {name: value for name, value in (("theme", theme), ("lang", language)) if value}
    return f"{base}/{WALL_PAGE}?{urlencode(query | {'key': key}, quote_via=quote, safe=',')}"


def _list(settings: Settings, is_json: bool, now_s: int) -> int:
    path = wall_files.book_path(wall_files.key_path(settings))
    if not path.exists():
        _say(f"No link was made yet: there is no {path}.")
        return 0
    for entry in wall_files.read_book(path).values():
        state = "revoked" if entry.revoked_s is not None else "expired" if entry.expires_s <= now_s else "open"
        if is_json:
            print(json.dumps({**asdict(entry), "state": state}, ensure_ascii=True))  # noqa: T201
        else:
            shown = [entry.id, f"{state:<8}", f"until {_moment(entry.expires_s)}", entry.run, entry.note]
            print("  ".join(_plain(part) for part in shown if part))  # noqa: T201
    return 0


def _revoke(settings: Settings, id: str, now_s: int) -> int:
    if not is_id(id):
        raise InputError(f"{id[:60]!r} is no id of a link: 12 hex digits, as wall list shows them.")
    key_file = wall_files.key_path(settings)
    known = wall_files.read_book(wall_files.book_path(key_file)).get(id)
    if known is not None and known.revoked_s is not None:
        _say(f"Link {id} was revoked already, {_moment(known.revoked_s)}.")
        return 0
    wall_files.revoke(key_file, id, now_s)
    _say(
        f"Link {id} is closed."
        if known is not None
        else f"Link {id} is not in the book; it is refused from now on, whoever made it."
    )
    return 0


def _moment(time_s: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "at no time that can be told"


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
