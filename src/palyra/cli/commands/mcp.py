"""``palyra mcp``: the stdio connection of an agent, its configuration, and the servers behind Palyra."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from palyra.cli.commands.config import as_toml
from palyra.cli.invocation import Invocation, open_client, pass_invocation, pass_invocation_only
from palyra.client.address import LocalDaemon, NoDaemon, find_daemon
from palyra.errors import InvalidInput, Unavailable
from palyra.secret import Secret
from palyra.visible_text import escape, escape_block, render_fields, spell_json

if TYPE_CHECKING:
    from palyra.client.views import McpServerView


@click.command("servers")
@pass_invocation
def servers(invocation: Invocation) -> None:
    """List the servers behind Palyra and their tools."""
    with open_client(invocation) as client:
        found = client.mcp_servers()

    rows = [
        (
            f"{server.name}.{tool['tool']}",
            tool["state"],
            ", ".join(server.hosts) or "none",
            tool["description"][:60],
        )
        for server in found
        for tool in server.tools
    ]
    rows += [(server.name, "never looked at", "", "palyra mcp look") for server in found if not server.tools]
    invocation.output.data(
        {"servers": [server.document for server in found]},
        lambda _: invocation.output.table(("tool", "state", "hosts", "what it says it does"), rows),
    )


@click.command("show")
@click.argument("server")
@pass_invocation
def show(invocation: Invocation, server: str) -> None:
    """Show a server and the definitions of its tools, as they were reviewed and as they are."""
    with open_client(invocation) as client:
        found = client.mcp_server(server)
    invocation.output.data(found.document, lambda _: render_server(found))


@click.command("look")
@click.argument("server")
@pass_invocation
def look(invocation: Invocation, server: str) -> None:
    """Start a server, without hosts and secrets, to see what it offers."""
    with open_client(invocation) as client, invocation.output.working(f"starting {escape(server)}"):
        found = client.look_at_mcp_server(server)
    invocation.output.data(found.document, lambda _: render_server(found))


@click.command("approve")
@click.argument("server")
@click.argument("tools", nargs=-1)
@click.option("--digest", metavar="DIGEST", help="Approve one tool only if its definition still has this digest.")
@pass_invocation
def approve(invocation: Invocation, server: str, tools: tuple[str, ...], digest: str | None) -> None:
    """Approve definitions as the server offers them now: of the TOOLS named, or of all that wait."""
    if digest is not None and len(tools) != 1:
        raise click.UsageError("--digest goes with exactly one tool")
    with open_client(invocation) as client:
        found = client.mcp_server(server)
        waiting = {tool["tool"]: tool["digest"] for tool in found.tools if tool["state"] != "approved"}
        offered = {tool["tool"]: tool["digest"] for tool in found.tools}
        chosen = {tool: digest or offered.get(tool, "0" * 64) for tool in tools} if tools else waiting
        approved = client.approve_mcp_tools(server, chosen) if chosen else found
    invocation.output.note(f"approved: {', '.join(map(escape, sorted(chosen))) or 'nothing, nothing waits'}")
    invocation.output.data(approved.document, lambda _: render_server(approved))


def render_server(server: "McpServerView") -> str:
    head = render_fields(
        (
            ("server", escape(server.name)),
            ("runs", escape(" ".join(server.command))),
            ("hosts", escape(", ".join(server.hosts) or "none")),
            ("secrets", escape(", ".join(server.secrets) or "none")),
            ("isolation", escape(server.isolation)),
            *([("kept folder", f"{escape(server.kept_folder)}, used by nobody")] if server.kept_folder else []),
            ("refused", escape(spell_json(server.refused)) if server.refused else "none"),
        )
    )
    return "\n\n".join((head, *map(_render_tool, server.tools)))


def _render_tool(tool: dict[str, Any]) -> str:
    lines = [
        ("tool", escape(tool["tool"])),
        ("state", escape(tool["state"])),
        ("digest", escape(tool["digest"])),
        ("says", escape_block(tool["description"])),
    ]
    if tool["changed"]:
        lines.append(("changed", escape(", ".join(tool["changed"]))))
    if tool.get("approved") and tool["changed"]:
        lines.append(("was", escape_block(tool["approved"]["description"])))
    if tool.get("definition"):
        if uri := tool["definition"].get("uri"):
            lines.append(("address", escape(uri)))
        lines.append(("takes", spell_json(tool["definition"]["input_schema"])))
    return render_fields(tuple(lines))


# Ready configuration for the clients that people use: what to paste, and where it belongs.

SERVER_NAME: Final = "palyra"
# Clients replace this by the variable's value: a token does not belong in a file of a project.
TOKEN_REFERENCE: Final = "${PALYRA_TOKEN}"  # noqa: S105 (a variable's name)
TOKEN_VARIABLE: Final = "PALYRA_TOKEN"  # noqa: S105


class McpClient(StrEnum):
    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"
    ZED = "zed"
    CODEX = "codex"
    JSON = "json"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A client's way to start Palyra: a program, its arguments, and its environment."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = {}

    def document(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"command": self.command, "args": list(self.args)}
        return {**shown, "env": dict(self.env)} if self.env else shown


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs already, reached over HTTP with a token."""

    url: str

    def document(self, token: str = TOKEN_REFERENCE) -> dict[str, Any]:
        return {"type": "http", "url": self.url, "headers": {"Authorization": f"Bearer {token}"}}


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """``file`` is where the text belongs; ``note`` is further advice."""

    client: McpClient
    file: str
    text: str
    note: str = ""


def snippet_for(client: McpClient, how: Launch | Remote) -> Snippet:
    return _WRITERS[client](how)


def _servers(client: McpClient, file: str, note: str = "") -> Callable[[Launch | Remote], Snippet]:
    def write(how: Launch | Remote) -> Snippet:
        text = json.dumps({"mcpServers": {SERVER_NAME: how.document()}}, indent=2)
        return Snippet(client=client, file=file, text=text, note=note)

    return write


def _vscode(how: Launch | Remote) -> Snippet:
    if isinstance(how, Remote):
        # It asks for the token once and keeps it where it keeps its secrets.
        asked = {"type": "promptString", "id": "palyra-token", "description": "Palyra API token", "password": True}
        document: dict[str, Any] = {
            "inputs": [asked],
            "servers": {SERVER_NAME: how.document("${input:palyra-token}")},
        }
    else:
        document = {"servers": {SERVER_NAME: {"type": "stdio", **how.document()}}}
    return Snippet(
        client=McpClient.VSCODE,
        file=".vscode/mcp.json",
        text=json.dumps(document, indent=2),
        note='for all workspaces instead: the command "MCP: Open User Configuration"',
    )


def _zed(how: Launch | Remote) -> Snippet:
    described = how.document()
    described.pop("type", None)
    return Snippet(
        client=McpClient.ZED,
        file="~/.config/zed/settings.json",
        text=json.dumps({"context_servers": {SERVER_NAME: described}}, indent=2),
        note="" if isinstance(how, Launch) else f"Zed takes the token as it is: replace {TOKEN_REFERENCE} by it",
    )


def _codex(how: Launch | Remote) -> Snippet:
    lines = [f"[mcp_servers.{SERVER_NAME}]"]
    if isinstance(how, Remote):
        lines += [f"url = {as_toml(how.url)}", f"bearer_token_env_var = {as_toml(TOKEN_VARIABLE)}"]
    else:
        lines += [f"command = {as_toml(how.command)}", f"args = [{', '.join(map(as_toml, how.args))}]"]
        if how.env:
            lines += ["", f"[mcp_servers.{SERVER_NAME}.env]"]
            lines += [f"{as_toml(name)} = {as_toml(value)}" for name, value in how.env.items()]
    return Snippet(client=McpClient.CODEX, file="~/.codex/config.toml", text="\n".join(lines))


_WRITERS: Final[Mapping[McpClient, Callable[[Launch | Remote], Snippet]]] = {
    McpClient.CLAUDE_DESKTOP: _servers(
        McpClient.CLAUDE_DESKTOP,
        "~/Library/Application Support/Claude/claude_desktop_config.json",
        "on Linux ~/.config/Claude/claude_desktop_config.json, on Windows in %APPDATA%\\Claude",
    ),
    McpClient.CLAUDE_CODE: _servers(
        McpClient.CLAUDE_CODE, ".mcp.json", "in the project's folder; `claude mcp add-json` takes the inner object too"
    ),
    McpClient.CURSOR: _servers(McpClient.CURSOR, ".cursor/mcp.json", "for all projects instead: ~/.cursor/mcp.json"),
    McpClient.VSCODE: _vscode,
    McpClient.ZED: _zed,
    McpClient.CODEX: _codex,
    McpClient.JSON: _servers(McpClient.JSON, "the client's own file", "most clients read this form"),
}


DEFAULT_PRINCIPAL: Final = "agent:mcp"
LOG_FILE: Final = "mcp-daemon.log"
# A daemon starts in a second; on a machine that is busy with everything else, in ten.
START_SECONDS: Final = 60.0
# Another client may be starting one at this very moment.
LOOK_AGAIN_SECONDS: Final = 0.02


class DaemonNotStarted(Unavailable):
    code = "mcp.daemon_not_started"
    hint = "the log file says why; `palyra up` starts one in the foreground"


class TokenMissing(InvalidInput):
    code = "mcp.token_missing"
    hint = "put the token that `palyra token create` printed into the variable PALYRA_TOKEN"


def serve_stdio(invocation: Invocation, principal: str | None, url: str | None, token: str | None) -> None:
    """Carry messages between a client and the daemon.

    A client with a token acts on behalf of that token's principal; the owner on behalf of the one named.
    """
    if url is not None and token is None:
        # The owner's token is for the owner's own daemon, and is not sent to another address.
        raise TokenMissing(f"no token for {url}")
    search = None if url is not None else DaemonSearch(invocation)
    # Imported while a daemon starts, if one has to.
    from palyra.client.mcp_relay import StdioRelay

    if search is None:
        relay = StdioRelay(url or "", Secret(token or ""), principal)
    else:
        daemon = search.wait()
        on_behalf_of = principal if token is not None else principal or DEFAULT_PRINCIPAL
        relay = StdioRelay(daemon.url, daemon.token if token is None else Secret(token), on_behalf_of)
    relay.run()


class DaemonSearch:
    """The daemon of this state directory. If none runs, one is started at once, and ``wait`` waits for it."""

    def __init__(self, invocation: Invocation) -> None:
        self._state = invocation.state_path
        self._started: subprocess.Popen[bytes] | None = None
        self._daemon: LocalDaemon | None = None
        try:
            self._daemon = find_daemon(self._state)
        except NoDaemon:
            self._log = invocation.state_dir.path(LOG_FILE)
            self._started = _start(self._log, invocation.location_options(absolute=True))

    def wait(self) -> LocalDaemon:
        if self._daemon is not None:
            return self._daemon
        deadline = time.monotonic() + START_SECONDS
        assert self._started is not None and self._started.stdout is not None
        # It writes one line when it answers. If it ends before, the pipe closes.
        with self._started.stdout as announced:
            select.select([announced], [], [], START_SECONDS)
        while True:
            try:
                return find_daemon(self._state)
            except NoDaemon:
                if time.monotonic() > deadline or not self._is_starting():
                    raise DaemonNotStarted(f"no daemon came up; see {self._log}") from None
                time.sleep(LOOK_AGAIN_SECONDS)

    def _is_starting(self) -> bool:
        """Tell whether our daemon starts, or another client's, which then has the lock that ours did not get."""
        from palyra.config.state_dir import LOCK_FILE, HeldLock

        if self._started is not None and self._started.poll() is None:
            return True
        try:
            HeldLock.take(self._state / LOCK_FILE).release(remove=False)
        except BlockingIOError:
            return True
        return False


def _start(log: Path, options: list[str]) -> "subprocess.Popen[bytes]":
    """Start a daemon in a session of its own: it outlives this program for as long as another agent uses it."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "palyra.cli.main", *options, "up", "--port", "0", "--for-agents"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def how_to_connect(invocation: Invocation, principal: str, *, http: bool) -> "Launch | Remote":
    if http:
        return Remote(url=f"{_address(invocation)}/mcp")
    program = Path(sys.argv[0]).absolute()
    own = program.name == "palyra" and program.exists()
    start = (str(program),) if own else (sys.executable, "-m", "palyra.cli.main")
    return Launch(
        command=start[0],
        args=(*start[1:], *invocation.location_options(absolute=True), "mcp", "--principal", principal),
    )


def _address(invocation: Invocation) -> str:
    try:
        return find_daemon(invocation.state_path).url
    except NoDaemon:
        settings = invocation.settings.daemon
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"http://{host}:{settings.port}"


CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "zed", "codex", "json")


@click.group(invoke_without_command=True)
@click.option("--principal", metavar="PRINCIPAL", help=f"On whose behalf.  [default: {DEFAULT_PRINCIPAL}]")
@click.option("--url", envvar="PALYRA_URL", metavar="URL", help="Use this daemon, with the token in PALYRA_TOKEN.")
@click.pass_context
@pass_invocation_only
def mcp(invocation: Invocation, ctx: click.Context, principal: str | None, url: str | None) -> None:
    """Serve tools to an agent over stdin and stdout (MCP).

    Connects to the daemon of this state directory. If none is running, starts one that stops after its last agent. With
    PALYRA_TOKEN set, the token says on whose behalf calls are made.
    """
    if ctx.invoked_subcommand is not None:
        return
    import os

    serve_stdio(invocation, principal, url, os.environ.get("PALYRA_TOKEN"))


mcp.add_command(servers)
mcp.add_command(show)
mcp.add_command(look)
mcp.add_command(approve)


@mcp.command("config")
@click.option("--client", type=click.Choice(CLIENTS), default="json", show_default=True, help="Whose configuration.")
@click.option("--principal", metavar="PRINCIPAL", help="On whose behalf.  [default: agent:CLIENT]")
@click.option(
    "--http", is_flag=True, help="Connect to the daemon's address with a token, instead of starting a program."
)
@pass_invocation
def config(invocation: Invocation, client: str, principal: str | None, http: bool) -> None:
    """Print what to paste into a client's configuration."""
    who = principal or (f"agent:{client}" if client != "json" else DEFAULT_PRINCIPAL)
    snippet = snippet_for(McpClient(client), how_to_connect(invocation, who, http=http))
    invocation.output.note(f"for {snippet.file}" + (f" ({snippet.note})" if snippet.note else ""))
    if http:
        invocation.output.note(f"the token comes from: palyra token create --principal {who}")
    shown = {"client": client, "file": snippet.file, "text": snippet.text, "note": snippet.note, "principal": who}
    invocation.output.data(shown, lambda _: snippet.text)
