"""Every device and certificate in memory, brought up to date by the number of the newest change."""

import msgspec

from palyra.identity.device import DeviceId
from palyra.identity.ports import Reader
from palyra.identity.records import DeviceRow, PeerIdentity
from palyra.identity.revocation import DeviceState
from palyra.identity.sqlite_identity import changed_since, revision_of


class KnownPeer(msgspec.Struct, frozen=True):
    peer: PeerIdentity
    device: DeviceRow


class KnownDevices:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._devices: dict[DeviceId, DeviceRow] = {}
        self._peers: dict[str, KnownPeer] = {}
        self._fingerprints: dict[DeviceId, tuple[str, ...]] = {}
        self.revision = 0

    def find(self, fingerprint: str) -> KnownPeer | None:
        return self._peers.get(fingerprint)

    def device(self, device_id: str) -> DeviceRow | None:
        return self._devices.get(DeviceId(device_id))

    def refresh(self) -> list[DeviceRow]:
        """Reads what has changed, whoever changed it. Returns the devices that were let in before and are not now."""
        revision = revision_of(self._reader)
        if revision == self.revision:
            return []
        devices, certificates = changed_since(self._reader, self.revision)
        ended = []
        changed = {device.device_id for device in devices}
        for device in devices:
            before = self._devices.get(device.device_id)
            if before is not None and before.state is DeviceState.ACTIVE and device.state is not DeviceState.ACTIVE:
                ended.append(device)
            self._devices[device.device_id] = device
            for fingerprint in self._fingerprints.pop(device.device_id, ()):
                del self._peers[fingerprint]
        for certificate in certificates:
            if certificate.device_id not in changed:
                # Its device changed between the two reads: found by the next.
                continue
            owner = self._devices[DeviceId(certificate.device_id)]
            peer = PeerIdentity(
                device_id=owner.device_id,
                kind=owner.kind,
                fingerprint=certificate.fingerprint,
                generation=certificate.generation,
                not_after_ms=certificate.not_after_ms,
            )
            self._peers[certificate.fingerprint] = KnownPeer(peer, owner)
            held = self._fingerprints.get(owner.device_id, ())
            self._fingerprints[owner.device_id] = (*held, certificate.fingerprint)
        self.revision = revision
        return ended
