"""The dashboard with a login of an identity provider: nobody sees a run without one, a name is proven, settings say who may act."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
pytest.importorskip("authlib", reason="needs authlib")
import dashboard_site  # noqa: E402
from dashboard_site import Site, free_port, open_site, sample  # noqa: E402
from oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider  # noqa: E402
from test_pages import CHROMIUM  # noqa: E402
from wall_site import BLOCKED_COOKIES, WAIT_MS, Wiki, link  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
ANA, EVE = "ana@example.org", "eve@example.org"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    opened = Provider()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def wiki() -> Iterator[Wiki]:
    opened = Wiki()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def site(provider: Provider, wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """As docs/access.md says: the settings, and the secrets of the login in ``.streamlit/secrets.toml`` of whoever runs it."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    (home / ".streamlit").mkdir()
    (home / ".streamlit" / "secrets.toml").write_text(
        f'[auth]\nredirect_uri = "http://localhost:{port}/oauth2callback"\ncookie_secret = "{"c" * 64}"\nclient_id = "{CLIENT_ID}"\n'
        f'client_secret = "{CLIENT_SECRET}"\nserver_metadata_url = "{provider.issuer}/.well-known/openid-configuration"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setattr(dashboard_site, "free_port", lambda: port)
        opened = open_site(
            tmp_path_factory.mktemp("oidc"), SqliteBackend(), sick=False,
            dashboard=f'public_url = "http://localhost:{port}"\nwiki_origins = ["{wiki.origin}"]\nwall_key_file = "wall.key"',
            more=f'[login]\nmode = "oidc"\n[access.runs."*"]\noperators = ["{ANA}"]\nviewers = ["{EVE}"]\n',
        )  # fmt: skip
    yield opened
    opened.close()


@pytest.fixture
def page() -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=BLOCKED_COOKIES)
        opened = browser.new_context(viewport={"width": 1300, "height": 1000}).new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def log_in(page: playwright_api.Page, site: Site, provider: Provider, **claims: object) -> None:
    provider.user = claims
    page.goto(site.url)
    page.get_by_role("button", name="Log in").click()


def test_without_a_login_no_run_is_seen_on_any_page(page: playwright_api.Page, site: Site) -> None:
    for path in ("", "control", "curves", "nodes", f"incidents?run={sample.RUN}"):
        page.goto(f"{site.url}/{path}")
        page.get_by_text("log in to see the runs").wait_for()
        assert sample.RUN not in page.locator("body").inner_text().replace("/incidents", "")


def test_an_operator_of_the_settings_is_named_and_gets_the_buttons(
    page: playwright_api.Page, site: Site, provider: Provider
) -> None:
    log_in(page, site, provider, email=ANA)
    page.get_by_text("nothing open").wait_for()
    assert "/token" in provider.asked and "/jwks" in provider.asked
    page.goto(f"{site.url}/control?run={sample.RUN}")
    page.get_by_text(f"Logged in as {ANA}").wait_for()
    page.get_by_role("button", name=re.compile("^Pause")).first.click()
    page.get_by_role("dialog").get_by_text(f"Who asks: {ANA}").wait_for()


def test_a_viewer_is_named_and_gets_none(page: playwright_api.Page, site: Site, provider: Provider) -> None:
    log_in(page, site, provider, email=EVE)
    page.get_by_text("nothing open").wait_for()
    page.goto(f"{site.url}/control?run={sample.RUN}")
    page.get_by_text(f"Logged in as {EVE}").wait_for()
    page.get_by_text(f"{EVE} may look at").wait_for()
    assert page.get_by_role("button", name=re.compile("^(Pause|Resume|Arm|Checkpoint)")).count() == 0


@pytest.mark.parametrize(
    ("claims", "says"), [({"email": "mal@example.org"}, "see none of the runs"), ({"name": "Ana"}, "tells no email")]
)
def test_somebody_whom_the_settings_do_not_name_sees_no_run(
    page: playwright_api.Page, site: Site, provider: Provider, claims: dict[str, object], says: str
) -> None:
    log_in(page, site, provider, **claims)
    page.get_by_text(says).wait_for()
    assert sample.RUN not in page.locator("body").inner_text()


def test_the_wall_opens_in_a_wiki_by_its_link_and_never_asks_for_a_login_there(
    page: playwright_api.Page, site: Site, wiki: Wiki
) -> None:
    page.goto(wiki.frame(link(site)))
    frame = page.frame_locator("#wall")
    frame.get_by_text("nothing open").wait_for()
    page.goto(wiki.frame(f"{site.url}/wall?embed=true&run={sample.RUN}"))
    frame.get_by_text("opens with a link").wait_for()
    assert frame.get_by_role("button").count() == 0
    page.goto(f"{site.url}/wall?run={sample.RUN}")
    page.get_by_text("opens with a link").wait_for()
