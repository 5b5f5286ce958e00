"""``palyra node list|show|invoke|withhold|allow|revoke``: what an operator does with paired devices."""

from typing import TYPE_CHECKING, Any

import click

from palyra.cli.call import call
from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, shown
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS, MAX_HTTP_BODY_BYTES

if TYPE_CHECKING:
    from palyra.client.views import NodeView

_MS_PER_SECOND = 1000


@click.command("list")
@json_option
@pass_invocation
def list_nodes(invocation: Invocation) -> None:
    """List the paired devices: online, offline or revoked.

    Contested is one whose place two parties take from each other with the same certificate: it was copied. Revoke the
    device and pair it again.
    """
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.nodes()

    def as_table(_: Any) -> None:
        rows = [
            (one.device_id, one.name, _state(one), one.connected_since or "", one.platform, _offered(one))
            for one in found
        ]
        invocation.output.table(("device", "name", "state", "since", "platform", "offers"), rows)

    invocation.output.data({"nodes": [one.document for one in found]}, as_table)


@click.command("show")
@click.argument("device")
@json_option
@pass_invocation
def show(invocation: Invocation, device: str) -> None:
    """Show DEVICE (its id or name): what it offers, what is withheld, and its newest requests."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.node(device)
    invocation.output.data(found.document, lambda _: _render(invocation, found))


@click.command("invoke")
@click.argument("device")
@click.argument("capability")
@click.option("--input", "source", default="{}", metavar="JSON|@FILE|-", help="What the capability takes.")
@click.option("--principal", default="agent:cli", show_default=True, help="On whose behalf.")
@click.option("--run-id", metavar="RUN", help="Count the call in this run's budget.")
@click.option(
    "--wait",
    type=click.FloatRange(0, MAX_APPROVAL_WAIT_MS / _MS_PER_SECOND),
    metavar="SECONDS",
    help="Wait this long for a person's approval, if one is needed.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, MAX_CALL_TIMEOUT_MS / _MS_PER_SECOND, min_open=True),
    metavar="SECONDS",
    help="End the call after this long; a device that is not connected is waited for until then.",
)
@json_option
@click.pass_context
def invoke(
    context: click.Context,
    device: str,
    capability: str,
    source: str,
    principal: str,
    run_id: str | None,
    wait: float | None,
    timeout: float | None,
) -> None:
    """Have DEVICE do CAPABILITY.

    This is `palyra call node.invoke`: the same decision, the same approval, the same record.
    """
    import json

    from palyra.cli.sources import read_text_argument

    given = read_text_argument(source, MAX_HTTP_BODY_BYTES)
    # The input goes as typed, for the server's strict parser to judge.
    arguments = f'{{"device":{json.dumps(device)},"capability":{json.dumps(capability)},"input":{given}}}'
    context.invoke(
        call,
        tool="node.invoke",
        source=arguments,
        principal=principal,
        run_id=run_id,
        session=None,
        wait=wait,
        timeout=timeout,
        attestation=None,
    )


@click.command("withhold")
@click.argument("device")
@click.argument("capability")
@json_option
@pass_invocation
def withhold(invocation: Invocation, device: str, capability: str) -> None:
    """Let nobody use CAPABILITY of DEVICE, whatever the device reports from now on. What runs of it is stopped."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        changed = client.withhold_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{shown(capability)} of {shown(changed.name)} is withheld")


@click.command("allow")
@click.argument("device")
@click.argument("capability")
@json_option
@pass_invocation
def allow(invocation: Invocation, device: str, capability: str) -> None:
    """Give CAPABILITY of DEVICE back."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        changed = client.allow_capability(device, capability)
    invocation.output.data(changed.document, lambda _: f"{shown(capability)} of {shown(changed.name)} may be used")


@click.command("revoke")
@click.argument("device")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@json_option
@pass_invocation
def revoke(invocation: Invocation, device: str, reason: str | None) -> None:
    """End the access of DEVICE at once.

    Its connections are cut, its certificates are void and what it was asked to do has failed. It can be paired again,
    as a new device.
    """
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        ended = client.revoke_node(device, reason=reason)
    invocation.output.data(ended.document, lambda _: f"{shown(ended.name)} ({shown(ended.device_id)}) is revoked")


def _offered(node: "NodeView") -> str:
    return ", ".join(str(one["name"]) for one in node.capabilities if not one.get("withheld"))


def _state(node: "NodeView") -> str:
    return f"{node.state}, contested" if node.contested else node.state


def _render(invocation: Invocation, node: "NodeView") -> None:
    output = invocation.output
    output.text(
        labelled(
            (
                ("device", node.device_id),
                ("name", node.name),
                ("state", _state(node)),
                ("connected since", node.connected_since or ""),
                ("paired", node.paired_at or ""),
                ("platform", node.platform),
                ("software", node.software_version),
                ("withheld", ", ".join(node.withheld)),
                ("revoked", " ".join(filter(None, (node.revoked_at, node.revoked_reason)))),
            )
        )
    )
    rows = [
        (
            one["name"],
            "withheld" if one.get("withheld") else "asks its person" if one.get("local_mediation") else "",
            one.get("description", ""),
        )
        for one in node.capabilities
    ]
    output.text("")
    output.table(("capability", "", "what it does"), rows)
    if node.requests:
        output.text("")
        asked = [
            (one["created_at"], one["capability"], one["state"], one.get("error") or "", one["principal"])
            for one in node.requests
        ]
        output.table(("asked", "capability", "state", "error", "for"), asked)
