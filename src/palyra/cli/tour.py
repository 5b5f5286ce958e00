"""``palyra tour``: what Palyra does, shown with real calls in a place of its own that is removed afterwards."""

from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.errors import Failed

if TYPE_CHECKING:
    from palyra.cli.output import Output
    from palyra.client.client import Client
    from palyra.client.views import CallView


class TourSurprised(Failed):
    code = "tour.surprised"
    hint = "a step did not go as it must; `palyra doctor` may tell why"


@click.command()
@json_option
@pass_invocation
def tour(invocation: Invocation) -> None:
    """Walk through what Palyra does, with real calls.

    Everything happens in a temporary state directory: your settings, approvals and journal are not touched.
    """
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="palyra-tour-") as folder:
        steps = Steps(invocation.output)
        _walk(steps, Path(folder))
        invocation.output.data({"steps": steps.taken}, lambda _: f"{len(steps.taken)} steps, each as it must be.")


class Steps:
    """Prints a line for each step as it happens, and stops the tour at the first surprise."""

    def __init__(self, output: "Output") -> None:
        self._output = output
        self.taken: list[dict[str, Any]] = []

    def note(self, what: str, outcome: str, why: str) -> None:
        self.taken.append({"step": what, "outcome": outcome, "why": why})
        if not self._output.json:
            color = {"allowed": "green", "refused": "red"}.get(outcome, "yellow")
            shown = self._output.style(f"{outcome:>8}", color)
            self._output.text(f"{shown}  {what}: {why}")

    def expect(self, condition: bool, what: str) -> None:
        if not condition:
            raise TourSurprised(f"the tour expected that {what}")


def _walk(steps: Steps, folder: "Any") -> None:
    import msgspec

    from palyra.client.client import Client
    from palyra.config.settings import Settings
    from palyra.config.state_dir import StateDir
    from palyra.daemons.embedded import embedded_app

    state = StateDir.open(folder / "state")
    with (
        embedded_app(msgspec.convert({}, Settings), state, folder / "policies") as (app, token),
        Client.in_process(app, token=token) as client,
    ):
        _plain_call(steps, client, state)
        _approval(steps, client, state)
        _confinement(steps, client)
        _programs(steps, client, state)
        _budget(steps, client)
        _denial(steps, client)
    _journal(steps, state)


def _plain_call(steps: Steps, client: "Client", state: "Any") -> None:
    import json

    from palyra.errors import PalyraError
    from palyra.signing.ed25519 import Ed25519Verifier
    from palyra.tools.attestation import verify_attestation

    made = client.call("echo", {"text": "hello"}, principal="agent:tour", channel="cli")
    steps.expect(made.result == {"text": "hello"} and made.decision is not None, "echo returns its text")
    by = ", ".join(made.decision.policies if made.decision else ())
    steps.note("an agent calls echo", "allowed", f"policy {by}")
    envelope = json.dumps(made.attestation).encode()
    verifiers = (Ed25519Verifier.from_pem_file(state.path("signing.pub")),)
    verify_attestation(envelope, verifiers)
    steps.note("its attestation is verified offline", "allowed", "signature and execution digest agree")
    flipped = bytearray(envelope)
    flipped[flipped.index(b'"payload": "') + 20] ^= 1
    try:
        verify_attestation(bytes(flipped), verifiers)
    except PalyraError as error:
        steps.note("the same attestation with one bit flipped", "refused", error.code)
    else:
        raise TourSurprised("a changed attestation was accepted")


def _approval(steps: Steps, client: "Client", state: "Any") -> None:
    write = {"path": "notes.txt", "content": "written once\n"}
    approval_id = _needs_approval(steps, client, write, "an agent wants to write a file")
    from palyra.errors import PalyraError

    try:
        client.approve(approval_id, decided_as="agent:tour")
    except PalyraError as error:
        steps.note("the agent approves its own request", "refused", error.as_dict()["code"])
    else:
        raise TourSurprised("an agent approved itself")
    client.approve(approval_id)
    steps.note("a person approves exactly this call, once", "allowed", "bound to principal, tool, arguments, policies")
    _needs_approval(steps, client, {**write, "content": "something else\n"}, "the agent changes one argument")
    made = client.call("fs.write", write, principal="agent:tour", channel="cli")
    steps.expect((state.path("workspace") / "notes.txt").read_text() == "written once\n", "the file is written")
    steps.note("the agent makes the approved call", "allowed", f"approval {made.approval_id} is used up")
    _needs_approval(steps, client, write, "and makes it again")


def _needs_approval(steps: Steps, client: "Client", write: dict[str, str], what: str) -> str:
    from palyra.client.protocol import NeedsApprovalError

    try:
        client.call("fs.write", write, principal="agent:tour", channel="cli")
    except NeedsApprovalError as error:
        steps.note(what, "waits", "needs a person's approval (filesystem_write is sensitive)")
        steps.expect(error.approval_id is not None, "the answer names the approval")
        return error.approval_id or ""
    raise TourSurprised("a sensitive call ran without approval")


def _confinement(steps: Steps, client: "Client") -> None:
    code = _refusal(lambda: client.call("fs.read", {"path": "../../signing.key"}, principal="agent:tour"))
    steps.note("the agent reads outside its workspace", "refused", code)
    code = _refusal(
        lambda: client.call("echo", arguments_json='{"text":"a","text":"b"}', principal="agent:tour", channel="cli")
    )
    steps.note("arguments with a duplicate key", "refused", code)


def _programs(steps: Steps, client: "Client", state: "Any") -> None:
    """Programs in both tiers. The person who takes the tour approves them."""
    (state.path("workspace") / "greeting.txt").write_text("hello from the workspace\n")
    made = _approved(client, {"command": "cat", "args": ["greeting.txt"]})
    steps.expect(made.result["stdout"] == "hello from the workspace\n", "a program reads the workspace")
    held = sum(line["held"] for line in made.receipt or ())
    steps.note("a program reads its workspace, isolated", "allowed", f"{made.result['backend']}, {held} layers held")
    secret = _approved(client, {"command": "ls", "args": ["-A"], "cwd": "."})
    steps.expect("notes.txt" in secret.result["stdout"], "a program lists the workspace")
    code = _refusal(lambda: _approved(client, {"command": "cat", "args": ["/etc/shadow"]}))
    steps.note("a program is pointed at a file outside", "refused", code)
    code = _refusal(lambda: _approved(client, {"command": "bash", "args": ["-c", "id"]}))
    steps.note("the agent asks for a shell", "refused", code)


def _approved(client: "Client", arguments: dict[str, Any]) -> "CallView":
    """The call, approved by a person when policy asks for one."""
    from palyra.client.protocol import NeedsApprovalError

    try:
        return client.call("process.run", arguments, principal="agent:tour", channel="cli")
    except NeedsApprovalError as error:
        client.approve(error.approval_id or "")
    return client.call("process.run", arguments, principal="agent:tour", channel="cli")


def _budget(steps: Steps, client: "Client") -> None:
    run_id = client.start_run({"calls": 2}, principal="agent:tour").run_id
    for _ in range(2):
        client.call("echo", {"text": "x"}, run_id=run_id, principal="agent:tour", channel="cli")
    code = _refusal(lambda: client.call("echo", {"text": "x"}, run_id=run_id, principal="agent:tour", channel="cli"))
    steps.note("a third call in a run with a budget of two", "refused", code)


def _denial(steps: Steps, client: "Client") -> None:
    code = _refusal(lambda: client.call("echo", {"text": "x"}, principal="agent:tour", channel="carrier-pigeon"))
    steps.note("a call through a door that policy does not know", "refused", code)


def _refusal(act: "Any") -> str:
    from palyra.errors import PalyraError

    try:
        act()
    except PalyraError as error:
        return str(error.as_dict()["code"])
    raise TourSurprised("a call that must be refused was not")


def _journal(steps: Steps, state: "Any") -> None:
    import sqlite3

    from palyra.errors import PalyraError
    from palyra.journal.sqlite import SqliteStore
    from palyra.signing.ed25519 import Ed25519Verifier

    verifiers = (Ed25519Verifier.from_pem_file(state.path("signing.pub")),)
    database = state.path("palyra.db")
    with SqliteStore.open_reader(database) as reader:
        report = reader.verify(verifiers)
    steps.note("the journal is verified", "allowed", f"{report.events} events, one chain, signed checkpoints")
    with sqlite3.connect(database) as attacker:
        for (name,) in attacker.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            attacker.execute(f'DROP TRIGGER "{name}"')
        attacker.execute("UPDATE events SET actor = 'agent:nobody' WHERE seq = 5")
    attacker.close()
    try:
        with SqliteStore.open_reader(database) as reader:
            reader.verify(verifiers)
    except PalyraError as error:
        steps.note(
            "somebody edits event 5 and verifies again", "refused", f"{error.code} at seq {error.details['seq']}"
        )
    else:
        raise TourSurprised("an edited journal was accepted")
