"""``IdentityManager``: who a certificate belongs to, and the certificates themselves from the first to the last.

Every change is one transaction of the shared store, together with its journal entry, and decides by what the database
says then: several processes may issue, renew and revoke at once. What is asked on every message of a connection
(``identify``) is answered from memory.
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
    refusal_of_certificate,
    refusal_of_device,
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
from palyra.identity.x509 import accepted_key
from palyra.store.port import Reader, Store

# Every device and certificate in memory, brought up to date by the number of the newest change.


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


log = logging.getLogger("palyra.identity")

T = TypeVar("T")
Ended = Callable[[DeviceId, str], None]


class IdentityManager:
    """Use it on one event loop; only ``server_certificate`` and ``ca_bundle_pem`` may be asked from other threads.

    ``on_ended`` are told the id of a device that is no longer let in, and the code why: whoever holds its connections
    cuts them. They are told whichever process ended it, as long as ``keep`` runs or anybody asks ``identify``.
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
        """Before the first use of what needs an authority: makes one if there is none, and loads its key."""
        await self._authorities.open()

    @property
    def trust_domain(self) -> str:
        return self._authorities.trust_domain

    def ca_bundle_pem(self) -> bytes:
        return self._authorities.bundle_pem()

    def ca_hash(self) -> str:
        """SHA-256 of the authority that signs, as hex."""
        return self._authorities.in_force()[0].row.authority_id

    def server_certificate(self) -> ServerCertificate:
        return self._server.current()

    def name_server(self, names: Sequence[str]) -> None:
        """The names and addresses that devices dial, besides ``palyra``."""
        self._server.set_names(names)

    async def issue(self, kind: DeviceKind, device_id: DeviceId, csr_der: bytes, *, actor: str) -> IssuedCertificate:
        """The first certificate of a device. The same key again gets the same answer, another key is refused."""
        public_key = await asyncio.to_thread(accepted_key, csr_der)

        def work(change: DeviceChange) -> CertificateRow:
            return change.first_certificate(kind, device_id, public_key, life_ms=self._life_ms, actor=actor)

        return await self._answer(kind, await self._run(work))

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate:
        """The next certificate of a device, or the last one again if its answer was lost. Whoever presents a stale
        generation locks the device: then two parties hold its key."""
        if generation > peer.generation:
            raise GenerationAhead(f"generation {generation} asks over a connection of generation {peer.generation}")
        public_key = await asyncio.to_thread(accepted_key, csr_der)

        def work(change: DeviceChange) -> CertificateRow | None:
            return change.next_certificate(peer, public_key, generation, life_ms=self._life_ms)

        row = await self._run(work)
        if row is None:
            raise StaleGeneration(
                f"generation {generation} of {peer.device_id} is stale; the device is locked", device_id=peer.device_id
            )
        return await self._answer(peer.kind, row)

    def identify(self, fingerprint: str) -> PeerIdentity:
        """Who a certificate belongs to, if it is good now. From memory; looks for other processes' changes at most
        every ``RECHECK_SECONDS``."""
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
        refused = refusal_of_certificate(
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
        """As ``identify``, but a superseded certificate passes: with it, ``renew`` finds the copy and locks."""
        try:
            return self.identify(fingerprint)
        except CertificateSuperseded:
            known = self._known.find(fingerprint)
            if known is None:
                raise
            return known.peer

    async def used(self, peer: PeerIdentity) -> None:
        """A connection was made with this certificate: the older ones of its device are over. Cheap when they are."""
        device = self._known.device(peer.device_id)
        if device is not None and device.used_generation >= peer.generation:
            return
        await self._run(lambda change: change.first_use(peer))

    async def revoke(self, device_id: DeviceId, *, reason: str, actor: str) -> None:
        """Ends a device for good. Done again, it changes nothing."""
        why = reason[:MAX_REASON_CHARS]
        await self._run(lambda change: change.revoke(device_id, reason=why, actor=actor))

    async def rotate_authority(self, *, actor: str) -> None:
        """A new authority signs; the one before is trusted until the last certificate by it has ended."""
        await self._authorities.rotate(actor=actor)

    def devices(self) -> list[DeviceIdentity]:
        return list_devices(self._store)

    def device(self, device_id: DeviceId) -> DeviceIdentity:
        found = list_devices(self._store, device_id)
        if not found:
            raise UnknownDevice(f"there is no device {device_id}", device_id=device_id)
        return found[0]

    def certificate_in_use(self, device_id: str, kind: DeviceKind) -> bytes | None:
        """The certificate, in PEM, that a device of this kind last connected with, or its first before it ever did;
        None unless the device is let in."""
        der = certificate_in_use(self._store, device_id, kind)
        return None if der is None else pem_of(der)

    def authorities(self) -> list[AuthorityView]:
        """The newest first, retired ones included. None before the first use."""
        return list_authorities(self._store)

    def known_trust_domain(self) -> str:
        """As ``trust_domain``, but read from the store: empty before the first use."""
        return trust_domain_of(self._store) or ""

    async def tend(self, *, actor: str) -> None:
        """One turn of ``keep``."""
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
        """Sees what other processes did, retires and replaces authorities. Ends only by being cancelled."""
        await self.open()
        while True:
            try:
                await self.tend(actor=actor)
            except PalyraError as error:
                log.warning("identity could not be tended: %s (%s); will try again", error.message, error.code)
            await asyncio.sleep(TEND_SECONDS)

    async def _run(self, work: Callable[[DeviceChange], T]) -> T:
        """The work's result, after opening the authority it turned out to need."""
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
            refusal = refusal_of_device(device.state, device.device_id)
            for tell in self.on_ended:
                try:
                    tell(device.device_id, "" if refusal is None else refusal.code)
                except Exception:
                    # The others must be told all the same.
                    log.exception("somebody could not be told that %s has ended", device.device_id)

    async def _answer(self, kind: DeviceKind, row: CertificateRow) -> IssuedCertificate:
        if not self._authorities.is_open:
            # An answer given again is signed already.
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
