"""``palyra mcp servers``, ``show``, ``look`` and ``approve``: other people's servers behind Palyra."""

from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, pretty_json, shown, shown_block

if TYPE_CHECKING:
    from palyra.client.views import McpServerView


@click.command("servers")
@json_option
@pass_invocation
def servers(invocation: Invocation) -> None:
    """List the servers behind Palyra and their tools."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.mcp_servers()

    def as_table(_: Any) -> None:
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
        invocation.output.table(("tool", "state", "hosts", "what it says it does"), rows)

    invocation.output.data({"servers": [server.document for server in found]}, as_table)


@click.command("show")
@click.argument("server")
@json_option
@pass_invocation
def show(invocation: Invocation, server: str) -> None:
    """Show a server and the definitions of its tools, as they were reviewed and as they are."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.mcp_server(server)
    invocation.output.data(found.document, lambda _: render_server(found))


@click.command("look")
@click.argument("server")
@json_option
@pass_invocation
def look(invocation: Invocation, server: str) -> None:
    """Start a server, without hosts and secrets, to see what it offers."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client, invocation.output.working(f"starting {shown(server)}"):
        found = client.look_at_mcp_server(server)
    invocation.output.data(found.document, lambda _: render_server(found))


@click.command("approve")
@click.argument("server")
@click.argument("tools", nargs=-1)
@click.option("--digest", metavar="DIGEST", help="Approve one tool only if its definition still has this digest.")
@json_option
@pass_invocation
def approve(invocation: Invocation, server: str, tools: tuple[str, ...], digest: str | None) -> None:
    """Approve definitions as the server offers them now: of the TOOLS named, or of all that wait."""
    from palyra.cli.door import open_client

    if digest is not None and len(tools) != 1:
        raise click.UsageError("--digest goes with exactly one tool")
    with open_client(invocation) as client:
        found = client.mcp_server(server)
        waiting = {tool["tool"]: tool["digest"] for tool in found.tools if tool["state"] != "approved"}
        offered = {tool["tool"]: tool["digest"] for tool in found.tools}
        chosen = {tool: digest or offered.get(tool, "0" * 64) for tool in tools} if tools else waiting
        approved = client.approve_mcp_tools(server, chosen) if chosen else found
    invocation.output.note(f"approved: {', '.join(map(shown, sorted(chosen))) or 'nothing, nothing waits'}")
    invocation.output.data(approved.document, lambda _: render_server(approved))


def render_server(server: "McpServerView") -> str:
    head = labelled(
        (
            ("server", shown(server.name)),
            ("runs", shown(" ".join(server.command))),
            ("hosts", shown(", ".join(server.hosts) or "none")),
            ("secrets", shown(", ".join(server.secrets) or "none")),
            ("refused", shown(pretty_json(server.refused)) if server.refused else "none"),
        )
    )
    return "\n\n".join((head, *map(_render_tool, server.tools)))


def _render_tool(tool: dict[str, Any]) -> str:
    lines = [
        ("tool", shown(tool["tool"])),
        ("state", shown(tool["state"])),
        ("digest", shown(tool["digest"])),
        ("says", shown_block(tool["description"])),
    ]
    if tool["changed"]:
        lines.append(("changed", shown(", ".join(tool["changed"]))))
    if tool.get("approved") and tool["changed"]:
        lines.append(("was", shown_block(tool["approved"]["description"])))
    if tool.get("definition"):
        if uri := tool["definition"].get("uri"):
            lines.append(("address", shown(uri)))
        lines.append(("takes", pretty_json(tool["definition"]["input_schema"])))
    return labelled(tuple(lines))
