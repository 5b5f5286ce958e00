"""What a worker states about the traces of a lease, and what is held against it.

The worker looks again after it removed everything and counts what is left. The statement is bound to the lease, its
fencing number and its nonce, and is part of the signed settlement. A worker can still lie; where the lie shows (more
workspaces than leases in a heartbeat, traffic of an ended lease at the egress proxy) the worker is quarantined.
"""

import msgspec

from palyra.errors import Denied, Failed
from palyra.workers.lease import WorkerLease
from palyra.workers.limits import MAX_CLOCK_SKEW_MS


class CleanupForAnother(Denied):
    code = "worker_cleanup.other_lease"
    hint = "a cleanup statement names the lease, its fencing number and its nonce"


class CleanupOutOfTime(Denied):
    code = "worker_cleanup.out_of_time"
    hint = "the worker has to look after the call has ended, and not in the future"


class CleanupIncomplete(Failed):
    code = "worker_cleanup.incomplete"
    hint = "look at the worker, clean it by hand, then release it with `palyra worker release`"


class CleanupContradicted(Denied):
    code = "worker_cleanup.contradicted"
    hint = "what the worker said of a lease's traces is not what it showed: look at it before it is released"


class CleanupProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``workspace`` names the scratch folder (device and inode), so that two leases cannot share one look."""

    lease_id: str
    fence: int
    nonce: str
    workspace: str
    ended_ms: int
    checked_ms: int
    entries_left: int
    processes_left: int
    mounts_left: int


def require_authentic(proof: CleanupProof, lease: WorkerLease, now_ms: int) -> None:
    """Raises for what no honest worker states."""
    if (proof.lease_id, proof.fence, proof.nonce) != (lease.lease_id, lease.fence, lease.nonce):
        raise CleanupForAnother("the cleanup statement is not about this lease", lease_id=lease.lease_id)
    earliest, latest = lease.granted_ms - MAX_CLOCK_SKEW_MS, now_ms + MAX_CLOCK_SKEW_MS
    if not earliest <= proof.ended_ms <= proof.checked_ms <= latest:
        raise CleanupOutOfTime("the cleanup was not looked at between the end and now", lease_id=lease.lease_id)
    if min(proof.entries_left, proof.processes_left, proof.mounts_left) < 0:
        raise CleanupForAnother("the cleanup statement counts below zero", lease_id=lease.lease_id)


def require_clean(proof: CleanupProof) -> None:
    """Raises for what an honest worker could not clean up."""
    left = {
        "files": proof.entries_left,
        "processes": proof.processes_left,
        "mounts": proof.mounts_left,
    }
    if any(left.values()):
        words = ", ".join(f"{count} {name}" for name, count in left.items() if count)
        raise CleanupIncomplete(f"after the lease the worker still had {words}", lease_id=proof.lease_id, left=left)
