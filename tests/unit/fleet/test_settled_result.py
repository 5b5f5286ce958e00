"""What the messages around a settlement have to agree on; the whole of it over the wire is in the contract tests."""

from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import a_lease
from palyra.canonical import canonical_json
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.settlement import (
    CleanupProof,
    LeaseSettlement,
    SettledResult,
    SettlementDisagrees,
    read_settlement,
    require_of_lease,
)
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.signing.dsse import BadSignature
from palyra.signing.p256 import P256Signer
from palyra.signing.tool_attestation import ToolAttestation, attest_with_digest

LEASE = a_lease()


class Key:
    def __init__(self) -> None:
        self.signer = P256Signer.generate()
        self.key_id = self.signer.verifier().key_id

    def sign(self, message: bytes) -> bytes:
        return self.signer.sign(message)

    def public_key(self) -> bytes:
        return self.signer.verifier().public_der()


def read(
    *, result: bytes = b'{"a":1}', sent: bytes | None = None, error: bytes = b"", signer: Key | None = None, **said: Any
) -> SettledResult:
    import hashlib

    key = Key()
    digest = hashlib.sha256(result).hexdigest()
    about = ToolAttestation(
        call_id=said.pop("call_id", LEASE.call_id),
        run_id=LEASE.run_id,
        principal=LEASE.principal,
        tool=LEASE.tool,
        argument_digest=LEASE.argument_digest,
        decision="leased",
        policies=(),
        bundle_digest="",
        executor="worker/w",
        receipt=(),
        outcome=said.pop("attested_outcome", "succeeded"),
        output_digest=digest,
        started_ms=0,
        ended_ms=1,
    )
    envelope, execution = attest_with_digest(about, (signer or key,))
    fields: dict[str, Any] = {
        "worker_id": LEASE.worker_id,
        "lease_id": LEASE.lease_id,
        "fence": LEASE.fence,
        "outcome": LeaseOutcome.SUCCEEDED,
        "output_digest": digest,
        "output_bytes": len(result),
        "execution_sha256": execution,
        "started_ms": 0,
        "ended_ms": 1,
        "cleanup": CleanupProof(
            lease_id=LEASE.lease_id,
            fence=LEASE.fence,
            nonce=LEASE.nonce,
            workspace="1:2",
            ended_ms=1,
            checked_ms=1,
            entries_left=0,
            processes_left=0,
            mounts_left=0,
        ),
        **said,
    }
    signed = sign_statement(LeaseSettlement(**fields), key.signer)
    return read_settlement(signed, result if sent is None else sent, envelope.to_json(), error, key.signer.verifier())


def test_what_agrees_is_read() -> None:
    settled = read()
    assert settled.result == {"a": 1} and settled.error is None
    require_of_lease(settled, LEASE)
    error = msgspec.json.encode({"code": "x.y", "message": "m"})
    assert read(error=error, error_code="x.y").error == {"code": "x.y", "message": "m"}


@pytest.mark.parametrize(
    "changes",
    [
        {"sent": b'{"a":2}'},
        {"result": b'{ "a":1}'},
        {"result": b"not json"},
        {"output_bytes": 3},
        {"execution_sha256": "00" * 32},
        {"attested_outcome": "failed"},
        {"error": b'{"code":"x.y"}'},
        {"error": b"[]"},
        {"error_code": "x.y"},
    ],
)
def test_what_contradicts_itself_is_not(changes: dict[str, Any]) -> None:
    with pytest.raises(SettlementDisagrees):
        read(**changes)


def test_another_key_s_attestation_or_another_call_s_is_not() -> None:
    with pytest.raises(SettlementDisagrees):
        read(signer=Key())
    with pytest.raises(SettlementDisagrees):
        require_of_lease(read(call_id="01OTHER"), LEASE)


def test_nothing_unsigned_is_read() -> None:
    key = Key()
    signed = sign_statement(read().statement, Key().signer)
    with pytest.raises(BadSignature):
        read_settlement(signed, canonical_json({"a": 1}), b"{}", b"", key.signer.verifier())
