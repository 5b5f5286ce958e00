"""Workers with real keys, and the commands that an honest worker, its proxy and the pipeline would send."""

from collections.abc import Iterable
from typing import Any

import msgspec

from palyra.errors import PalyraError
from palyra.fleet.domain import commands
from palyra.fleet.domain.attestation import EgressBinding, WorkerAttestation
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import LeaseOutcome, LeaseState, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.policy import SDK_PROTOCOL_VERSION, WIT_ABI_VERSION, WorkerFleetPolicy
from palyra.fleet.domain.settlement import (
    CleanupProof,
    LeaseDisclaimer,
    LeaseSettlement,
    settlement_digest,
)
from palyra.fleet.domain.signed_statement import SignedStatement, open_statement, sign_statement
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.domain.workspace_scope import WorkerWorkspaceScope
from palyra.fleet.store.port import FleetLedger
from palyra.signing.p256 import P256Signer

IMAGE, BUILD, ARTIFACT, EGRESS_POLICY = "a1" * 32, "b2" * 32, "c3" * 32, "d4" * 32
START_MS = 1_790_000_000_000
POLICY = WorkerFleetPolicy(
    max_workers=4,
    max_leases_per_worker=2,
    image_digests=frozenset((IMAGE,)),
    build_digests=frozenset((BUILD,)),
    artifact_digests=frozenset((ARTIFACT,)),
    egress_policy_digests=frozenset((EGRESS_POLICY,)),
    required_capabilities=frozenset(("tier.c",)),
)
SCOPE = WorkerWorkspaceScope.parse("/srv/work", ("src", "out"), read_only=False)


def numbered(number: int) -> str:
    """A ULID for tests."""
    return f"{number:026d}"


WORKER, OTHER, EGRESS = numbered(1), numbered(2), numbered(90)


def a_lease(**changes: Any) -> WorkerLease:
    """A lease that nobody has asked a ledger about."""
    fields: dict[str, Any] = {
        "lease_id": numbered(7),
        "worker_id": numbered(1),
        "grant_id": numbered(8),
        "fence": 3,
        "state": LeaseState.OPEN,
        "run_id": numbered(9),
        "call_id": numbered(10),
        "principal": "agent:a",
        "tool": "process.run",
        "argument_digest": "ee" * 32,
        "scope": SCOPE,
        "inputs": (),
        "nonce": "00" * 32,
        "idempotent": False,
        "attempt": 1,
        "max_output_bytes": 10,
        "granted_ms": 1_000,
        "deadline_ms": 31_000,
    }
    return WorkerLease(**{**fields, **changes})


class FleetPeers:
    """Makes what each party would send. Nothing in it depends on chance but the keys."""

    def __init__(self, policy: WorkerFleetPolicy = POLICY) -> None:
        self.policy = policy
        self.keys: dict[str, P256Signer] = {}
        self.egress_key = P256Signer.generate()
        self._count = 1_000

    def next_id(self) -> str:
        self._count += 1
        return numbered(self._count)

    def key(self, device_id: str) -> P256Signer:
        if device_id not in self.keys:
            self.keys[device_id] = P256Signer.generate()
        return self.keys[device_id]

    def nonce(self) -> str:
        return self.next_id().rjust(64, "0")

    def open_session(
        self, worker_id: str = WORKER, *, boot: str = "boot-1", slots: int = 4, named: Iterable[str] = ()
    ) -> commands.OpenSession:
        return commands.OpenSession(
            actor=f"worker/{worker_id}",
            worker_id=worker_id,
            name=f"worker {int(worker_id)}",
            daemon="daemon-1",
            boot_id=boot,
            slots=slots,
            nonce=self.nonce(),
            named=frozenset(named),
        )

    def attestation(self, worker: WorkerRecord, now_ms: int, **changes: Any) -> WorkerAttestation:
        """What an honest worker says about itself, with its proxy's binding, and then the changes."""
        binding = EgressBinding(
            egress_id=EGRESS,
            worker_id=worker.worker_id,
            policy_digest_sha256=EGRESS_POLICY,
            nonce=worker.nonce,
            issued_ms=now_ms,
            expires_ms=now_ms + 3_600_000,
        )
        fields: dict[str, Any] = {
            "worker_id": worker.worker_id,
            "image_digest_sha256": IMAGE,
            "build_digest_sha256": BUILD,
            "artifact_digest_sha256": ARTIFACT,
            "egress_proxy_attested": False,
            "supported_capabilities": ("tier.b", "tier.c"),
            "sdk_protocol_version": SDK_PROTOCOL_VERSION,
            "wit_abi_version": WIT_ABI_VERSION,
            "issued_ms": now_ms,
            "expires_ms": now_ms + 3_600_000,
            "nonce": worker.nonce,
        }
        honest = WorkerAttestation(**fields).with_binding(EGRESS, sign_statement(binding, self.egress_key))
        return msgspec.structs.replace(honest, **changes)

    def present(
        self, worker: WorkerRecord, now_ms: int, *, session: int | None = None, **changes: Any
    ) -> commands.PresentAttestation:
        said = self.attestation(worker, now_ms, **changes)
        signed = sign_statement(said, self.key(worker.worker_id))
        return self.presenting(worker, signed, session=session)

    def presenting(
        self, worker: WorkerRecord, signed: SignedStatement, *, session: int | None = None
    ) -> commands.PresentAttestation:
        return commands.PresentAttestation(
            actor=f"worker/{worker.worker_id}",
            worker_id=worker.worker_id,
            session=worker.session if session is None else session,
            signed=signed,
            key=self.key(worker.worker_id).verifier(),
            egress_keys={EGRESS: self.egress_key.verifier()},
        )

    def grant(self, now_ms: int, **changes: Any) -> WorkerApprovalGrant:
        fields: dict[str, Any] = {
            "grant_id": self.next_id(),
            "run_id": numbered(500),
            "call_id": numbered(501),
            "principal": "agent:a",
            "tool": "process.run",
            "argument_digest": "ee" * 32,
            "issued_ms": now_ms,
            "expires_ms": now_ms + 60_000,
        }
        return WorkerApprovalGrant(**{**fields, **changes})

    def issue(self, grant: WorkerApprovalGrant) -> commands.IssueGrant:
        return commands.IssueGrant(actor="palyrad", grant_id=grant.grant_id, grant=grant)

    def lease(self, worker_id: str, grant: WorkerApprovalGrant, /, **changes: Any) -> commands.LeaseWork:
        fields: dict[str, Any] = {
            "actor": "palyrad",
            "worker_id": worker_id,
            "lease_id": self.next_id(),
            "grant_id": grant.grant_id,
            "run_id": grant.run_id,
            "call_id": grant.call_id,
            "principal": grant.principal,
            "tool": grant.tool,
            "argument_digest": grant.argument_digest,
            "needs": frozenset(("tier.c",)),
            "scope": SCOPE,
            "nonce": self.nonce(),
            "idempotent": False,
            "timeout_ms": 30_000,
            "max_output_bytes": 1_000,
        }
        return commands.LeaseWork(**{**fields, **changes})

    def statement(self, lease: WorkerLease, now_ms: int, **changes: Any) -> LeaseSettlement:
        cleanup = CleanupProof(
            lease_id=lease.lease_id,
            fence=lease.fence,
            nonce=lease.nonce,
            workspace="8:1234",
            ended_ms=now_ms,
            checked_ms=now_ms,
            entries_left=0,
            processes_left=0,
            mounts_left=0,
        )
        proof = {name: changes.pop(name) for name in list(changes) if name in CleanupProof.__struct_fields__[2:]}
        fields: dict[str, Any] = {
            "worker_id": lease.worker_id,
            "lease_id": lease.lease_id,
            "fence": lease.fence,
            "outcome": LeaseOutcome.SUCCEEDED,
            "output_digest": "ff" * 32,
            "output_bytes": 10,
            "execution_sha256": "ab" * 32,
            "started_ms": lease.granted_ms,
            "ended_ms": now_ms,
            "cleanup": msgspec.structs.replace(cleanup, **proof),
        }
        return LeaseSettlement(**{**fields, **changes})

    def settle(
        self, lease: WorkerLease, now_ms: int, session: int, *, sender: str = "", **changes: Any
    ) -> commands.SettleLease:
        """Signed by the sender and opened with the sender's key, as the service does."""
        sender = sender or lease.worker_id
        signed = sign_statement(self.statement(lease, now_ms, **changes), self.key(sender))
        return self.settling(lease.lease_id, sender, session, signed)

    def settling(self, lease_id: str, sender: str, session: int, signed: SignedStatement) -> commands.SettleLease:
        statement, refusal = None, None
        try:
            statement = open_statement(LeaseSettlement, signed, self.key(sender).verifier())
        except PalyraError as error:
            refusal = error
        return commands.SettleLease(
            actor=f"worker/{sender}",
            worker_id=sender,
            lease_id=lease_id,
            session=session,
            statement=statement,
            digest=settlement_digest(signed),
            refusal=refusal,
        )

    def disclaimer(self, lease: WorkerLease, worker: WorkerRecord, now_ms: int, **changes: Any) -> LeaseDisclaimer:
        """What a worker says that was never given the lease, and then the changes."""
        cleanup = self.statement(lease, now_ms, workspace="").cleanup
        proof = {name: changes.pop(name) for name in list(changes) if name in CleanupProof.__struct_fields__}
        fields: dict[str, Any] = {
            "worker_id": worker.worker_id,
            "boot_id": worker.boot_id,
            "session": worker.session,
            "cleanup": msgspec.structs.replace(cleanup, **proof),
        }
        return LeaseDisclaimer(**{**fields, **changes})

    def disclaim(
        self, lease: WorkerLease, worker: WorkerRecord, now_ms: int, *, session: int | None = None, **changes: Any
    ) -> commands.DisclaimLease:
        return commands.DisclaimLease(
            actor=f"worker/{worker.worker_id}",
            worker_id=worker.worker_id,
            lease_id=lease.lease_id,
            session=worker.session if session is None else session,
            statement=self.disclaimer(lease, worker, now_ms, **changes),
        )

    def shows(self, lease: WorkerLease, worker_id: str = "") -> commands.NoteTaken:
        """Output, a file, or the name of the lease in a hello."""
        worker_id = worker_id or lease.worker_id
        return commands.NoteTaken(actor=f"worker/{worker_id}", worker_id=worker_id, lease_id=lease.lease_id)

    async def ready(self, ledger: FleetLedger, worker_id: str = WORKER, *, now_ms: int, **opening: Any) -> WorkerRecord:
        """A worker that has connected and attested itself."""
        opened = await ledger.decide(self.open_session(worker_id, **opening))
        assert opened.worker is not None
        attested = await ledger.decide(self.present(opened.worker, now_ms))
        assert attested.worker is not None
        return attested.worker

    async def leased(self, ledger: FleetLedger, worker_id: str = WORKER, *, now_ms: int, **changes: Any) -> WorkerLease:
        grant = self.grant(now_ms)
        decisions: list[FleetDecision] = await ledger.decide_all(
            [self.issue(grant), self.lease(worker_id, grant, **changes)]
        )
        refusal = decisions[1].refusal
        if refusal is not None:
            raise refusal
        return decisions[1].leases[0].lease
