"""A listener of the daemon's own: its grant out of settings and budget, and a policy change that cuts what is open."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.loopback import greeting
from palyra.egress.proxy.server import ListeningSocket
from palyra.executors.network.service import BUNDLE_PATH, SandboxListener
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.sandbox.domain.profile import SandboxProfile, SandboxTier

FORBID = """
@id("no-network")
forbid (principal, action == Action::"egress.connect", resource);
"""


def settings(port: int, **more: Any) -> dict[str, Any]:
    hosts = [f"here.test:{port}", "other.test"]
    return {
        "egress": {
            "allowed_hosts": hosts,
            "private_targets": [f"here.test:{port}"],
            "static_hosts": {"here.test": ["127.0.0.1"]},
            **more,
        },
        "sandbox": {"allowed_hosts": hosts},
    }


def plan(harness: GatewayHarness, **more: Any) -> ExecutionPlan:
    return ExecutionPlan(
        call_id="c1",
        run_id="r1",
        tool="process.run",
        arguments={},
        workspace=str(harness.workspace),
        timeout_ms=1000,
        max_output_bytes=1000,
        tier=ToolTier.C,
        principal="agent:bot",
        channel="cli",
        **{"granted": {BudgetKind.EGRESS_BYTES: 1 << 40}, **more},
    )


def profile(harness: GatewayHarness, *hosts: str) -> SandboxProfile:
    return SandboxProfile(workspace_root=str(harness.workspace), tier=SandboxTier.C, allowed_egress_hosts=hosts)


async def test_a_grant_is_the_hosts_within_what_the_run_has_left(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(8080)) as harness:
        parts = harness.gateway.egress
        grant = parts.grant_for(plan(harness, granted={BudgetKind.EGRESS_BYTES: 1234}), ("here.test:8080",))
        assert (grant.max_bytes, [str(rule) for rule in grant.rules]) == (1234, ["here.test:8080"])
        assert parts.grant_for(plan(harness), ()).max_bytes == harness.gateway.settings.egress.max_call_bytes
        # What was not reserved is not moved.
        assert parts.grant_for(plan(harness, granted={}), ()).max_bytes == 0


async def test_only_bindings_of_the_calls_own_hosts_come_along(tmp_path: Path) -> None:
    binding = {"header_name": "X-Key", "secret_ref": "global/k", "hosts": ["other.test"]}
    async with open_harness(tmp_path, settings(8080, bindings=[binding])) as harness:
        parts = harness.gateway.egress
        bound, listener = parts.prepare_listener(plan(harness), profile(harness, "other.test"))
        assert isinstance(listener, SandboxListener)
        (path, bundle), *_ = bound.extra_files
        assert path == BUNDLE_PATH and b"BEGIN CERTIFICATE" in bundle
        assert dict(bound.env)["CURL_CA_BUNDLE"] == BUNDLE_PATH
        free, _ = parts.prepare_listener(plan(harness), profile(harness, "here.test:8080"))
        assert free.extra_files == () and free.env == ()


async def test_without_hosts_there_is_no_door(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        shut = profile(harness)
        assert harness.gateway.egress.prepare_listener(plan(harness), shut) == (shut, None)


@pytest.mark.promise("P-policy-reload")
async def test_a_policy_change_cuts_what_it_no_longer_allows(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with greeting(b"ready\n") as port, open_harness(tmp_path, settings(port)) as harness:
        parts = harness.gateway.egress
        grant = parts.grant_for(plan(harness), (f"here.test:{port}",))
        parts.enter(plan(harness), grant)
        listening = socket.create_server(("127.0.0.1", 0))
        at = listening.getsockname()
        listener = parts.proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening)])
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"CONNECT here.test:{port} HTTP/1.1\r\nHost: here.test:{port}\r\n\r\n".encode())
        assert b"200" in await reader.readline()
        await reader.readline()
        assert await reader.readline() == b"ready\n"
        (tmp_path / "policies" / "own.cedar").write_text(FORBID)
        await harness.gateway.policy.reload()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        listener.close()
        await parts.observer.flush()
        codes = [payload["refusal"]["code"] for kind, payload in harness.events(call="c1") if kind == "egress.refused"]
        assert codes == ["egress.policy_changed"]
        parts.leave(grant)


async def test_the_environments_key_log_gets_no_keys_of_injected_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    async with open_harness(tmp_path, settings(8080)) as harness:
        trusted = harness.gateway.egress.trust()
        assert trusted.keylog_filename is None
        assert trusted.verify_mode is ssl.CERT_REQUIRED and trusted.check_hostname
