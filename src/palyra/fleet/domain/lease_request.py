"""One call that the pipeline wants a worker to run, and the worker's report."""

import msgspec

from palyra.errors import Failed
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.settlement import SettledResult
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope


class LeaseLost(Failed):
    code = "lease.lost"
    hint = "it is unknown how far the call came; make it again if that does no harm"
    http_status = 502


class LeaseNotTaken(Failed):
    code = "lease.not_taken"
    hint = "the worker's own reason is in the message; `palyra worker list` shows what each worker can do"
    http_status = 502


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``needs`` are capabilities. ``hosts`` and ``egress_bytes`` are the limits of the worker's proxy for the call."""

    run_id: str
    call_id: str
    principal: str
    tool: str
    arguments_json: bytes
    argument_digest: str
    tier: str
    obligations_json: bytes = b"{}"
    needs: frozenset[str]
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    idempotent: bool
    timeout_ms: int
    max_output_bytes: int
    approval_id: str = ""
    hosts: tuple[str, ...] = ()
    egress_bytes: int = 0
    egress_tunnels: int = 0


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """A settled lease: the worker's signed result, and the key that signed it."""

    lease: WorkerLease
    settled: SettledResult
    key_id: str
    key_der: bytes
    worker_name: str
