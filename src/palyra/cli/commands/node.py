"""``palyra node``: an operator's commands for paired devices, and a device's own: run, status, leave."""

import asyncio
import os
import sys
import termios
from typing import IO, TYPE_CHECKING, Any, Final

import click

from palyra.cli.commands.call import call, timeout_option, wait_option
from palyra.cli.invocation import Invocation, json_option, open_client, pass_invocation
from palyra.cli.membership import read_code, render_membership, require_good_end
from palyra.cli.terminal import Output, one_line, read_text_argument
from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.visible_text import escape, escape_block, render_fields

if TYPE_CHECKING:
    from palyra.client.views import NodeView


@click.command("list")
@pass_invocation
def list_nodes(invocation: Invocation) -> None:
    """List the paired devices: online, offline or revoked.

    Contested is one whose place two parties take from each other with the same certificate: it was copied. Revoke the
    device and pair it again.
    """
    with open_client(invocation) as client:
        found = client.nodes()
    rows = [
        (
            one.device_id,
            one.name,
            _state(one),
            one.connected_since or "",
            one.platform,
            ", ".join(str(each["name"]) for each in one.capabilities if not each.get("withheld")),
        )
        for one in found
    ]
    invocation.output.listing("nodes", found, ("device", "name", "state", "since", "platform", "offers"), rows)


@click.command("show")
@click.argument("device")
@pass_invocation
def show(invocation: Invocation, device: str) -> None:
    """Show DEVICE (its id or name): what it offers, what is withheld, and its newest requests."""
    with open_client(invocation) as client:
        found = client.node(device)
    invocation.output.data(found.document, lambda _: _render_node(invocation, found))


@click.command("invoke")
@click.argument("device")
@click.argument("capability")
@click.option("--input", "source", default="{}", metavar="JSON|@FILE|-", help="What the capability takes.")
@click.option("--principal", default="agent:cli", show_default=True, help="On whose behalf.")
@click.option("--run-id", metavar="RUN", help="Count the call in this run's budget.")
@wait_option
@timeout_option("End the call after this long; a device that is not connected is waited for until then.")
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
@pass_invocation
def withhold(invocation: Invocation, device: str, capability: str) -> None:
    """Let nobody use CAPABILITY of DEVICE, whatever the device reports from now on. What runs of it is stopped."""
    with open_client(invocation) as client:
        changed = client.withhold_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{escape(capability)} of {escape(changed.name)} is withheld")


@click.command("allow")
@click.argument("device")
@click.argument("capability")
@pass_invocation
def allow(invocation: Invocation, device: str, capability: str) -> None:
    """Give CAPABILITY of DEVICE back."""
    with open_client(invocation) as client:
        changed = client.allow_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{escape(capability)} of {escape(changed.name)} may be used")


@click.command("revoke")
@click.argument("device")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def revoke(invocation: Invocation, device: str, reason: str | None) -> None:
    """End the access of DEVICE at once.

    Its connections are cut, its certificates are void and what it was asked to do has failed. It can be paired again,
    as a new device.
    """
    with open_client(invocation) as client:
        ended = client.revoke_node(device, reason=reason)
    invocation.output.data(ended.document, lambda _: f"{escape(ended.name)} ({escape(ended.device_id)}) is revoked")


def _state(node: "NodeView") -> str:
    return f"{node.state}, contested" if node.contested else node.state


def _render_node(invocation: Invocation, node: "NodeView") -> None:
    output = invocation.output
    output.text(
        render_fields(
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


@click.command("run")
@click.option("--server", "servers", multiple=True, metavar="HOST:PORT", help="Where to pair; repeatable.")
@click.option(
    "--code", metavar="CODE", help="The pairing code, as `palyra pair code` printed it; - reads it from stdin."
)
@click.option("--name", metavar="NAME", help="What this device calls itself; default: the setting node.name.")
@pass_invocation
def run(invocation: Invocation, servers: tuple[str, ...], code: str | None, name: str | None) -> None:
    """Be a device of a daemon: pair if need be, then do what it asks, in the foreground.

    The first time a code is needed. The device shows six digits, which the person who approves it compares. Afterwards
    it reconnects and renews its certificate by itself. Ctrl-C stops it; the pairing stays.
    """
    from palyra.daemon.node_agent import NodeHost
    from palyra.devicelink.pairing.code import ServerAddress, parse_code

    parsed = None if code is None else parse_code(read_code(code))
    addresses = tuple(ServerAddress.parse(each) for each in servers)

    async def serve() -> Any:
        host = NodeHost(invocation.settings, invocation.state_dir, TerminalPerson(invocation.output), name=name or "")
        return await host.run(parsed, addresses)

    end = asyncio.run(serve())
    require_good_end(end)
    invocation.output.data({"ended": end.message}, lambda data: data["ended"])


@click.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show this device's own pairing and whether its host runs."""
    from palyra.daemon.node_agent import status_of

    invocation.output.data(
        status_of(invocation.state_dir),
        lambda data: render_membership("device", data) if "name" in data else "this device is not paired",
    )


@click.command("leave")
@click.option("--forget", is_flag=True, help="Only forget it here: for a daemon that is gone for good.")
@pass_invocation
def leave(invocation: Invocation, forget: bool) -> None:
    """End this device's pairing, at the daemon and here.

    Its certificates are revoked and its key is deleted. A host that runs ends by itself.
    """
    from palyra.daemon.node_agent import leave as leave_daemon

    left = asyncio.run(leave_daemon(invocation.state_dir, forget_only=forget))
    invocation.output.data(left, lambda _: "this device is paired no more")


# A longer answer is neither `yes` nor `no`.
MAX_ANSWER_BYTES: Final = 64


class TerminalPerson:
    """The person at a device, on the terminal of the node host. Input typed before a question does not answer it."""

    def __init__(self, output: Output, *, keyboard: IO[Any] | None = None, screen: IO[str] | None = None) -> None:
        """Use standard input and standard error unless others are given."""
        self._output = output
        self._keyboard = keyboard or sys.stdin
        self._screen = screen or sys.stderr
        self._turn = asyncio.Lock()

    def tell(self, text: str) -> None:
        self._output.note(escape_block(text))

    def notify(self, title: str, text: str) -> bool:
        if not self._screen.isatty():
            return False
        # The alert is ours; every character of the text that could steer the terminal is spelled out.
        self._screen.write("\a")
        self._output.note(f"{escape(title)}: {escape(text)}")
        return True

    async def allows(self, capability: str, shown_input: str) -> bool:
        async with self._turn:
            terminal = self._terminal()
            if terminal is None:
                self.tell(f"{capability} was asked for, and nobody is at a terminal to allow it: rejected")
                return False
            termios.tcflush(terminal, termios.TCIFLUSH)
            question = f"The daemon asks this device for {one_line(capability)}\n  with {one_line(shown_input)}"
            self._output.note(f"{question}\nAllow it? [y/N]")
            answer = await _line(terminal)
            allowed = answer.strip().lower() in (b"y", b"yes")
            self._output.note("allowed" if allowed else "not allowed")
            return allowed

    def _terminal(self) -> int | None:
        """Return the keyboard's descriptor, if both keyboard and screen are a terminal."""
        try:
            source = self._keyboard.fileno()
        except (AttributeError, OSError, ValueError):
            return None
        return source if os.isatty(source) and self._screen.isatty() else None


async def _line(terminal: int) -> bytes:
    """Read up to the end of the line, or nothing if the terminal closes. Can be cancelled."""
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
