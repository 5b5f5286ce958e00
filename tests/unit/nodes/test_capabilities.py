"""What a device does when it is asked, and how every ending becomes an outcome."""

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.node_agent_harness import COMMANDS, FakePerson, SlowCommands
from palyra.nodes.agent.capabilities import Capabilities
from palyra.nodes.agent.messages import Dispatch, Outcome, OutcomeKind


class Broken(SlowCommands):
    async def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise RuntimeError("a fault with /a/secret/path in it")


def capabilities(tmp_path: Path, runner: Any = None, person: FakePerson | None = None, **options: Any) -> Capabilities:
    return Capabilities(
        commands=COMMANDS,
        runner=runner or SlowCommands(),
        person=person or FakePerson(),
        folder=tmp_path,
        software_version="1",
        **options,
    )


async def perform(device: Capabilities, capability: str, given: Any, most: int = 4096) -> Outcome:
    dispatch = Dispatch(
        request_id="R1",
        capability=capability,
        input_json=json.dumps(given).encode(),
        timeout_ms=30_000,
        max_result_bytes=most,
    )
    return await device.perform(dispatch, timeout_ms=30_000, max_result_bytes=most)


async def test_it_answers_echoes_and_tells_its_health(tmp_path: Path) -> None:
    device = capabilities(tmp_path)
    assert (await perform(device, "echo", {"text": "hé"})).output_json == '{"text":"hé"}'.encode()
    assert json.loads((await perform(device, "system.health", {})).output_json)["cpus"] >= 1


@pytest.mark.parametrize(
    ("capability", "given", "code"),
    [
        ("echo", {"text": 7}, "nodes.bad_capability_input"),
        ("echo", ["text"], "nodes.bad_capability_input"),
        ("echo", {"text": "a", "more": 1}, "nodes.bad_capability_input"),
        ("system.health", {"x": 1}, "nodes.bad_capability_input"),
        ("open_url", {"url": "file:///etc/passwd"}, "nodes.bad_capability_input"),
        ("notify", {"text": "x", "title": 7}, "nodes.bad_capability_input"),
        ("command.press", {"more": "x"}, "nodes.bad_capability_input"),
        ("command.none", {}, "nodes.capability_not_offered"),
        ("none", {}, "nodes.capability_not_offered"),
        ("press", {}, "nodes.capability_not_offered"),
    ],
)
async def test_what_it_does_not_take_or_offer_is_refused_by_the_device_itself(
    tmp_path: Path, capability: str, given: Any, code: str
) -> None:
    outcome = await perform(capabilities(tmp_path), capability, given)
    assert outcome.kind is OutcomeKind.FAILED and outcome.code == code


async def test_an_address_goes_to_the_configured_program_as_one_word(tmp_path: Path) -> None:
    script = tmp_path / "opener"
    script.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/got\n')
    script.chmod(0o755)
    device = capabilities(tmp_path, open_url_command=(str(script), "--new"))
    assert (
        await perform(device, "open_url", {"url": "https://example.com/?a=$(id)"})
    ).output_json == b'{"opened":true}'
    assert (tmp_path / "got").read_text() == "--new|https://example.com/?a=$(id)|"


async def test_a_notification_is_shown_where_it_can_be_and_else_said_to_be_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    person = FakePerson()
    shown = await perform(capabilities(tmp_path, person=person), "notify", {"text": "hi", "title": "T"})
    assert shown.output_json == b'{"shown":"terminal"}' and person.lines == ["T: hi"]
    desktop = capabilities(tmp_path, notify_command=("/bin/true",))
    assert (await perform(desktop, "notify", {"text": "hi"})).output_json == b'{"shown":"desktop"}'
    monkeypatch.setattr(person, "notify", lambda *_: False)
    nobody = await perform(capabilities(tmp_path, person=person), "notify", {"text": "hi"})
    assert nobody.code == "nodes.unsupported_here"
    broken = capabilities(tmp_path, notify_command=("/bin/false",))
    assert (await perform(broken, "notify", {"text": "hi"})).code == "nodes.capability_failed"


async def test_a_fault_is_an_outcome_and_tells_nothing_of_the_device(tmp_path: Path) -> None:
    outcome = await perform(capabilities(tmp_path, Broken()), "command.press", {})
    assert outcome.code == "nodes.capability_failed" and "secret" not in outcome.message


async def test_a_result_that_is_too_large_is_refused_here(tmp_path: Path) -> None:
    assert (await perform(capabilities(tmp_path), "echo", {"text": "x" * 100}, 50)).code == "nodes.output_too_large"
