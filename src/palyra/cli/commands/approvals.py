"""``palyra approvals``: what waits for a person, shown in full, and the person's answer."""

import sys
from typing import TYPE_CHECKING, Any, cast

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import read_text_argument
from palyra.errors import InvalidInput
from palyra.limits import MAX_TOOL_INPUT_BYTES
from palyra.visible_text import escape, escape_block, render_fields, spell_json

if TYPE_CHECKING:
    from palyra.client.client import Client
    from palyra.client.operations import Scope
    from palyra.client.views import ApprovalView, PairingView
    from palyra.pipeline.domain.approval import Approval

SCOPES = ("once", "session", "pattern", "timeboxed")
STATES = ("pending", "approved", "denied", "expired", "consumed", "withdrawn")


class RequestNotShown(InvalidInput):
    code = "approval.not_read"
    hint = (
        "run this at a terminal, which shows the request and asks; or read it with `palyra approvals show ID` and name"
        " its digest with --digest; --yes approves whatever it is"
    )


class NotConfirmed(InvalidInput):
    code = "approval.not_confirmed"
    hint = "the request still waits; `palyra approvals deny ID` denies it"


class PatternNotAnObject(InvalidInput):
    code = "cli.pattern_not_an_object"
    hint = "an argument pattern is a JSON object; the reference describes its form"


@click.group()
def approvals() -> None:
    """See and decide what waits for a person."""


@approvals.command("list")
@click.option("--state", type=click.Choice([*STATES, "all"]), default="pending", show_default=True)
@click.option("--before", metavar="ID", help="Of a long list: those older than this one.")
@pass_invocation
def list_approvals(invocation: Invocation, state: str, before: str | None) -> None:
    """List requests for approval, and devices that wait to join (decided by `palyra pair`).

    Requests that wait are listed whole and oldest first, others newest first and in pages.
    """
    with open_client(invocation) as client:
        if state == "pending" and before is None:
            found, older = client.approvals(), None
        else:
            page = client.approvals_page(None if state == "all" else state, before=before)
            found, older = page.approvals, page.next
        pairings = _pairings(client, state)

    def as_table(_: Any) -> None:
        rows = [(one.id, one.state, one.principal, one.tool, one.expires_at or "") for one in found]
        invocation.output.table(("approval", "state", "who asks", "tool", "until"), rows)
        if pairings:
            from palyra.cli.commands.pair import PAIRING_COLUMNS, pairing_row

            invocation.output.text("")
            invocation.output.table(PAIRING_COLUMNS, [pairing_row(one) for one in pairings])

    if older is not None:
        invocation.output.note(f"older ones: palyra approvals list --state {state} --before {escape(older)}")
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
    invocation.output.data(found.document, lambda _: invocation.output.fold_fields(render_approval(found)))


@approvals.command("approve")
@click.argument("approval_id")
@click.option("--scope", type=click.Choice(SCOPES), default="once", show_default=True, help="How far it reaches.")
@click.option("--pattern", metavar="JSON|@FILE", help="With --scope pattern: which arguments it covers.")
@click.option("--ttl", type=click.IntRange(min=1), metavar="SECONDS", help="How long it lasts.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--digest", metavar="SHA256", help="Do not ask; approve if the arguments have this digest.")
@click.option("--yes", is_flag=True, help="Do not show the request and do not ask.")
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
    yes: bool,
    decided_as: str | None,
) -> None:
    """Show a request, ask, and approve it. Without a terminal, --digest or --yes says that it was read."""
    parsed = None if pattern is None else _read_pattern(pattern)
    with open_client(invocation) as client:
        if digest is None and not yes:
            digest = _confirm(invocation, client.approval(approval_id), cast("Scope", scope), parsed, ttl)
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


def _confirm(
    invocation: Invocation,
    found: "ApprovalView",
    scope: "Scope",
    pattern: dict[str, Any] | None,
    ttl: int | None,
) -> str:
    """Show the request, ask the person, and return the digest of the arguments that were shown."""
    if invocation.output.json or not sys.stdin.isatty():
        raise RequestNotShown(f"nobody saw what {found.id} asks for: there is no terminal, no --digest and no --yes")
    from palyra.canonical import digest_of

    meaning = found.meaning if scope == "once" and ttl is None else _describe_yes(found, scope, pattern, ttl)
    invocation.output.note(invocation.output.fold_fields(render_approval(found, meaning=meaning), on_stderr=True))
    if not click.confirm("\nApprove it?", default=False, err=True):
        raise NotConfirmed(f"{found.id} is not approved")
    return digest_of(found.arguments)


def _describe_yes(found: "ApprovalView", scope: "Scope", pattern: dict[str, Any] | None, ttl: int | None) -> str:
    from palyra.pipeline.domain.approval import ApprovalScope
    from palyra.pipeline.domain.argument_pattern import ArgumentPattern

    if scope == "pattern":
        ArgumentPattern.parse(pattern)
    until = f"until {found.expires_at}" if ttl is None else f"for {ttl} seconds"
    return _approval_of(found).describe_yes(ApprovalScope(scope), pattern, until)


def _approval_of(view: "ApprovalView") -> "Approval":
    """Return what the server shows as the record that every surface renders."""
    import msgspec

    from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState, BoundFile, SentFiles

    return Approval(
        id=view.id,
        state=ApprovalState.PENDING,
        binding=ApprovalBinding(
            principal=view.principal,
            tool=view.tool,
            argument_digest=view.argument_digest,
            bundle_digest=view.bundle_digest,
            workspace=view.workspace,
            place=view.place,
            tier=view.tier,
            obligations=view.obligations,
            files=msgspec.convert(view.files, tuple[BoundFile, ...]),
        ),
        session=view.session or "",
        arguments=view.arguments,
        touches=view.touches,
        dropped_bytes=view.dropped_bytes,
        policies=view.policies,
        created_ms=0,
        expires_ms=0,
        sends=None if view.sends is None else msgspec.convert(view.sends, SentFiles),
    )


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


def render_approval(approval: "ApprovalView", *, meaning: str | None = None) -> str:
    """Show everything that a person needs to decide. Nothing is shortened: hidden text cannot be judged.

    ``meaning`` says what an approval would allow, if that is not what the request says by itself.
    """
    from palyra.pipeline.domain.call_text import describe_approval

    outdated, allows = escape(approval.outdated), escape(meaning or approval.meaning or "")
    decided = (approval.decided_at, "by", approval.decided_by) if approval.decided_by else ()
    return render_fields(
        (
            ("approval", escape(approval.id)),
            ("state", escape(approval.state)),
            *((each.label, "\n".join(each.lines)) for each in describe_approval(_approval_of(approval))),
            ("run", escape(approval.run_id or "")),
            ("policy asks", escape(", ".join(approval.policies))),
            ("because", escape_block("\n".join(approval.reasons))),
            ("if approved", f"nothing now: {outdated}" if outdated else allows),
            ("scope", escape(approval.scope or "")),
            ("pattern", "" if approval.pattern is None else spell_json(approval.pattern)),
            ("asked at", escape(approval.created_at or "")),
            (
                "expires",
                f"{escape(approval.expires_at)}; without an answer it is denied" if approval.expires_at else "",
            ),
            ("decided", escape(" ".join(filter(None, decided)))),
            ("reason", escape_block(approval.reason or "")),
            ("used by call", escape(approval.consumed_by or "")),
        )
    )


def _read_pattern(word: str) -> dict[str, Any]:
    from palyra.strict_json import parse_strict

    value = parse_strict(read_text_argument(word, MAX_TOOL_INPUT_BYTES))
    if not isinstance(value, dict):
        raise PatternNotAnObject("the pattern is not a JSON object")
    return value
