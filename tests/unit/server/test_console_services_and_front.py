"""The console beside the API on one listener, and its services."""

import sys
from functools import partial
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, operator
from palyra.daemon.console_wiring import build_console
from palyra.doctor.checks import machine_probes
from palyra.server.console.services import CandidateService, JournalService, find_policy_text
from palyra.server.http.app import create_app
from palyra.server.listener import CONSOLE_PATHS, Front


async def test_each_path_goes_to_the_api_or_the_console(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        front = Front(create_app(harness.gateway.service), partial(build_console, harness.gateway))
        assert (await ask(front, "GET", "/healthz")).data == {"status": "ok"}
        assert (await ask(front, "GET", "/v1/tools", token=await operator(harness))).status == 200
        page = await ask(front, "GET", "/login", headers=[(b"accept", b"text/html")])
        assert page.status == 200 and b"<h1>Log in</h1>" in page.body
        for path in ("/nowhere", "//v1/tokens", "//login"):
            assert (await ask(front, "GET", path)).code == "http.no_such_route"
        assert not {"v1", "healthz", "readyz", "metrics", "mcp", "openapi.json"} & CONSOLE_PATHS


@pytest.mark.promise("P-console-works")
def test_a_daemon_without_an_open_page_loads_no_templates() -> None:
    import subprocess

    script = "import sys, palyra.daemon.palyrad; sys.exit('jinja2' in sys.modules or 'segno' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_services_show_what_the_daemon_has(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        shown = find_policy_text(gateway.policy, "baseline.sensitive-needs-approval")
        assert shown is not None and shown["effect"] == "forbid" and "need a person's" in shown["comment"]
        assert find_policy_text(gateway.policy, "nothing") is None and len(gateway.policy.engine.policies) > 10
        journal = JournalService(gateway.store, gateway.state.path("signing.pub"), gateway.state.path("none"))
        assert journal.verify().events == gateway.store.head()[0]
        assert b"daemon.started" in b"".join(journal.export(1, None))
        probes = machine_probes(
            gateway.state.root, gateway.policy.folder, gateway.directory, gateway.settings.browser, named=False
        )
        assert len({probe.name for probe in probes}) == len(probes)
        candidates = CandidateService(gateway.state.path("candidates"), gateway.settings.skills)
        assert candidates.all() == ()
