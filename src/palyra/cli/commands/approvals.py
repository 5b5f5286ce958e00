"""``palyra approvals``: what waits for a person, shown in full, and the person's answer."""

from typing import TYPE_CHECKING, Any, cast

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, pretty_json, shown, shown_block
from palyra.errors import InvalidInput
from palyra.limits import MAX_TOOL_INPUT_BYTES

if TYPE_CHECKING:
    from palyra.client.client import Client
    from palyra.client.operations import Scope
    from palyra.client.views import ApprovalView, PairingView

SCOPES = ("once", "session", "pattern", "timeboxed")
STATES = ("pending", "approved", "denied", "expired", "consumed", "withdrawn")


class PatternNotAnObject(InvalidInput):
    code = "cli.pattern_not_an_object"
    hint = "an argument pattern is a JSON object; the reference describes its form"


@click.group()
def approvals() -> None:
    """See and decide what waits for a person."""


@approvals.command("list")
@click.option("--state", type=click.Choice([*STATES, "all"]), default="pending", show_default=True)
@json_option
@pass_invocation
def list_approvals(invocation: Invocation, state: str) -> None:
    """List requests for approval, and devices that wait to join (decided by `palyra pair`)."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        found = client.approvals(None if state == "all" else state)
        pairings = _pairings(client, state)

    def as_table(_: Any) -> None:
        rows = [(one.id, one.state, one.principal, one.tool, one.expires_at or "") for one in found]
        invocation.output.table(("approval", "state", "who asks", "tool", "until"), rows)
        if pairings:
            from palyra.cli.commands.pair import PAIRING_COLUMNS, pairing_row

            invocation.output.text("")
            invocation.output.table(PAIRING_COLUMNS, [pairing_row(one) for one in pairings])

    documents = {"approvals": [one.document for one in found], "pairings": [one.document for one in pairings]}
    invocation.output.data(documents, as_table)


def _pairings(client: "Client", state: str) -> "tuple[PairingView, ...]":
    """Devices that wait, for those who may let them in; none for anybody else."""
    from palyra.errors import RemoteError

    if state not in ("pending", "all"):
        return ()
    try:
        return client.pairings(None if state == "all" else "pending_approval")
    except RemoteError as error:
        if error.remote_code in ("action.denied", "token.scope_missing"):
            return ()
        raise


@approvals.command("show")
@click.argument("approval_id")
@json_option
@pass_invocation
def show_approval(invocation: Invocation, approval_id: str) -> None:
    """Show who asks for what, exactly, what it would touch, why policy asks, and until when."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        found = client.approval(approval_id)
    invocation.output.data(found.document, lambda _: render_approval(found))


@approvals.command("approve")
@click.argument("approval_id")
@click.option("--scope", type=click.Choice(SCOPES), default="once", show_default=True, help="How far the yes reaches.")
@click.option("--pattern", metavar="JSON|@FILE", help="With --scope pattern: which arguments it covers.")
@click.option("--ttl", type=click.IntRange(min=1), metavar="SECONDS", help="How long the yes lasts.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--digest", metavar="SHA256", help="Approve only if the arguments still have this digest.")
@click.option("--as", "decided_as", metavar="PRINCIPAL", help="Decide as this person.")
@json_option
@pass_invocation
def approve(
    invocation: Invocation,
    approval_id: str,
    scope: str,
    pattern: str | None,
    ttl: int | None,
    reason: str | None,
    digest: str | None,
    decided_as: str | None,
) -> None:
    """Say yes to a request."""
    from palyra.cli.invocation import open_client

    parsed = None if pattern is None else _read_pattern(pattern)
    with open_client(invocation) as client:
        decided = client.approve(
            approval_id,
            scope=cast("Scope", scope),
            pattern=parsed,
            ttl_seconds=ttl,
            reason=reason,
            argument_digest=digest,
            decided_as=decided_as,
        )
    invocation.output.data(decided.document, lambda _: render_verdict(decided))


@approvals.command("deny")
@click.argument("approval_id")
@click.option("--reason", metavar="TEXT", help="Why, for the record and for who asked.")
@click.option("--as", "decided_as", metavar="PRINCIPAL", help="Decide as this person.")
@json_option
@pass_invocation
def deny(invocation: Invocation, approval_id: str, reason: str | None, decided_as: str | None) -> None:
    """Say no to a request."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        decided = client.deny(approval_id, reason=reason, decided_as=decided_as)
    invocation.output.data(decided.document, lambda _: render_verdict(decided))


@approvals.command("withdraw")
@click.argument("approval_id")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--as", "decided_as", metavar="PRINCIPAL", help="Decide as this person.")
@json_option
@pass_invocation
def withdraw(invocation: Invocation, approval_id: str, reason: str | None, decided_as: str | None) -> None:
    """Take back a yes that still stands, such as a time-boxed one."""
    from palyra.cli.invocation import open_client

    with open_client(invocation) as client:
        taken_back = client.withdraw(approval_id, reason=reason, decided_as=decided_as)
    invocation.output.data(taken_back.document, lambda _: render_verdict(taken_back))


def render_verdict(approval: "ApprovalView") -> str:
    by = f" by {shown(approval.decided_by)}" if approval.decided_by else ""
    meaning = f": {shown(approval.meaning)}" if approval.meaning and approval.state == "approved" else ""
    return f"{shown(approval.state)}{by}{meaning}"


def render_approval(approval: "ApprovalView") -> str:
    """Everything a person needs to decide. Nothing is shortened: what is hidden cannot be judged."""
    return labelled(
        (
            ("approval", shown(approval.id)),
            ("state", shown(approval.state)),
            ("who asks", shown(approval.principal)),
            ("session", shown(approval.session or "")),
            ("run", shown(approval.run_id or "")),
            ("tool", shown(approval.tool)),
            ("arguments", pretty_json(approval.arguments)),
            ("digest", shown(approval.argument_digest)),
            ("would touch", render_touches(approval.touches)),
            ("workspace", shown(approval.workspace)),
            ("policy asks", shown(", ".join(approval.policies))),
            ("because", shown_block("\n".join(approval.reasons))),
            (
                "a yes means",
                f"nothing now: {shown(approval.outdated)}" if approval.outdated else shown(approval.meaning or ""),
            ),
            ("scope", shown(approval.scope or "")),
            ("pattern", "" if approval.pattern is None else pretty_json(approval.pattern)),
            ("asked at", shown(approval.created_at or "")),
            ("expires", f"{shown(approval.expires_at)}; without an answer it is denied" if approval.expires_at else ""),
            ("decided", shown(" ".join(filter(None, (approval.decided_at, "by", approval.decided_by)))))
            if approval.decided_by
            else ("decided", ""),
            ("reason", shown_block(approval.reason or "")),
            ("used by call", shown(approval.consumed_by or "")),
        )
    )


def render_touches(touches: Any) -> str:
    if not isinstance(touches, dict):
        return "" if touches is None else pretty_json(touches)
    lines = [
        f"{shown(str(kind))}: {shown(str(item))}"
        for kind, items in touches.items()
        for item in (items if isinstance(items, list) else [items])
    ]
    return "\n".join(lines) or "nothing outside itself"


def _read_pattern(word: str) -> dict[str, Any]:
    from palyra.cli.terminal import read_text_argument
    from palyra.strict_json import parse_strict

    value = parse_strict(read_text_argument(word, MAX_TOOL_INPUT_BYTES))
    if not isinstance(value, dict):
        raise PatternNotAnObject("the pattern is not a JSON object")
    return value
