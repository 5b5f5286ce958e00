"""``palyra worker``: the fleet of workers, as an operator sees and directs it."""

from typing import TYPE_CHECKING

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.visible_text import escape, escape_block, render_fields

if TYPE_CHECKING:
    from palyra.client.views import LeaseView, WorkerView


@click.group()
def worker() -> None:
    """See and direct the workers that calls run on.

    `palyra pair code --kind worker` lets one join; `palyra-workerd` is the program on its side.
    """


@worker.command("list")
@pass_invocation
def list_workers(invocation: Invocation) -> None:
    """List the workers: their state, how busy they are, and why they are not in use."""
    with open_client(invocation) as client:
        found = client.workers()
    rows = [
        (one.worker_id, one.name, one.state, f"{one.open_leases}/{one.slots}", one.heard_at or "", one.reason)
        for one in found
    ]
    invocation.output.listing("workers", found, ("worker", "name", "state", "leases", "heard", "why"), rows)


@worker.command("show")
@click.argument("worker")
@pass_invocation
def show(invocation: Invocation, worker: str) -> None:
    """Show WORKER (its id or name): what it attested, and what it runs now."""
    with open_client(invocation) as client:
        found = client.worker(worker)
    invocation.output.data(found.document, lambda _: _render(invocation, found))


@worker.command("drain")
@click.argument("worker")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def drain(invocation: Invocation, worker: str, reason: str | None) -> None:
    """Give WORKER no new calls; those it has may end. A new connection does not undo it."""
    _change(invocation, worker, "drain", reason, "gets no new calls")


@worker.command("resume")
@click.argument("worker")
@pass_invocation
def resume(invocation: Invocation, worker: str) -> None:
    """End the drain of WORKER; it attests itself again before it gets calls."""
    _change(invocation, worker, "resume", None, "may get calls again, once it has attested itself")


@worker.command("quarantine")
@click.argument("worker")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def quarantine(invocation: Invocation, worker: str, reason: str | None) -> None:
    """Cut WORKER off at once: its leases are void and nothing it says about them counts."""
    _change(invocation, worker, "quarantine", reason, "is in quarantine")


@worker.command("release")
@click.argument("worker")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def release(invocation: Invocation, worker: str, reason: str | None) -> None:
    """Let WORKER out of quarantine. It gets calls after an attestation that is newer than this."""
    _change(invocation, worker, "release", reason, "is released, and has to attest itself again")


@worker.command("remove")
@click.argument("worker")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def remove(invocation: Invocation, worker: str, reason: str | None) -> None:
    """Take WORKER out of the fleet for good: its pairing ends and its certificates are revoked."""
    _change(invocation, worker, "remove", reason, "is removed")


@worker.command("leases")
@click.argument("worker", required=False)
@click.option("--all", "ended", is_flag=True, help="Those that have ended too.")
@click.option("--lease", "lease_id", metavar="LEASE", help="Only this one, with what it has printed so far.")
@pass_invocation
def leases(invocation: Invocation, worker: str | None, ended: bool, lease_id: str | None) -> None:
    """List the calls that workers hold, or WORKER holds; newest first."""
    with open_client(invocation) as client:
        if lease_id is not None:
            one = client.lease(lease_id)
            invocation.output.data(one.document, lambda _: _render_lease(one))
            return
        found = client.leases(worker=worker, ended=ended)
    rows = [
        (one.lease_id, one.worker_id, one.tool, one.state, one.outcome or one.reason, one.granted_at, one.call_id)
        for one in found
    ]
    invocation.output.listing("leases", found, ("lease", "worker", "tool", "state", "how", "granted", "call"), rows)


def _change(invocation: Invocation, worker: str, change: str, reason: str | None, words: str) -> None:
    with open_client(invocation) as client:
        changed = client.change_worker(worker, change, reason=reason)
    if change == "release" and changed.state == "draining":
        words += "; it is drained as before"
    invocation.output.data(changed.document, lambda _: f"{escape(changed.name)} ({escape(changed.worker_id)}) {words}")


def _render(invocation: Invocation, found: "WorkerView") -> None:
    attested = found.attestation or {}
    invocation.output.text(
        render_fields(
            (
                ("worker", found.worker_id),
                ("name", found.name),
                ("state", f"{found.state} since {found.since}"),
                ("why", found.reason),
                ("heard", found.heard_at or ""),
                ("leases", f"{found.open_leases} of {found.slots}, {found.leases_granted} since it joined"),
                ("owes cleanup of", str(found.owes_cleanup) if found.owes_cleanup else ""),
                ("egress proxy", found.egress_id),
                ("attested", str(attested.get("attested_at", "not now"))),
                ("key", str(attested.get("key_id", ""))),
                ("image", str(attested.get("image_digest_sha256", ""))),
                ("build", str(attested.get("build_digest_sha256", ""))),
                ("package", str(attested.get("artifact_digest_sha256", ""))),
                ("can", ", ".join(attested.get("capabilities", ()))),
            )
        )
    )
    if found.leases:
        invocation.output.text("")
        rows = [(one["lease_id"], one["tool"], one["state"], one["granted_at"], one["call_id"]) for one in found.leases]
        invocation.output.table(("lease", "tool", "state", "granted", "call"), rows)


def _render_lease(lease: "LeaseView") -> str:
    facts = render_fields(
        (
            ("lease", f"{lease.lease_id}, fence {lease.fence}, attempt {lease.attempt}"),
            ("worker", lease.worker_id),
            ("call", f"{lease.call_id} of {lease.principal}"),
            ("tool", lease.tool),
            ("state", " ".join(filter(None, (lease.state, lease.outcome, lease.reason)))),
            ("granted", lease.granted_at),
            ("deadline", lease.deadline_at),
            ("ended", lease.ended_at or ""),
        )
    )
    printed = "".join(f"\n{name}:\n{escape_block(text)}" for name, text in lease.output.items() if text)
    return facts + printed
