"""The dashboard behind docker/nginx.conf: TLS, a base path, a person named by the proxy, and nobody else."""

from __future__ import annotations

import base64
import http.client
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dashboard_site import ROOT, Site, free_port, open_site, sample

from tests.services.backends import SqliteBackend
from tests.services.influx_server import NGINX
from trainvitals.control.request import read_request

playwright_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.skipif(NGINX is None, reason="needs nginx (Debian package nginx-light)"),
]
WAIT_MS = 60_000
#: A page that a test puts in place of the server's own comes from nowhere, and could open no socket to this machine.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-features=LocalNetworkAccessChecks"]
#: apr1 of "secret", made with openssl passwd -apr1.
PASSWORD = "secret"
PEOPLE = ("ana", "eve")
BASE = "trainvitals"


@dataclass
class Front:
    """nginx in front of a dashboard. url: where people come in. site: the dashboard itself."""

    site: Site
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/{BASE}"


def run_nginx(home: Path, port: int, dashboard_port: int) -> subprocess.Popen[bytes]:
    """The file as it is shipped; ports, files and the upstream are this machine's."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout",
         str(home / "privkey.pem"), "-out", str(home / "fullchain.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    hashed = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True).stdout.strip()
    (home / "htpasswd").write_text("".join(f"{name}:{hashed}\n" for name in PEOPLE))
    config = (ROOT / "docker/nginx.conf").read_text()
    for old, new in (  # /tmp first: the others bring more of it
        ("server dashboard:8501;", f"server 127.0.0.1:{dashboard_port};"), ("listen 8443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/tmp/", f"{home}/"),
        ("/etc/nginx/tls/", f"{home}/"), ("/etc/nginx/htpasswd", f"{home}/htpasswd"),
        ("worker_processes auto;", "worker_processes 1; daemon off;"),
    ):  # fmt: skip
        assert old in config
        config = config.replace(old, new)
    (home / "nginx.conf").write_text(config)
    for place in (home, *home.parents):
        if home.owner() == "root" and place != place.parent and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)  # nginx's worker is nobody
    return subprocess.Popen([NGINX, "-c", str(home / "nginx.conf"), "-e", "stderr"], stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    home, port = tmp_path_factory.mktemp("front"), free_port()
    site = open_site(
        tmp_path_factory.mktemp("behind"), SqliteBackend(), sick=False, base_path=BASE,
        dashboard=f'public_url = "https://localhost:{port}/{BASE}"',
        more='[login]\nmode = "proxy"\nproxy_addresses = ["127.0.0.1"]\n[access.runs."*"]\noperators = ["ana"]\n',
    )  # fmt: skip
    process = run_nginx(home, port, site.port)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        site.stopping.wait(0.1)
    yield Front(site, port, process)
    process.terminate()
    process.wait(20)
    site.close()


@pytest.fixture
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def opened(browser: playwright_api.Browser, front: Front, path: str, name: str) -> playwright_api.Page:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, ignore_https_errors=True,
        http_credentials={"username": name, "password": PASSWORD},
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{front.url}{path}")
    return page


def asked(front: Front, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """(status, headers, body) through nginx, as any program would ask."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"{front.url}{path}", headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status, lowered(answer.headers.items()), answer.read(200_000).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, lowered(error.headers.items()), error.read().decode(errors="replace")


def lowered(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def test_pages_ask_for_a_password_and_cannot_be_framed(front: Front) -> None:
    status, headers, _ = asked(front, "/")
    assert status == 401 and "Basic" in headers["www-authenticate"]
    word = base64.b64encode(f"ana:{PASSWORD}".encode()).decode()
    status, headers, body = asked(front, "/control", Authorization=f"Basic {word}")
    assert status == 200 and "<title>" in body
    assert headers["x-frame-options"] == "DENY" and "strict-transport-security" in headers
    wrong = base64.b64encode(b"ana:guess").decode()
    for header in ("|/trainvitals/static/", "|/trainvitals/wall", "Basic", "Bearer x", " "):
        assert asked(front, "/control", Authorization=header)[0] == 401, header
    for path in ("/", "/wall", "/_stcore/health", "/static/x.js"):
        assert asked(front, path, Authorization=f"Basic {wrong}")[0] == 401


def test_the_wall_and_all_that_it_asks_for_make_no_browser_ask_for_a_password(front: Front) -> None:
    """Streamlit looks for its server below the page's own path first: a challenge there is a dialog in the wiki."""
    for path in ("/wall", "/wall/_stcore/health", "/wall/_stcore/host-config", "/_stcore/health", "/favicon.png", "/static/x.js"):
        status, headers, _ = asked(front, path)
        assert status != 401 and "www-authenticate" not in headers, path
    for path in ("/wall/control", "/wall/../control", "/control", "/"):
        assert asked(front, path)[0] == 401, path


def test_curves_move_and_a_pause_works_for_an_operator(front: Front, browser: playwright_api.Browser) -> None:
    page = opened(browser, front, f"/?run={sample.RUN}", "ana")
    front.site.state = "running"
    steps = page.get_by_text(re.compile(r"2,[34]\d\d")).first
    steps.wait_for()
    band = page.locator("body")
    seen = set()
    end = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < end:
        seen.add(" ".join(re.findall(r"\b2,[34]\d\d\b", band.inner_text())))
        page.wait_for_timeout(500)
    assert len(seen) >= 3
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.goto(f"{front.url}/control?run={sample.RUN}")
    page.get_by_text("Logged in as ana").wait_for()
    page.get_by_role("button", name=re.compile("^Pause")).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Who asks: ana").wait_for()
    dialog.get_by_label("Why").fill("a look at the loss")
    before = read_request(front.site.run_dir).seq
    dialog.get_by_role("button", name=re.compile("^Pause")).click()
    while (request := read_request(front.site.run_dir)).seq == before and time.monotonic() < end + 60:
        page.wait_for_timeout(200)
    assert (request.desired, request.by) == ("paused", "ana")


def test_somebody_who_only_looks_sees_no_button(front: Front, browser: playwright_api.Browser) -> None:
    page = opened(browser, front, f"/control?run={sample.RUN}", "eve")
    page.get_by_text("Logged in as eve").wait_for()
    page.get_by_text("eve may look at").wait_for()
    assert page.get_by_role("button", name=re.compile("^(Pause|Resume|Arm)")).count() == 0


def test_a_header_that_a_visitor_sends_is_overwritten_by_the_proxy(front: Front, browser: playwright_api.Browser) -> None:
    context = browser.new_context(
        ignore_https_errors=True, http_credentials={"username": "eve", "password": PASSWORD},
        extra_http_headers={"X-Forwarded-User": "ana"},
    )  # fmt: skip
    page = context.new_page()
    page.goto(f"{front.url}/control?run={sample.RUN}")
    page.get_by_text("Logged in as eve").wait_for(timeout=WAIT_MS)


def test_a_forged_header_from_another_address_is_refused(front: Front) -> None:
    for path in (f"/{BASE}/control", f"/{BASE}/_stcore/stream", f"/{BASE}/_stcore/health"):
        connection = http.client.HTTPConnection("127.0.0.1", front.site.port, source_address=("127.0.0.2", 0), timeout=30)
        connection.request("GET", path, headers={"Host": "localhost", "X-Forwarded-User": "ana", "X-Forwarded-For": "127.0.0.1"})
        answer = connection.getresponse()
        assert answer.status == 403 and b"its proxy only" in answer.read()
        connection.close()


def test_a_socket_without_a_password_opens_pages_that_name_nobody(front: Front, browser: playwright_api.Browser) -> None:
    """The wall's files are open to everybody: what comes over them without a person shows no run."""
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.route(f"{front.url}/control*", lambda route: route.fulfill(status=200, content_type="text/html", body=index(front)))
    page.goto(f"{front.url}/control?run={sample.RUN}")
    page.get_by_text("names nobody").wait_for(timeout=WAIT_MS)
    assert sample.RUN not in page.locator("body").inner_text()


def index(front: Front) -> str:
    """The page as somebody could have kept it."""
    word = base64.b64encode(f"eve:{PASSWORD}".encode()).decode()
    return asked(front, "/", Authorization=f"Basic {word}")[2]
