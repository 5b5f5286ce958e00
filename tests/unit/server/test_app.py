"""The application as a whole: routes, names, and what is told without a token."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, operator
from palyra.client.client import AsyncClient
from palyra.server.http.app import ROUTES, HostGuard, create_app


@pytest.mark.promise("P-tokens")
async def test_every_route_under_v1_asks_for_a_token(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        for method, path, _ in ROUTES:
            assert path.startswith("/v1/")
            name = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
            for part in ("{call_id}", "{run_id}", "{approval_id}", "{token_id}", "{name}"):
                path = path.replace(part, name)
            got = await ask(app, method, path)
            assert (got.status, got.code, got.headers["palyra-exit-code"]) == (401, "token.rejected", "3"), path


async def test_probes_need_no_token_and_tell_nothing_of_calls(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "x"}, principal="agent:hidden")
        app = create_app(harness.gateway.service)
        assert (await ask(app, "GET", "/healthz")).data == {"status": "ok"}
        assert (await ask(app, "GET", "/readyz")).data == {"status": "ready", "missing": []}
        metrics = await ask(app, "GET", "/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"hidden" not in metrics.body


async def test_a_daemon_that_cannot_record_says_that_it_is_not_ready(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        service = replace(harness.gateway.service, ready=lambda: ["journal: the disk is full"])
        got = await ask(create_app(service), "GET", "/readyz")
        assert got.status == 503 and got.data["missing"] == ["journal: the disk is full"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "http.no_such_route"),
        ("GET", "/v1", 404, "http.no_such_route"),
        ("GET", "/v2/tools", 404, "http.no_such_route"),
        ("GET", "/v1/tools/a/b", 404, "http.no_such_route"),
        ("PUT", "/v1/tools", 405, "http.method_refused"),
        ("GET", "/v1/tool-calls", 405, "http.method_refused"),
        ("OPTIONS", "/v1/tokens", 405, "http.method_refused"),
        ("POST", "/healthz", 405, "http.method_refused"),
    ],
)
async def test_other_paths_and_methods_are_refused_in_the_same_form(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    async with open_harness(tmp_path) as harness:
        got = await ask(create_app(harness.gateway.service), method, path)
        assert (got.status, got.code, got.headers["palyra-exit-code"]) == (status, code, "2")


async def test_the_client_of_this_package_gets_through_the_whole_surface(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        async with AsyncClient.in_process(app, token=await operator(harness)) as client:
            made = await client.call("echo", {"text": "hi"}, principal="agent:bot")
            assert made.result == {"text": "hi"} and made.principal == "agent:bot"
            assert (await client.call_status(made.call_id)).status == "succeeded"
            assert [event.kind async for event in client.events(made.call_id)][-1] == "call.finished"
            assert {tool.name for tool in await client.tools()} >= {"echo", "fs.write"}
            assert (await client.tool("echo")).input_schema["required"] == ["text"]
            run = await client.start_run({"calls": 2})
            assert (await client.run(run.run_id)).budget["calls"]["cap"] == 2
            assert (await client.status()).version
            await client.health()
            await client.ready()
            assert "palyra_calls_total" in await client.metrics()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.0.0.1:7142", "[::1]", "[::1]:7142"])
async def test_the_names_the_daemon_has(tmp_path: Path, host: str) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), frozenset(("localhost", "127.0.0.1", "[::1]")))
        assert (await ask(app, "GET", "/healthz", host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "localhost.evil.example", "evil.example:7142", "127.0.0.1.evil.example", "localhost.",
     "0.0.0.0", "127.0.0.2", "[::ffff:127.0.0.1]", "::1", "localhost@evil.example", "[", " localhost"],
)  # fmt: skip
async def test_any_other_name_is_refused_before_anything_else_is_looked_at(tmp_path: Path, host: str | None) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), frozenset(("localhost", "127.0.0.1", "[::1]")))
        for path in ("/healthz", "/v1/status", "/nothing"):
            got = await ask(app, "GET", path, host=host)
            assert (got.status, got.code) == (421, "http.host_refused")
