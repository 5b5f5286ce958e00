"""``palyra pair`` and ``palyra identity``: let devices join, and see and replace their certificates."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.errors import InvalidInput
from palyra.visible_text import escape, render_fields

if TYPE_CHECKING:
    from palyra.client.views import NewPairingCode, PairingView

_SHORT_CHARS = 16


@click.group()
def identity() -> None:
    """See devices' certificates, replace their authority.

    Devices get short-lived certificates from an authority of this installation, which its first use makes. They renew
    them by themselves.
    """


@identity.command("show")
@pass_invocation
def show(invocation: Invocation) -> None:
    """Show the authorities, and the devices with their certificates."""
    with open_client(invocation) as client:
        found = client.identity()

    def as_tables(_: Any) -> None:
        if not found.trust_domain:
            invocation.output.note("there is no authority yet: the first pairing makes it")
        _authorities(invocation, found.authorities)
        if found.devices:
            invocation.output.text("")
            rows = [
                (
                    one["device_id"],
                    one["kind"],
                    f"{one['state']}: {one['reason']}" if one["reason"] else one["state"],
                    one["generation"],
                    one["certificate_ends_at"],
                    one["fingerprint"][:_SHORT_CHARS],
                )
                for one in found.devices
            ]
            invocation.output.table(("device", "kind", "state", "generation", "ends", "fingerprint"), rows)

    invocation.output.data(found.document, as_tables)


@identity.command("rotate")
@pass_invocation
def rotate(invocation: Invocation) -> None:
    """Replace the authority that signs certificates.

    New certificates are signed by the new one at once. The one before is trusted until the last certificate by it has
    ended, so no device is cut off: each gets a certificate by the new one when it renews. Codes for pairing that were
    made before stop working.
    """
    with open_client(invocation) as client:
        found = client.rotate_authority()
    outgoing = [one for one in found.authorities if one["state"] == "outgoing"]

    def as_text(_: Any) -> str:
        now = f"{escape(found.authorities[0]['authority_id'])} signs from now on"
        until = f"; the one before is trusted until {escape(outgoing[0]['needed_until'])}" if outgoing else ""
        return now + until

    invocation.output.data(found.document, as_text)


def _authorities(invocation: Invocation, authorities: list[dict[str, Any]]) -> None:
    rows = [
        (one["authority_id"], one["state"], one["created_at"], one["ends_at"], one["needed_until"] or "")
        for one in authorities
    ]
    invocation.output.table(("authority", "state", "made", "ends", "needed until"), rows)


STATES = ("pending_approval", "approved", "completed", "rejected", "expired")
_JOIN = {"node": "palyra node run", "worker": "palyra-workerd join", "egress": "palyra-egressd join"}


class QrNotSaved(InvalidInput):
    code = "cli.qr_not_saved"
    hint = "name a file that is not there yet, in a folder that you may write to"


@click.group()
def pair() -> None:
    """Let a new device join.

    Make a code, use it on the device, compare the six digits that both show, then approve.
    """


@pair.command("code")
@click.option(
    "--method",
    type=click.Choice(["pin", "qr"]),
    default="pin",
    show_default=True,
    help="Digits to type, or a QR code to scan.",
)
@click.option(
    "--kind",
    type=click.Choice(["node", "worker", "egress"]),
    default="node",
    show_default=True,
    help="What the device will be.",
)
@click.option("--ttl", type=click.IntRange(30, 86_400), metavar="SECONDS", help="How long it works; 600 if not set.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Save the QR code as a picture, for you alone to read.",
)
@pass_invocation
def code(invocation: Invocation, method: str, kind: str, ttl: int | None, svg: Path | None) -> None:
    """Make a code for one device.

    It works once, for ten minutes unless --ttl or the setting nodes.code_seconds says otherwise, and five wrong guesses
    make it void. The daemon must be running: it listens for the device.
    """
    if svg is not None and method != "qr":
        raise click.UsageError("--svg is for --method qr.")
    with open_client(invocation) as client:
        # Before the code is made: one that cannot be shown would only be one more to guess.
        picture = None if svg is None else _new_file(svg)
        try:
            made = client.create_pairing_code(method, kind, ttl_seconds=ttl)
        except BaseException:
            if picture is not None and svg is not None:
                os.close(picture)
                svg.unlink()
            raise
    if picture is not None:
        from palyra.devicelink.pairing.code import qr_svg

        with open(picture, "w", encoding="utf-8") as file:
            file.write(qr_svg(made.code) + "\n")
    # Asked for, and shown this once.
    document = {**made.view.document, "code": made.code.reveal()}
    invocation.output.data(document, lambda _: _render_code(made))


@pair.command("list")
@click.option(
    "--state", type=click.Choice([*STATES, "all"]), default="all", show_default=True, help="Requests in this state."
)
@pass_invocation
def list_pairings(invocation: Invocation, state: str) -> None:
    """List codes in force and requests to join.

    A request that counts other devices was made with a code that somebody else knows too: reject it if the comparison
    code is not the one your device shows.
    """
    with open_client(invocation) as client:
        codes = client.pairing_codes()
        found = client.pairings(None if state == "all" else state)

    def as_tables(_: Any) -> None:
        if codes:
            rows = [(one.id, one.nameplate, one.kind, one.method, one.state, one.expires_at or "") for one in codes]
            invocation.output.table(("code", "nameplate", "kind", "method", "state", "until"), rows)
            invocation.output.text("")
        invocation.output.table(PAIRING_COLUMNS, [pairing_row(one) for one in found])

    documents = {"codes": [one.document for one in codes], "pairings": [one.document for one in found]}
    invocation.output.data(documents, as_tables)


@pair.command("approve")
@click.argument("pairing_id")
@click.option(
    "--compare", metavar="DIGITS", help="Approve only if the request has this comparison code, as the device shows it."
)
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@pass_invocation
def approve(invocation: Invocation, pairing_id: str, compare: str | None, reason: str | None) -> None:
    """Let the device join. Compare the codes first."""
    with open_client(invocation) as client:
        decided = client.approve_pairing(pairing_id, comparison_code=compare, reason=reason)
    invocation.output.data(decided.document, lambda _: render_pairing(decided))


@pair.command("reject")
@click.argument("id_", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why, for the record and for the device.")
@pass_invocation
def reject(invocation: Invocation, id_: str, reason: str | None) -> None:
    """Refuse a request to join, or take back a code."""
    from palyra.errors import RemoteError

    with open_client(invocation) as client:
        try:
            document = client.reject_pairing(id_, reason=reason).document
        except RemoteError as error:
            if error.remote_code != "pairing.unknown_request":
                raise
            document = client.withdraw_pairing_code(id_).document
    invocation.output.data(document, lambda data: f"{escape(data['state'])}: {escape(data['id'])}")


PAIRING_COLUMNS = ("request", "state", "device", "kind", "platform", "compare", "from", "other devices", "asked")


def pairing_row(pairing: "PairingView") -> tuple[Any, ...]:
    return (
        pairing.id,
        pairing.state,
        pairing.name,
        pairing.kind,
        pairing.platform,
        pairing.comparison_code,
        pairing.address,
        pairing.refused_claims or "",
        pairing.created_at or "",
    )


def render_pairing(pairing: "PairingView") -> str:
    return render_fields(
        (
            ("request", escape(pairing.id)),
            ("state", escape(pairing.state)),
            ("device", escape(pairing.name)),
            ("kind", escape(pairing.kind)),
            ("platform", escape(pairing.platform)),
            ("device id", escape(pairing.device_id)),
            ("key", escape(pairing.key_fingerprint)),
            ("compare", escape(pairing.comparison_code)),
            ("from", escape(pairing.address)),
            ("decided by", escape(pairing.decided_by or "")),
            ("reason", escape(pairing.reason)),
        )
    )


def _new_file(path: Path) -> int:
    """Open a new file for this user alone: the code is a secret."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise QrNotSaved(f"cannot write {path}: {error.strerror}") from error


def _render_code(made: "NewPairingCode") -> str:
    """Print the code, in the one place where it is meant to be seen."""
    view, text = made.view, made.code.reveal()
    join = _JOIN.get(view.kind, "")
    lines = [f"code     {text}", f"until    {escape(view.expires_at or '')}"]
    lines += [f"server   {escape(address)}" for address in view.addresses]
    if view.method == "qr":
        from palyra.devicelink.pairing.code import qr_terminal

        lines = [qr_terminal(made.code).rstrip("\n"), *lines, f"on the device: {join} --code '{text}'"]
    elif view.addresses:
        lines.append(f"on the device: {join} --server {escape(view.addresses[0])} --code {text}")
    lines.append("then: palyra pair list, compare the six digits, palyra pair approve REQUEST")
    return "\n".join(lines)
