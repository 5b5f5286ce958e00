"""``/v1/channels/{name}/events``. Whole streams are in tests/e2e/test_skills.py."""

from pathlib import Path

from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, make_token, operator
from palyra.server.http.app import create_app


async def test_who_may_listen_to_what(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        agent = await make_token(harness, "agent:bot")
        refused = await ask(app, "GET", "/v1/channels/news/events", token=agent)
        assert (refused.status, refused.code) == (403, "action.denied")
        odd = await ask(app, "GET", "/v1/channels/News!/events", token=await operator(harness))
        assert odd.status == 400
