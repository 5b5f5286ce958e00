"""``IdentityManager``: issues, renews and revokes certificates, and identifies devices by them.

Every change is one transaction of the shared store, together with its journal entry. It decides by the database's
present state, so several processes may issue, renew and revoke at once. ``identify``, which runs for every message of
a connection, reads memory.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import PalyraError
from palyra.identity.authorities import Authorities, KeyNeeded, ServerCertificates
from palyra.identity.certificate import pem_of
from palyra.identity.device import (
    AuthorityUnavailable,
    CertificateSuperseded,
    DeviceId,
    DeviceKind,
    DeviceState,
    GenerationAhead,
    StaleGeneration,
    UnknownCertificate,
    UnknownDevice,
    find_certificate_refusal,
    find_device_refusal,
    renewal_due_ms,
)
from palyra.identity.device_lifecycle import DeviceChange
from palyra.identity.limits import MAX_KEY_TURNS, MAX_REASON_CHARS, RECHECK_SECONDS, TEND_SECONDS
from palyra.identity.records import (
    AuthorityView,
    CertificateRow,
    DeviceIdentity,
    DeviceRow,
    IssuedCertificate,
    PeerIdentity,
    ServerCertificate,
)
from palyra.identity.tables import (
    certificate_in_use,
    changed_since,
    list_authorities,
    list_devices,
    revision_of,
    trust_domain_of,
)
from palyra.identity.x509 import read_requested_key
from palyra.store.port import Reader, Store

# All devices and certificates in memory, refreshed by the number of the newest change.


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
        """Read the changes of all processes. Return the devices that were active before and are not now."""
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
                # Its device changed between the two reads. The next refresh finds it.
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


log = logging.getLogger("palyra.identity")

T = TypeVar("T")
Ended = Callable[[DeviceId, str], None]


class IdentityManager:
    """Use it on one event loop. Only ``server_certificate`` and ``ca_bundle_pem`` are safe on other threads.

    ``on_ended`` callbacks get the id of a device that is no longer accepted, and the error code, so that listeners cut
    its connections. They run for changes of other processes too, while ``keep`` runs or ``identify`` is called.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        authorities: Authorities,
        certificate_seconds: int,
        server_names: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._authorities = authorities
        self._life_ms = certificate_seconds * MS_PER_SECOND
        self._known = KnownDevices(store)
        self._server = ServerCertificates(authorities, clock=clock, life_ms=self._life_ms, names=server_names)
        self._recheck_at = float("-inf")
        self._opened_revision = 0
        self.on_ended: list[Ended] = []

    async def open(self) -> None:
        """Load the authorities' keys, and make the first authority if none exists. Call it before other methods."""
        await self._authorities.open()

    @property
    def trust_domain(self) -> str:
        return self._authorities.trust_domain

    def ca_bundle_pem(self) -> bytes:
        return self._authorities.bundle_pem()

    def ca_hash(self) -> str:
        """Return the SHA-256 of the authority that signs, as hex."""
        return self._authorities.in_force()[0].row.authority_id

    def server_certificate(self) -> ServerCertificate:
        return self._server.current()

    def name_server(self, names: Sequence[str]) -> None:
        """Set the names and addresses that devices dial, besides ``palyra``."""
        self._server.set_names(names)

    async def issue(self, kind: DeviceKind, device_id: DeviceId, csr_der: bytes, *, actor: str) -> IssuedCertificate:
        """Issue a device's first certificate. The same key gets the same answer again, another key is refused."""
        public_key = await asyncio.to_thread(read_requested_key, csr_der)

        def work(change: DeviceChange) -> CertificateRow:
            return change.first_certificate(kind, device_id, public_key, life_ms=self._life_ms, actor=actor)

        return await self._answer(kind, await self._run(work))

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate:
        """Issue a device's next certificate, or repeat the last one if its answer was lost.

        A stale generation locks the device, because two parties then hold its key.
        """
        if generation > peer.generation:
            raise GenerationAhead(f"generation {generation} asks over a connection of generation {peer.generation}")
        public_key = await asyncio.to_thread(read_requested_key, csr_der)

        def work(change: DeviceChange) -> CertificateRow | None:
            return change.next_certificate(peer, public_key, generation, life_ms=self._life_ms)

        row = await self._run(work)
        if row is None:
            raise StaleGeneration(
                f"generation {generation} of {peer.device_id} is stale; the device is locked", device_id=peer.device_id
            )
        return await self._answer(peer.kind, row)

    def identify(self, fingerprint: str) -> PeerIdentity:
        """Return the device of a certificate that is good now.

        This reads memory. It looks for changes of other processes at most every ``RECHECK_SECONDS``.
        """
        if self._clock.monotonic() >= self._recheck_at:
            self._refresh()
        known = self._known.find(fingerprint)
        if known is None:
            # Another process may have issued it a moment ago.
            self._refresh()
            known = self._known.find(fingerprint)
            if known is None:
                raise UnknownCertificate("no device has this certificate", fingerprint=fingerprint)
        device = known.device
        refused = find_certificate_refusal(
            state=device.state,
            device_id=device.device_id,
            generation=known.peer.generation,
            used_generation=device.used_generation,
            not_after_ms=known.peer.not_after_ms,
            now_ms=self._clock.now_ms(),
        )
        if refused is not None:
            raise refused
        return known.peer

    def identify_for_renewal(self, fingerprint: str) -> PeerIdentity:
        """Identify, but accept a superseded certificate: with it, ``renew`` detects the copied key and locks."""
        try:
            return self.identify(fingerprint)
        except CertificateSuperseded:
            known = self._known.find(fingerprint)
            if known is None:
                raise
            return known.peer

    async def used(self, peer: PeerIdentity) -> None:
        """Note that a connection uses this certificate, which ends the older ones of its device."""
        device = self._known.device(peer.device_id)
        if device is not None and device.used_generation >= peer.generation:
            return
        await self._run(lambda change: change.first_use(peer))

    async def revoke(self, device_id: DeviceId, *, reason: str, actor: str) -> None:
        """End a device for good. A second call changes nothing."""
        why = reason[:MAX_REASON_CHARS]
        await self._run(lambda change: change.revoke(device_id, reason=why, actor=actor))

    async def rotate_authority(self, *, actor: str) -> None:
        """Make a new authority, which signs. The old one is trusted until its last certificate has ended."""
        await self._authorities.rotate(actor=actor)

    def devices(self) -> list[DeviceIdentity]:
        return list_devices(self._store)

    def device(self, device_id: DeviceId) -> DeviceIdentity:
        found = list_devices(self._store, device_id)
        if not found:
            raise UnknownDevice(f"there is no device {device_id}", device_id=device_id)
        return found[0]

    def certificate_in_use(self, device_id: str, kind: DeviceKind) -> bytes | None:
        """Return the certificate, in PEM, that an active device last connected with, or None.

        For a device that has not connected yet it is the first one.
        """
        der = certificate_in_use(self._store, device_id, kind)
        return None if der is None else pem_of(der)

    def authorities(self) -> list[AuthorityView]:
        """List the authorities, newest first, with retired ones. The list is empty before the first use."""
        return list_authorities(self._store)

    def known_trust_domain(self) -> str:
        """Read the trust domain from the store. It is empty before the first use."""
        return trust_domain_of(self._store) or ""

    async def tend(self, *, actor: str) -> None:
        self._refresh()
        if self._known.revision != self._opened_revision:
            await self._authorities.open()
            self._opened_revision = self._known.revision
        in_force = self._authorities.in_force()
        now_ms = self._clock.now_ms()
        if len(in_force) > 1:
            await self._authorities.retire_due(actor=actor)
        elif now_ms >= renewal_due_ms(in_force[0].row.not_before_ms, in_force[0].row.not_after_ms):
            await self._authorities.rotate(actor=actor)

    async def keep(self, *, actor: str) -> None:
        """Follow the changes of other processes, retire and replace authorities, until cancelled."""
        await self.open()
        while True:
            try:
                await self.tend(actor=actor)
            except PalyraError as error:
                log.warning("identity could not be tended: %s (%s); will try again", error.message, error.code)
            await asyncio.sleep(TEND_SECONDS)

    async def _run(self, work: Callable[[DeviceChange], T]) -> T:
        """Run the work. Open the authority it needs and repeat it, if necessary."""
        now_ms = self._clock.now_ms()
        for _ in range(MAX_KEY_TURNS):
            try:
                done = await self._store.transact(lambda tx: work(DeviceChange(tx, self._authorities, now_ms=now_ms)))
            except KeyNeeded:
                await self._authorities.open()
                continue
            self._refresh()
            return done
        raise AuthorityUnavailable("the authority changes faster than it can be opened")

    def _refresh(self) -> None:
        self._recheck_at = self._clock.monotonic() + RECHECK_SECONDS
        for device in self._known.refresh():
            refusal = find_device_refusal(device.state, device.device_id)
            for tell in self.on_ended:
                try:
                    tell(device.device_id, "" if refusal is None else refusal.code)
                except Exception:
                    # The other callbacks must run all the same.
                    log.exception("a callback failed for the ended device %s", device.device_id)

    async def _answer(self, kind: DeviceKind, row: CertificateRow) -> IssuedCertificate:
        if not self._authorities.is_open:
            # A repeated answer needs no signer, so no authority was opened.
            await self._authorities.open()
        return IssuedCertificate(
            device_id=row.device_id,
            kind=kind,
            certificate_pem=pem_of(row.certificate_der),
            ca_bundle_pem=self.ca_bundle_pem(),
            generation=row.generation,
            fingerprint=row.fingerprint,
            not_before_ms=row.not_before_ms,
            not_after_ms=row.not_after_ms,
        )
