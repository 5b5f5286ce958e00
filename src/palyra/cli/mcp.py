"""``palyra mcp``: Palyra as the MCP server of an agent."""

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.mcp_servers import approve, look, servers, show

DEFAULT_PRINCIPAL = "agent:mcp"
CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "zed", "codex", "json")


@click.group(invoke_without_command=True)
@click.option("--principal", metavar="PRINCIPAL", help=f"On whose behalf.  [default: {DEFAULT_PRINCIPAL}]")
@click.option("--url", envvar="PALYRA_URL", metavar="URL", help="Use this daemon, with the token in PALYRA_TOKEN.")
@click.pass_context
@pass_invocation
def mcp(invocation: Invocation, ctx: click.Context, principal: str | None, url: str | None) -> None:
    """Serve tools to an agent over stdin and stdout (MCP).

    Connects to the daemon of this state directory, and starts one where none runs, which stops after its last agent.
    With PALYRA_TOKEN set, the token says on whose behalf calls are made.
    """
    if ctx.invoked_subcommand is not None:
        return
    import os

    from palyra.cli.mcp_serve import serve_stdio

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
@json_option
@pass_invocation
def config(invocation: Invocation, client: str, principal: str | None, http: bool) -> None:
    """Print what to paste into a client's configuration."""
    from palyra.cli.mcp_serve import how_to_connect
    from palyra.mcp.client_config import McpClient, snippet_for

    who = principal or (f"agent:{client}" if client != "json" else DEFAULT_PRINCIPAL)
    snippet = snippet_for(McpClient(client), how_to_connect(invocation, who, http=http))
    invocation.output.note(f"for {snippet.file}" + (f" ({snippet.note})" if snippet.note else ""))
    if http:
        invocation.output.note(f"the token comes from: palyra token create --principal {who}")
    shown = {"client": client, "file": snippet.file, "text": snippet.text, "note": snippet.note, "principal": who}
    invocation.output.data(shown, lambda _: snippet.text)
