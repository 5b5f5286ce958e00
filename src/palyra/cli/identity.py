"""``palyra identity``: by which certificates devices and the daemon know each other."""

from typing import Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import shown

_SHORT_CHARS = 16


@click.group()
def identity() -> None:
    """See devices' certificates, replace their authority.

    Devices get short-lived certificates from an authority of this installation, which its first use makes. They renew
    them by themselves.
    """


@identity.command("show")
@json_option
@pass_invocation
def show(invocation: Invocation) -> None:
    """Show the authorities, and the devices with their certificates."""
    from palyra.cli.door import open_client

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
@json_option
@pass_invocation
def rotate(invocation: Invocation) -> None:
    """Replace the authority that signs certificates.

    New certificates are signed by the new one at once. The one before is trusted until the last certificate by it has
    ended, so no device is cut off: each gets a certificate by the new one when it renews. Codes for pairing that were
    made before stop working.
    """
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.rotate_authority()
    outgoing = [one for one in found.authorities if one["state"] == "outgoing"]

    def as_text(_: Any) -> str:
        now = f"{shown(found.authorities[0]['authority_id'])} signs from now on"
        until = f"; the one before is trusted until {shown(outgoing[0]['needed_until'])}" if outgoing else ""
        return now + until

    invocation.output.data(found.document, as_text)


def _authorities(invocation: Invocation, authorities: list[dict[str, Any]]) -> None:
    rows = [
        (one["authority_id"], one["state"], one["created_at"], one["ends_at"], one["needed_until"] or "")
        for one in authorities
    ]
    invocation.output.table(("authority", "state", "made", "ends", "needed until"), rows)
