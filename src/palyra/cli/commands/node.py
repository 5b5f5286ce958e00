"""``palyra node list|show|invoke|withhold|allow|revoke``: what an operator does with paired devices."""

import asyncio
import os
import sys
import termios
from typing import IO, TYPE_CHECKING, Any, Final

import click

from palyra.cli.commands.call import call
from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import Output, labelled, one_line, shown, shown_block
from palyra.clock import rfc3339
from palyra.errors import RemoteError
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS, MAX_HTTP_BODY_BYTES

if TYPE_CHECKING:
    from palyra.client.views import NodeView

_MS_PER_SECOND = 1000


@click.command("list")
@json_option
@pass_invocation
def list_nodes(invocation: Invocation) -> None:
    """List the paired devices: online, offline or revoked.

    Contested is one whose place two parties take from each other with the same certificate: it was copied. Revoke the
    device and pair it again.
    """
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        found = client.nodes()

    def as_table(_: Any) -> None:
        rows = [
            (one.device_id, one.name, _state(one), one.connected_since or "", one.platform, _offered(one))
            for one in found
        ]
        invocation.output.table(("device", "name", "state", "since", "platform", "offers"), rows)

    invocation.output.data({"nodes": [one.document for one in found]}, as_table)


@click.command("show")
@click.argument("device")
@json_option
@pass_invocation
def show(invocation: Invocation, device: str) -> None:
    """Show DEVICE (its id or name): what it offers, what is withheld, and its newest requests."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        found = client.node(device)
    invocation.output.data(found.document, lambda _: _render_node(invocation, found))


@click.command("invoke")
@click.argument("device")
@click.argument("capability")
@click.option("--input", "source", default="{}", metavar="JSON|@FILE|-", help="What the capability takes.")
@click.option("--principal", default="agent:cli", show_default=True, help="On whose behalf.")
@click.option("--run-id", metavar="RUN", help="Count the call in this run's budget.")
@click.option(
    "--wait",
    type=click.FloatRange(0, MAX_APPROVAL_WAIT_MS / _MS_PER_SECOND),
    metavar="SECONDS",
    help="Wait this long for a person's approval, if one is needed.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, MAX_CALL_TIMEOUT_MS / _MS_PER_SECOND, min_open=True),
    metavar="SECONDS",
    help="End the call after this long; a device that is not connected is waited for until then.",
)
@json_option
@click.pass_context
def invoke(
    context: click.Context,
    device: str,
    capability: str,
    source: str,
    principal: str,
    run_id: str | None,
    wait: float | None,
    timeout: float | None,
) -> None:
    """Have DEVICE do CAPABILITY.

    This is `palyra call node.invoke`: the same decision, the same approval, the same record.
    """
    import json

    from palyra.cli.terminal import read_text_argument

    given = read_text_argument(source, MAX_HTTP_BODY_BYTES)
    # The input goes as typed, for the server's strict parser to judge.
    arguments = f'{{"device":{json.dumps(device)},"capability":{json.dumps(capability)},"input":{given}}}'
    context.invoke(
        call,
        tool="node.invoke",
        source=arguments,
        principal=principal,
        run_id=run_id,
        session=None,
        wait=wait,
        timeout=timeout,
        attestation=None,
    )


@click.command("withhold")
@click.argument("device")
@click.argument("capability")
@json_option
@pass_invocation
def withhold(invocation: Invocation, device: str, capability: str) -> None:
    """Let nobody use CAPABILITY of DEVICE, whatever the device reports from now on. What runs of it is stopped."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        changed = client.withhold_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{shown(capability)} of {shown(changed.name)} is withheld")


@click.command("allow")
@click.argument("device")
@click.argument("capability")
@json_option
@pass_invocation
def allow(invocation: Invocation, device: str, capability: str) -> None:
    """Give CAPABILITY of DEVICE back."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        changed = client.allow_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{shown(capability)} of {shown(changed.name)} may be used")


@click.command("revoke")
@click.argument("device")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@json_option
@pass_invocation
def revoke(invocation: Invocation, device: str, reason: str | None) -> None:
    """End the access of DEVICE at once.

    Its connections are cut, its certificates are void and what it was asked to do has failed. It can be paired again,
    as a new device.
    """
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        ended = client.revoke_node(device, reason=reason)
    invocation.output.data(ended.document, lambda _: f"{shown(ended.name)} ({shown(ended.device_id)}) is revoked")


def _offered(node: "NodeView") -> str:
    return ", ".join(str(one["name"]) for one in node.capabilities if not one.get("withheld"))


def _state(node: "NodeView") -> str:
    return f"{node.state}, contested" if node.contested else node.state


def _render_node(invocation: Invocation, node: "NodeView") -> None:
    output = invocation.output
    output.text(
        labelled(
            (
                ("device", node.device_id),
                ("name", node.name),
                ("state", _state(node)),
                ("connected since", node.connected_since or ""),
                ("paired", node.paired_at or ""),
                ("platform", node.platform),
                ("software", node.software_version),
                ("withheld", ", ".join(node.withheld)),
                ("revoked", " ".join(filter(None, (node.revoked_at, node.revoked_reason)))),
            )
        )
    )
    rows = [
        (
            one["name"],
            "withheld" if one.get("withheld") else "asks its person" if one.get("local_mediation") else "",
            one.get("description", ""),
        )
        for one in node.capabilities
    ]
    output.text("")
    output.table(("capability", "", "what it does"), rows)
    if node.requests:
        output.text("")
        asked = [
            (one["created_at"], one["capability"], one["state"], one.get("error") or "", one["principal"])
            for one in node.requests
        ]
        output.table(("asked", "capability", "state", "error", "for"), asked)


# ``palyra node run``, ``status`` and ``leave``: what is done on a device itself.

MAX_CODE_BYTES = 4096


@click.command("run")
@click.option("--server", "servers", multiple=True, metavar="HOST:PORT", help="Where to pair; repeatable.")
@click.option(
    "--code", metavar="CODE", help="The pairing code, as `palyra pair code` printed it; - reads it from stdin."
)
@click.option("--name", metavar="NAME", help="What this device calls itself; default: the setting node.name.")
@json_option
@pass_invocation
def run(invocation: Invocation, servers: tuple[str, ...], code: str | None, name: str | None) -> None:
    """Be a device of a daemon: pair if need be, then do what it asks, in the foreground.

    The first time a code is needed. The device shows six digits, which whoever approves it compares. Afterwards it
    reconnects and renews its certificate by itself. Ctrl-C stops it; the pairing stays.
    """
    from palyra.daemon.node_agent import NodeHost
    from palyra.devicelink.pairing.code import ServerAddress, parse_code

    parsed = None if code is None else parse_code(_code(code))
    addresses = tuple(ServerAddress.parse(each) for each in servers)

    async def serve() -> Any:
        host = NodeHost(invocation.settings, invocation.state_dir, TerminalPerson(invocation.output), name=name or "")
        return await host.run(parsed, addresses)

    end = asyncio.run(serve())
    if end.code:
        from palyra.errors import PalyraError

        known = PalyraError.registry[end.code]
        raise RemoteError(end.message, remote_code=end.code, hint=known.hint, exit_code=known.exit_code)
    invocation.output.data({"ended": end.message}, lambda data: data["ended"])


@click.command("status")
@json_option
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show this device's own pairing and whether its host runs."""
    from palyra.daemon.node_agent import status_of

    invocation.output.data(status_of(invocation.state_dir), _render_device)


@click.command("leave")
@click.option("--forget", is_flag=True, help="Only forget it here: for a daemon that is gone for good.")
@json_option
@pass_invocation
def leave(invocation: Invocation, forget: bool) -> None:
    """End this device's pairing, at the daemon and here.

    Its certificates are revoked and its key is deleted. A host that runs ends by itself.
    """
    from palyra.daemon.node_agent import leave as leave_daemon

    left = asyncio.run(leave_daemon(invocation.state_dir, forget_only=forget))
    invocation.output.data(left, lambda _: "this device is paired no more")


def _code(word: str) -> str:
    """On a command line every process of the machine can read it: standard input is the better way."""
    if word != "-":
        return word
    from palyra.cli.terminal import read_stdin

    return read_stdin(MAX_CODE_BYTES).decode("utf-8", "replace")


def _render_device(data: dict[str, Any]) -> str:
    if "name" not in data:
        return "this device is not paired"
    ends = data.get("certificate_ends_ms")
    return labelled(
        (
            ("device", shown(data.get("device_id", ""))),
            ("name", shown(data["name"])),
            ("state", shown(str(data["state"]))),
            ("since", rfc3339(data["since_ms"]) if data.get("since_ms") else ""),
            ("servers", shown(", ".join(data["servers"]))),
            ("certificate", f"generation {data['generation']}, ends {rfc3339(ends)}" if ends else ""),
            ("note", shown("; ".join(data["told"]))),
        )
    )


# The person at a device: asked, notified and told on the terminal that the node host runs on.

# A yes or a no; whatever is longer is neither.
MAX_ANSWER_BYTES: Final = 64


class TerminalPerson:
    """One question at a time. What was typed before a question is shown does not answer it."""

    def __init__(self, output: Output, *, keyboard: IO[Any] | None = None, screen: IO[str] | None = None) -> None:
        """Standard input and standard error where nothing else is given."""
        self._output = output
        self._keyboard = keyboard or sys.stdin
        self._screen = screen or sys.stderr
        self._turn = asyncio.Lock()

    def tell(self, text: str) -> None:
        self._output.note(shown_block(text))

    def notify(self, title: str, text: str) -> bool:
        if not self._screen.isatty():
            return False
        # The bell is ours; everything in the text that could steer the terminal is spelled out.
        self._screen.write("\a")
        self._output.note(f"{shown(title)}: {shown(text)}")
        return True

    async def allows(self, capability: str, shown_input: str) -> bool:
        async with self._turn:
            terminal = self._terminal()
            if terminal is None:
                self.tell(f"{capability} was asked for, and nobody is at a terminal to allow it: rejected")
                return False
            termios.tcflush(terminal, termios.TCIFLUSH)
            asked = f"The daemon asks this device for {one_line(capability)}\n  with {one_line(shown_input)}"
            self._output.note(f"{asked}\nAllow it? [y/N]")
            answer = await _line(terminal)
            allowed = answer.strip().lower() in (b"y", b"yes")
            self._output.note("allowed" if allowed else "not allowed")
            return allowed

    def _terminal(self) -> int | None:
        """Where a person answers, if both what they type on and what they read are a terminal."""
        try:
            source = self._keyboard.fileno()
        except (AttributeError, OSError, ValueError):
            return None
        return source if os.isatty(source) and self._screen.isatty() else None


async def _line(terminal: int) -> bytes:
    """What is typed up to the end of the line; nothing where the terminal goes away. Can be cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    typed = bytearray()

    def ready() -> None:
        try:
            piece = os.read(terminal, MAX_ANSWER_BYTES)
        except OSError:
            piece = b""
        typed.extend(piece)
        if not done.done() and (not piece or b"\n" in typed or len(typed) > MAX_ANSWER_BYTES):
            whole = typed.partition(b"\n")[0] if piece and len(typed) <= MAX_ANSWER_BYTES else b""
            done.set_result(bytes(whole))

    loop.add_reader(terminal, ready)
    try:
        return await done
    finally:
        loop.remove_reader(terminal)
