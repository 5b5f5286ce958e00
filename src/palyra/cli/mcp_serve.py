"""The stdio side of ``palyra mcp``: finds or starts the daemon, then carries messages."""

from palyra.cli.invocation import Invocation
from palyra.cli.mcp import DEFAULT_PRINCIPAL
from palyra.client.local import find_daemon
from palyra.mcp.stdio_relay import StdioRelay
from palyra.secret import Secret


def serve_stdio(invocation: Invocation, principal: str | None, url: str | None, token: str | None) -> None:
    """With a token of its own a client speaks for that token's principal; the owner speaks for the one named."""
    if url is None or token is None:
        daemon = find_daemon(invocation.state_path)
        url = url or daemon.url
        if token is None:
            StdioRelay(url, daemon.token, principal or DEFAULT_PRINCIPAL).run()
            return
    StdioRelay(url, Secret(token), principal).run()
