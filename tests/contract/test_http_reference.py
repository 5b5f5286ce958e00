"""docs/reference/http-api.md tells of every route, every field and every code, and of none that is not there."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from fakes.gateway_harness import open_harness
from palyra.errors import PalyraError
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS
from palyra.server.http.app import PROTOCOL, ROUTES, create_app
from palyra.server.http.browser import NewProfileBody, TakeOverBody
from palyra.server.http.calls import CallBody, RunBody
from palyra.server.http.devices import (
    AuthorityRotationBody,
    NodeCapabilityBody,
    PairingCodeBody,
    PairingDecisionBody,
    RevokeNodeBody,
)
from palyra.server.http.mcp import ServerApprovalBody
from palyra.server.http.operator import DecisionBody, RevealBody, RotateBody, SecretBody, TokenBody
from palyra.server.http.skills import (
    ApprovalBody,
    ChangeBody,
    ConfigurationBody,
    PauseBody,
    PublisherBody,
    RevocationBody,
    RotationBody,
)
from palyra.server.http.workers import WorkerBody

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http-api.md"
TEXT = PAGE.read_text(encoding="utf-8")
HEADING = re.compile(r"^### `([A-Z]+) (\S+)`$", re.MULTILINE)


def section(method: str, path: str) -> str:
    start = TEXT.index(f"### `{method} {path}`")
    return re.split(r"^##", TEXT[start + 3 :], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.promise("P-documented")
def test_every_route_is_documented_and_every_documented_route_is_there() -> None:
    documented = HEADING.findall(TEXT)
    assert len(documented) == len(set(documented))
    app = create_app(None)  # type: ignore[arg-type]
    assert isinstance(app, Starlette)
    served = {
        (method, route.path) for route in app.routes if isinstance(route, Route) for method in route.methods or ()
    }
    assert set(documented) == {pair for pair in served if pair[0] != "HEAD"}
    assert {(method, path) for method, path, _ in (*ROUTES, *PROTOCOL)} <= set(documented)


@pytest.mark.promise("P-documented")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tool-calls", CallBody),
        ("POST", "/v1/runs", RunBody),
        ("POST", "/v1/browser/profiles", NewProfileBody),
        ("POST", "/v1/browser/sessions/{session}/takeover", TakeOverBody),
        ("POST", "/v1/approvals/{approval_id}/decision", DecisionBody),
        ("POST", "/v1/tokens", TokenBody),
        ("PUT", "/v1/vault/secrets/{ref:path}", SecretBody),
        ("POST", "/v1/vault/reveal", RevealBody),
        ("POST", "/v1/vault/rotate", RotateBody),
        ("POST", "/v1/identity/rotation", AuthorityRotationBody),
        ("POST", "/v1/pairing/codes", PairingCodeBody),
        ("POST", "/v1/pairing/requests/{pairing_id}/decision", PairingDecisionBody),
        ("POST", "/v1/nodes/{device}/revoke", RevokeNodeBody),
        ("POST", "/v1/nodes/{device}/withhold", NodeCapabilityBody),
        ("POST", "/v1/nodes/{device}/allow", NodeCapabilityBody),
        ("POST", "/v1/workers/{worker}/drain", WorkerBody),
        ("POST", "/v1/skills/{skill_id}/approve", ApprovalBody),
        ("POST", "/v1/skills/{skill_id}/disable", PauseBody),
        ("POST", "/v1/skills/{skill_id}/quarantine", ChangeBody),
        ("PUT", "/v1/skills/{skill_id}/configuration", ConfigurationBody),
        ("POST", "/v1/mcp/servers/{server}/approve", ServerApprovalBody),
        ("POST", "/v1/publishers", PublisherBody),
        ("POST", "/v1/publishers/rotation", RotationBody),
        ("POST", "/v1/publishers/revocation", RevocationBody),
    ],
)
def test_every_field_of_a_body_is_named_in_its_section(method: str, path: str, body: type[msgspec.Struct]) -> None:
    text = section(method, path)
    for field in msgspec.structs.fields(body):
        assert f"`{field.encode_name}`" in text, field.encode_name


def test_every_body_of_the_api_is_covered_above() -> None:
    from palyra.server.http import calls, devices, mcp, operator, skills, workers
    from palyra.server.http import operator as vault

    bodies = {
        name
        for module in (calls, devices, mcp, devices, operator, devices, skills, vault, workers)
        for name, found in inspect.getmembers(module, inspect.isclass)
        if name.endswith("Body") and found.__module__ == module.__name__
    }
    first = {"CallBody", "RunBody", "DecisionBody", "TokenBody", "SecretBody", "RevealBody", "RotateBody"}
    of_skills = {"ApprovalBody", "ChangeBody", "ConfigurationBody", "PublisherBody", "RotationBody", "RevocationBody"}
    of_skills |= {"PauseBody"}
    of_devices = {"AuthorityRotationBody", "PairingCodeBody", "PairingDecisionBody"}
    of_devices |= {"NodeCapabilityBody", "RevokeNodeBody", "WorkerBody"}
    assert bodies == first | of_skills | of_devices | {"ServerApprovalBody"}


async def test_every_code_that_is_named_exists(tmp_path: Path) -> None:
    import palyra.daemon.palyrad
    import palyra.executors.mcp_upstream.instance
    import palyra.server.mcp.transports  # noqa: F401

    async with open_harness(tmp_path):
        # A daemon has loaded every part that it can speak for.
        pass

    named = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", TEXT))
    others = {"approval.decide", "config.change", "status.read", "daemon.port", "tools.timeout_ms"}
    others |= {
        "vault.manage",
        "vault.reveal",
        "vault.key_source",
        "skill.manage",
        "identity.manage",
        "device.pair",
        "nodes.code_seconds",
        "skills.trust_on_first_use",
    }
    others |= {"journal.read", "channel.message", "device.manage", "browser.manage", "node.invoke", "worker.lease"}
    others |= {"approvals.max_ttl_seconds", "details.approval_id", "details.call_id"}
    assert named - others - PalyraError.registry.keys() == set()


def test_the_numbers_are_those_of_the_limits() -> None:
    assert f"at most {MAX_APPROVAL_WAIT_MS:,}" in TEXT and f"1 to {MAX_CALL_TIMEOUT_MS:,}" in TEXT
