"""``palyra mcp``: Palyra as the MCP server of an agent."""

import click

from palyra.cli.invocation import Invocation, pass_invocation

DEFAULT_PRINCIPAL = "agent:mcp"


@click.group(invoke_without_command=True)
@click.option("--principal", default=None, metavar="PRINCIPAL", help=f"On whose behalf.  [default: {DEFAULT_PRINCIPAL}]")
@click.option("--url", envvar="PALYRA_URL", metavar="URL", help="Use this daemon, with the token in PALYRA_TOKEN.")
@click.pass_context
@pass_invocation
def mcp(invocation: Invocation, ctx: click.Context, principal: str | None, url: str | None) -> None:
    """Serve Palyra's tools to an agent over stdin and stdout.

    Connects to the daemon of this state directory, and starts one where none runs. With --url, or PALYRA_TOKEN set,
    the token says on whose behalf calls are made.
    """
    if ctx.invoked_subcommand is not None:
        return
    import os

    from palyra.cli.mcp_serve import serve_stdio

    serve_stdio(invocation, principal, url, os.environ.get("PALYRA_TOKEN"))
