"""The health page: counts for people, programs and Prometheus; and only for who asks for this machine."""

import json

from fakes.raw_http import ask
from palyra.browser.domain.session_api import HealthView
from palyra.browser.service.metrics import BrowserMetrics
from palyra.daemon.browserd import health_app

APP = health_app(
    lambda: HealthView(protocol_version=1, software_version="0.1", status="ok", sessions=2, product="<b>Chromium"),
    BrowserMetrics(),
)


async def test_people_and_programs_are_told() -> None:
    page = await ask(APP, "GET", "/", host="127.0.0.1:9")
    assert (
        page.status == 200 and "Browser daemon: ok" in page.body.decode() and "&lt;b&gt;Chromium" in page.body.decode()
    )
    assert "default-src 'none'" in page.headers["content-security-policy"]
    health = await ask(APP, "GET", "/healthz")
    assert json.loads(health.body)["sessions"] == 2
    metrics = await ask(APP, "GET", "/metrics")
    assert "palyra_browser_sessions_opened_total" in metrics.body.decode()


async def test_a_name_of_somebody_else_s_that_leads_here_is_refused() -> None:
    assert (await ask(APP, "GET", "/healthz", host="evil.example")).status == 400
