"""`palyra node` for operators, without a daemon: the same API in this process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.identity_harness import ACTOR, DeviceKey
from fakes.node_state_harness import node_record, request_record
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.identity.device import DeviceId, DeviceKind
from palyra.nodes.domain.records import DeviceCapabilityView

LIGHT = DeviceCapabilityView(name="light.on", description="Switches a lamp on.", local_mediation=True)


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def prepare(palyra: CommandLine, tmp_path: Path, **changes: Any) -> str:
    node = node_record(name="lap", capabilities=(LIGHT,), **changes)

    async def put() -> None:
        state = (await gateway.nodes.opened()).state
        await gateway.identity.issue(DeviceKind.NODE, DeviceId(node.id), DeviceKey().csr(), actor=ACTOR)
        await state.transact(lambda unit: unit.nodes.put(node))
        await state.transact(lambda unit: unit.requests.put(request_record(device_id=node.id)))

    settings = Settings()
    gateway = Gateway(settings, StateDir.open(palyra.state_dir), tmp_path / "policies", channel="cli")
    try:
        asyncio.run(put())
    finally:
        gateway.close()
    return str(node.id)


def test_a_device_is_listed_shown_limited_and_revoked(palyra: CommandLine, tmp_path: Path) -> None:
    assert palyra("node", "list", "--json").document["data"] == {"nodes": []}
    device = prepare(palyra, tmp_path)
    listed = palyra("node", "list").out
    assert device in listed and "offline" in listed and "light.on" in listed
    shown = palyra("node", "show", "lap").out
    assert "Switches a lamp on." in shown and "asks its person" in shown and "queued" in shown
    assert palyra("node", "withhold", "lap", "light.on").out == "light.on of lap is withheld\n"
    assert "withheld" in palyra("node", "show", "lap").out and "light.on" not in palyra("node", "list").out
    assert palyra("node", "allow", "lap", "light.on").out == "light.on of lap may be used\n"
    assert palyra("node", "revoke", "lap", "--reason", "sold").out == f"lap ({device}) is revoked\n"
    assert "sold" in palyra("node", "show", device).out
    gone = palyra("node", "revoke", "lap", "--json")
    assert (gone.status, gone.document["error"]["code"]) == (2, "nodes.unknown_device")


def test_invoke_without_a_daemon_says_that_one_is_needed(palyra: CommandLine) -> None:
    refused = palyra("node", "invoke", "lap", "light.on", "--json")
    assert (refused.status, refused.document["error"]["code"]) == (6, "nodes.needs_daemon")


def test_invoke_is_a_call_and_its_input_goes_as_typed(palyra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    api = use_tiny_api(monkeypatch)
    assert palyra("node", "invoke", 'a "lap"', "light.on", "--input", '{"n": 1.0}', "--timeout", "5").status == 0
    body = api.seen[-1]["body"]
    assert body["tool"] == "node.invoke" and body["timeout_ms"] == 5000 and body["principal"] == "agent:cli"
    assert body["arguments_json"] == '{"device":"a \\"lap\\"","capability":"light.on","input":{"n": 1.0}}'
