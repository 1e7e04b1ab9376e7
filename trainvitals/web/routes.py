"""Routes beside the pages: ``/healthz`` for machines, and plotly.js out of the installed wheel for the browser."""

from __future__ import annotations

from pathlib import Path

import plotly
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from trainvitals.errors import TrainvitalsError
from trainvitals.web.alertmanager_inbox import PATH as ALERTMANAGER_PATH
from trainvitals.web.alertmanager_inbox import alertmanager
from trainvitals.web.process import poller

#: Above this age of the newest snapshot the dashboard is not healthy, whatever else it says.
UNHEALTHY_AGE_S = 30.0
PLOTLY_PATH = f"/assets/plotly-{plotly.__version__}.min.js"
_PLOTLY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def health() -> tuple[int, dict[str, object]]:
    """(status, body): 200 while the store is read, 503 with the reason otherwise. Names and paths of runs stay out."""
    try:
        process_poller = poller()
    except TrainvitalsError as error:
        return 503, {"status": "error", "error": str(error), "snapshot_age_s": None}
    snapshot = process_poller.snapshot()
    age_s = round((process_poller.now_ns() - snapshot.taken_at_ns) / 1e9, 1) if snapshot.taken_at_ns else None
    is_good = not snapshot.error and age_s is not None and age_s <= UNHEALTHY_AGE_S
    why_not = snapshot.error or ("" if is_good else "No snapshot has been taken yet.")
    return (200 if is_good else 503), {
        "status": "ok" if is_good else "error",
        "error": why_not,
        "snapshot_age_s": age_s,
        "runs": len(snapshot.runs),
    }


async def healthz(request: Request) -> Response:
    """For load balancers and supervisors; never cached."""
    status, body = health()
    return JSONResponse(body, status_code=status, headers={"cache-control": "no-store"})


async def plotly_js(request: Request) -> Response:
    """4.8 MB that never change under this name."""
    return FileResponse(
        _PLOTLY_FILE, media_type="text/javascript", headers={"cache-control": "public, max-age=31536000, immutable"}
    )


def routes(base_path: str = "") -> list[Route]:
    """What ``st.App(routes=…)`` takes. Streamlit puts its own routes below ``server.baseUrlPath``, and ours not: they stand at both places,
    because a machine that asks for its health need not know the path."""
    prefixes = [f"/{base_path.strip('/')}", ""] if base_path.strip("/") else [""]
    return [route for prefix in prefixes for route in _routes_below(prefix)]


def _routes_below(prefix: str) -> list[Route]:
    return [
        Route(prefix + "/healthz", healthz, methods=["GET", "HEAD"]),
        Route(prefix + PLOTLY_PATH, plotly_js, methods=["GET", "HEAD"]),
        Route(prefix + ALERTMANAGER_PATH, alertmanager, methods=["POST", "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]),
    ]
