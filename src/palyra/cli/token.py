"""``palyra token``: API tokens for agents, each bound to a principal."""

from typing import Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import shown


@click.group()
def token() -> None:
    """Manage API tokens, each bound to a principal."""


@token.command("create")
@click.option("--principal", required=True, metavar="PRINCIPAL", help="For whom: agent:NAME or user:NAME.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="What it may do (call, operate); repeatable.")
@click.option("--ttl", type=click.IntRange(min=1), metavar="SECONDS", help="How long it works; without, until revoked.")
@click.option("--label", metavar="TEXT", help="A name to find it by.")
@click.option("--run-id", metavar="RUN", help="Let it work in this run only.")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    principal: str,
    scopes: tuple[str, ...],
    ttl: int | None,
    label: str | None,
    run_id: str | None,
) -> None:
    """Make a token and print it. It is shown this once."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        made = client.create_token(principal, scopes=scopes or None, ttl_seconds=ttl, label=label, run_id=run_id)
    invocation.output.note(f"token {shown(made.view.token_id)} for {shown(made.view.principal)}; it is not shown again")
    # The one place where a token is meant to be seen.
    invocation.output.data({**made.view.document, "token": made.token.reveal()}, lambda data: shown(data["token"]))


@token.command("list")
@json_option
@pass_invocation
def list_tokens(invocation: Invocation) -> None:
    """List tokens, without their secrets."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.tokens()

    def as_table(_: Any) -> None:
        rows = [
            (
                one.token_id,
                one.principal,
                ", ".join(one.scopes),
                one.label or "",
                f"revoked {one.revoked_at}" if one.revoked_at else f"until {one.expires_at or 'revoked'}",
            )
            for one in found
        ]
        invocation.output.table(("token", "principal", "scopes", "label", "works"), rows)

    invocation.output.data({"tokens": [one.document for one in found]}, as_table)


@token.command("revoke")
@click.argument("token_id")
@json_option
@pass_invocation
def revoke(invocation: Invocation, token_id: str) -> None:
    """End a token at once."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        ended = client.revoke_token(token_id)
    invocation.output.data(ended.document, lambda _: f"revoked token {shown(ended.token_id)}")
