"""The browser daemon's page for those who look after it: health and metrics over HTTP, on loopback only.

It tells counts and nothing of any session: whoever may know more asks over the socket.
"""

from collections.abc import Callable
from html import escape

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from palyra.browser.session_view import HealthView
from palyra.telemetry.browser_prometheus import BrowserMetrics

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>palyra-browserd</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 34rem; margin: 3rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.3rem }} dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem }}
dt {{ opacity: .7 }} dd {{ margin: 0; font-variant-numeric: tabular-nums }}
</style>
<h1>Browser daemon: {status}</h1><dl>{rows}</dl></html>
"""


def health_app(health: Callable[[], HealthView], metrics: BrowserMetrics) -> Starlette:
    async def page(_request: Request) -> Response:
        now = health()
        shown = (
            ("Sessions", now.sessions),
            ("Browsers ready", now.ready_browsers),
            ("Engine", now.product or "not started yet"),
            ("Version", now.software_version),
            ("Protocol", now.protocol_version),
        )
        rows = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in shown)
        return HTMLResponse(_PAGE.format(status=escape(now.status), rows=rows), headers=_HEADERS)

    async def told(_request: Request) -> Response:
        return Response(msgspec.json.encode(health()), media_type="application/json", headers=_HEADERS)

    async def counted(_request: Request) -> Response:
        return Response(metrics.render(), media_type=metrics.content_type, headers=_HEADERS)

    return Starlette(
        routes=[Route("/", page), Route("/healthz", told), Route("/metrics", counted)],
        # A page elsewhere that a name of its own leads here must not read it.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])],
    )
