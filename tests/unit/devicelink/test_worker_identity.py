"""A worker's pairing: renewed on disk before it is used, signed with the key in force."""

from pathlib import Path

import pytest

from fakes.worker_scene import worker_scene
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import HeldIdentity, Renewed
from palyra.identity.certificate import fingerprint_of
from palyra.signing.p256 import P256Verifier


async def test_a_renewal_is_asked_with_a_key_on_disk_and_taken_over_as_a_whole(tmp_path: Path) -> None:
    async with worker_scene(tmp_path) as scene:
        identity = HeldIdentity(scene.pairing, scene.record())
        before = identity.key().key_id
        csr = await identity.request_renewal()
        pending = scene.record().pending_key_pem
        assert pending is not None and scene.record().generation == 1
        again = HeldIdentity(scene.pairing, scene.record())
        await again.request_renewal()
        kept = scene.record().pending_key_pem
        assert kept is not None and kept.reveal() == pending.reveal(), "an answer that got lost is asked for again"
        manager = scene.fleet.scene.identities
        peer = manager.identify(fingerprint_of(scene.record().certificate_pem.encode()))
        issued = await manager.renew(peer, csr, 1)
        await identity.take_renewal(
            Renewed(certificate_pem=issued.certificate_pem.decode(), ca_bundle_pem="", generation=issued.generation)
        )
        assert identity.generation == 2 == scene.record().generation and scene.record().pending_key_pem is None
        assert identity.key().key_id != before
        verifier = P256Verifier.from_certificate(identity.credentials().certificate_pem.encode())
        verifier.verify(b"x", identity.key().sign(b"x"))
        assert verifier.key_id == identity.key().key_id and identity.credentials().ca_bundle_pem
        await identity.trust("another bundle")
        assert scene.record().ca_bundle_pem == "another bundle"


def test_without_a_pairing_there_is_no_identity(tmp_path: Path) -> None:
    folder = PairingFolder(StateDir.open(tmp_path / "w"), "worker")
    with pytest.raises(NotPaired):
        HeldIdentity(folder, DeviceRecord(device_name="x", servers=()))
