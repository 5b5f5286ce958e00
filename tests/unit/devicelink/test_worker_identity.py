"""A worker's pairing: renewed on disk before it is used, signed with the key in force."""

from pathlib import Path

import pytest

from fakes.worker_agent_harness import worker_agent_harness
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import HeldIdentity, Renewed
from palyra.identity.certificate import fingerprint_of
from palyra.signing.p256 import P256Verifier


async def test_a_renewal_is_asked_with_a_key_on_disk_and_taken_over_as_a_whole(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        identity = HeldIdentity(harness.pairing, harness.record())
        before = identity.key().key_id
        csr = await identity.request_renewal()
        pending = harness.record().pending_key_pem
        assert pending is not None and harness.record().generation == 1
        again = HeldIdentity(harness.pairing, harness.record())
        await again.request_renewal()
        kept = harness.record().pending_key_pem
        assert kept is not None and kept.reveal() == pending.reveal(), "an answer that got lost is asked for again"
        manager = harness.fleet.harness.identities
        peer = manager.identify(fingerprint_of(harness.record().certificate_pem.encode()))
        issued = await manager.renew(peer, csr, 1)
        await identity.take_renewal(
            Renewed(certificate_pem=issued.certificate_pem.decode(), ca_bundle_pem="", generation=issued.generation)
        )
        assert identity.generation == 2 == harness.record().generation and harness.record().pending_key_pem is None
        assert identity.key().key_id != before
        verifier = P256Verifier.from_certificate(identity.credentials().certificate_pem.encode())
        verifier.verify(b"x", identity.key().sign(b"x"))
        assert verifier.key_id == identity.key().key_id and identity.credentials().ca_bundle_pem
        await identity.trust("another bundle")
        assert harness.record().ca_bundle_pem == "another bundle"


def test_without_a_pairing_there_is_no_identity(tmp_path: Path) -> None:
    folder = PairingFolder(StateDir.open(tmp_path / "w"), "worker")
    with pytest.raises(NotPaired):
        HeldIdentity(folder, DeviceRecord(device_name="x", servers=()))
