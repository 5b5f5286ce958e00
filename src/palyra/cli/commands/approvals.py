"""``palyra approvals``: what waits for a person, shown in full, and the person's answer."""

from typing import TYPE_CHECKING, Any, cast

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import escape, escape_block, pretty_json, read_text_argument, render_fields
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
@pass_invocation
def list_approvals(invocation: Invocation, state: str) -> None:
    """List requests for approval, and devices that wait to join (decided by `palyra pair`)."""
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
    """List devices that wait to join. The list is empty for a principal that may not let them in."""
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
@pass_invocation
def show_approval(invocation: Invocation, approval_id: str) -> None:
    """Show who asks for what, exactly, what it would touch, why policy asks, and until when."""
    with open_client(invocation) as client:
        found = client.approval(approval_id)
    invocation.output.data(found.document, lambda _: render_approval(found))


@approvals.command("approve")
@click.argument("approval_id")
@click.option("--scope", type=click.Choice(SCOPES), default="once", show_default=True, help="How far it reaches.")
@click.option("--pattern", metavar="JSON|@FILE", help="With --scope pattern: which arguments it covers.")
@click.option("--ttl", type=click.IntRange(min=1), metavar="SECONDS", help="How long it lasts.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--digest", metavar="SHA256", help="Approve only if the arguments still have this digest.")
@click.option("--as", "decided_as", metavar="PRINCIPAL", help="Decide as this person.")
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
    """Approve a request."""
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
@pass_invocation
def deny(invocation: Invocation, approval_id: str, reason: str | None, decided_as: str | None) -> None:
    """Deny a request."""
    with open_client(invocation) as client:
        decided = client.deny(approval_id, reason=reason, decided_as=decided_as)
    invocation.output.data(decided.document, lambda _: render_verdict(decided))


@approvals.command("withdraw")
@click.argument("approval_id")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--as", "decided_as", metavar="PRINCIPAL", help="Decide as this person.")
@pass_invocation
def withdraw(invocation: Invocation, approval_id: str, reason: str | None, decided_as: str | None) -> None:
    """Take back an approval that is still in force, such as a time-boxed one."""
    with open_client(invocation) as client:
        taken_back = client.withdraw(approval_id, reason=reason, decided_as=decided_as)
    invocation.output.data(taken_back.document, lambda _: render_verdict(taken_back))


def render_verdict(approval: "ApprovalView") -> str:
    by = f" by {escape(approval.decided_by)}" if approval.decided_by else ""
    meaning = f": {escape(approval.meaning)}" if approval.meaning and approval.state == "approved" else ""
    return f"{escape(approval.state)}{by}{meaning}"


def render_approval(approval: "ApprovalView") -> str:
    """Show everything that a person needs to decide. Nothing is shortened: hidden text cannot be judged."""
    return render_fields(
        (
            ("approval", escape(approval.id)),
            ("state", escape(approval.state)),
            ("who asks", escape(approval.principal)),
            ("session", escape(approval.session or "")),
            ("run", escape(approval.run_id or "")),
            ("tool", escape(approval.tool)),
            ("arguments", pretty_json(approval.arguments)),
            ("digest", escape(approval.argument_digest)),
            ("runs", escape(approval.runs)),
            ("program and files", render_files(approval.files)),
            ("would touch", render_accessed(approval.touches)),
            ("workspace", escape(approval.workspace)),
            ("policy asks", escape(", ".join(approval.policies))),
            ("because", escape_block("\n".join(approval.reasons))),
            (
                "if approved",
                f"nothing now: {escape(approval.outdated)}" if approval.outdated else escape(approval.meaning or ""),
            ),
            ("scope", escape(approval.scope or "")),
            ("pattern", "" if approval.pattern is None else pretty_json(approval.pattern)),
            ("asked at", escape(approval.created_at or "")),
            (
                "expires",
                f"{escape(approval.expires_at)}; without an answer it is denied" if approval.expires_at else "",
            ),
            ("decided", escape(" ".join(filter(None, (approval.decided_at, "by", approval.decided_by)))))
            if approval.decided_by
            else ("decided", ""),
            ("reason", escape_block(approval.reason or "")),
            ("used by call", escape(approval.consumed_by or "")),
        )
    )


def render_files(files: tuple[dict[str, Any], ...]) -> str:
    """Show each program and file that the approval is bound to, with its digest."""
    lines = []
    for file in files:
        leads = "" if file["real"] == file["path"] else f" is {escape(file['real'])}" if file["real"] else " is missing"
        bound = f"sha256 {file['sha256']}" if file["sha256"] else f"stamp {file['stamp']}" if file["stamp"] else ""
        kind = "program" if file["program"] else "file"
        lines.append(f"{kind} {escape(file['path'])}{leads}" + (f", {file['bytes']} bytes, {bound}" if bound else ""))
    return "\n".join(lines)


def render_accessed(touches: Any) -> str:
    if not isinstance(touches, dict):
        return "" if touches is None else pretty_json(touches)
    lines = [
        f"{escape(str(kind))}: {escape(str(item))}"
        for kind, items in touches.items()
        for item in (items if isinstance(items, list) else [items])
    ]
    return "\n".join(lines) or "nothing outside itself"


def _read_pattern(word: str) -> dict[str, Any]:
    from palyra.strict_json import parse_strict

    value = parse_strict(read_text_argument(word, MAX_TOOL_INPUT_BYTES))
    if not isinstance(value, dict):
        raise PatternNotAnObject("the pattern is not a JSON object")
    return value
