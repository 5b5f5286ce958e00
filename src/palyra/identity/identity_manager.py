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
from palyra.identity.authorities import Authorities, KeyNeeded
from palyra.identity.certificate_profile import device_profile
from palyra.identity.device import DeviceId, DeviceKind, SpiffeId, actor_of
from palyra.identity.errors import (
    AlreadyIssued,
    AuthorityUnavailable,
    CertificateExpired,
    CertificateSuperseded,
    GenerationAhead,
    StaleGeneration,
    TooManyCertificates,
    TooManyDevices,
    UnknownCertificate,
    UnknownDevice,
)
from palyra.identity.fingerprint import fingerprint_of, pem_of
from palyra.identity.known_devices import KnownDevices
from palyra.identity.limits import (
    MAX_DEVICES,
    MAX_KEY_TURNS,
    MAX_LIVE_CERTIFICATES,
    MAX_REASON_CHARS,
    RECHECK_SECONDS,
    TEND_SECONDS,
)
from palyra.identity.ports import Store, Transaction
from palyra.identity.records import (
    AuthorityView,
    CertificateRow,
    DeviceIdentity,
    DeviceRow,
    IssuedCertificate,
    PeerIdentity,
    ServerCertificate,
)
from palyra.identity.renewal import RenewalVerdict, judge_renewal, renewal_due_ms
from palyra.identity.revocation import DeviceEvent, DeviceState, after, refusal_of_certificate, refusal_of_device
from palyra.identity.server_certificates import ServerCertificates
from palyra.identity.sqlite_identity import IdentityTables, list_authorities, list_devices, trust_domain_of
from palyra.identity.x509 import accepted_key, key_sha256
from palyra.journal.event import NewEvent

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
        now_ms = self._clock.now_ms()

        def work(tx: Transaction) -> CertificateRow:
            tables = IdentityTables(tx)
            device = tables.device(device_id)
            if device is not None:
                return _issued_before(tables, device, kind, key_sha256(public_key), now_ms)
            if tables.count_active() >= MAX_DEVICES:
                raise TooManyDevices(f"there are already {MAX_DEVICES} devices")
            device = DeviceRow(
                device_id=device_id,
                kind=kind,
                state=DeviceState.ACTIVE,
                generation=0,
                used_generation=0,
                reason="",
                created_ms=now_ms,
                changed_ms=now_ms,
            )
            return self._sign_next(tx, device, public_key, now_ms, "identity.certificate_issued", actor)

        return self._answer(kind, await self._run(work))

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate:
        """The next certificate of a device, or the last one again if its answer was lost. Whoever presents a stale
        generation locks the device: then two parties hold its key."""
        public_key = await asyncio.to_thread(accepted_key, csr_der)
        key, now_ms, actor = key_sha256(public_key), self._clock.now_ms(), actor_of(peer.kind, peer.device_id)
        if generation > peer.generation:
            raise GenerationAhead(f"generation {generation} asks over a connection of generation {peer.generation}")

        def work(tx: Transaction) -> CertificateRow | None:
            tables = IdentityTables(tx)
            device = _active(tables, peer)
            newest = tables.certificate(device.device_id, device.generation)
            if now_ms >= peer.not_after_ms or newest is None:
                raise CertificateExpired(f"the certificate of {peer.device_id} has ended", device_id=peer.device_id)
            verdict = judge_renewal(
                presented=generation,
                newest=device.generation,
                newest_used=device.used_generation >= device.generation,
                requested_key=key,
                newest_key=newest.key_sha256,
            )
            if verdict is RenewalVerdict.NEXT:
                return self._sign_next(tx, device, public_key, now_ms, "identity.certificate_renewed", actor)
            if verdict is RenewalVerdict.AGAIN:
                return newest
            reason = f"generation {generation} was presented after {device.generation} had been issued"
            event = NewEvent(
                kind="identity.device_locked",
                actor=actor,
                payload={
                    **_shown(device),
                    "presented": generation,
                    "fingerprint": peer.fingerprint,
                    "key_sha256": key,
                    "reason": reason,
                },
            )
            _end(tx, device, DeviceEvent.LOCK, reason, now_ms, event)
            return None

        row = await self._run(work)
        if row is None:
            raise StaleGeneration(
                f"generation {generation} of {peer.device_id} is stale; the device is locked", device_id=peer.device_id
            )
        return self._answer(peer.kind, row)

    def identify(self, fingerprint: str) -> PeerIdentity:
        """Who a certificate belongs to, if it is good now. From memory; looks for other processes' changes at most
        every ``RECHECK_SECONDS``."""
        if self._clock.monotonic() >= self._recheck_at:
            self._freshen()
        known = self._known.find(fingerprint)
        if known is None:
            # Another process may have issued it a moment ago.
            self._freshen()
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
        now_ms = self._clock.now_ms()

        def work(tx: Transaction) -> None:
            tables = IdentityTables(tx)
            device = _active(tables, peer)
            if device.used_generation < peer.generation:
                tables.put_device(msgspec.structs.replace(device, used_generation=peer.generation, changed_ms=now_ms))
                payload = {
                    "device_id": device.device_id,
                    "kind": device.kind.value,
                    "generation": peer.generation,
                    "fingerprint": peer.fingerprint,
                }
                tx.append(
                    NewEvent(
                        kind="identity.certificate_used", actor=actor_of(peer.kind, peer.device_id), payload=payload
                    )
                )

        await self._run(work)

    async def revoke(self, device_id: DeviceId, *, reason: str, actor: str) -> None:
        """Ends a device for good. Done again, it changes nothing."""
        now_ms, why = self._clock.now_ms(), reason[:MAX_REASON_CHARS]

        def work(tx: Transaction) -> None:
            device = IdentityTables(tx).device(device_id)
            if device is None:
                raise UnknownDevice(f"there is no device {device_id}", device_id=device_id)
            event = NewEvent(kind="identity.device_revoked", actor=actor, payload={**_shown(device), "reason": why})
            _end(tx, device, DeviceEvent.REVOKE, why, now_ms, event)

        await self._run(work)

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

    def authorities(self) -> list[AuthorityView]:
        """The newest first, retired ones included. None before the first use."""
        return list_authorities(self._store)

    def known_trust_domain(self) -> str:
        """As ``trust_domain``, but read from the store: empty before the first use."""
        return trust_domain_of(self._store) or ""

    async def tend(self, *, actor: str) -> None:
        """One turn of ``keep``."""
        self._freshen()
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

    async def _run(self, work: Callable[[Transaction], T]) -> T:
        """The work's result, after opening the authority it turned out to need."""
        for _ in range(MAX_KEY_TURNS):
            try:
                done = await self._store.transact(work)
            except KeyNeeded:
                await self._authorities.open()
                continue
            self._freshen()
            return done
        raise AuthorityUnavailable("the authority changes faster than it can be opened")

    def _freshen(self) -> None:
        self._recheck_at = self._clock.monotonic() + RECHECK_SECONDS
        for device in self._known.refresh():
            refusal = refusal_of_device(device.state, device.device_id)
            for told in self.on_ended:
                told(device.device_id, "" if refusal is None else refusal.code)

    def _sign_next(
        self, tx: Transaction, device: DeviceRow, public_key: bytes, now_ms: int, kind: str, actor: str
    ) -> CertificateRow:
        tables = IdentityTables(tx)
        authority = self._authorities.current(tables)
        generation = device.generation + 1
        left = tables.drop_ended_certificates(device.device_id, below=device.generation, now_ms=now_ms)
        if left >= MAX_LIVE_CERTIFICATES:
            raise TooManyCertificates(f"{device.device_id} already has {left} certificates", device_id=device.device_id)
        profile = device_profile(
            SpiffeId(self.trust_domain, device.kind, device.device_id),
            now_ms=now_ms,
            life_ms=self._life_ms,
            authority_ends_ms=authority.row.not_after_ms,
        )
        der = authority.signer.sign(profile, public_key)
        row = CertificateRow(
            fingerprint=fingerprint_of(der),
            device_id=device.device_id,
            generation=generation,
            key_sha256=key_sha256(public_key),
            authority_id=authority.row.authority_id,
            certificate_der=der,
            not_before_ms=profile.not_before_ms,
            not_after_ms=profile.not_after_ms,
        )
        next_device = msgspec.structs.replace(device, generation=generation, changed_ms=now_ms)
        tables.add_certificate(row)
        tables.put_device(next_device)
        payload = {
            **_shown(next_device),
            "fingerprint": row.fingerprint,
            "key_sha256": row.key_sha256,
            "authority_id": row.authority_id,
            "not_after_ms": row.not_after_ms,
        }
        tx.append(NewEvent(kind=kind, actor=actor, payload=payload))
        return row

    def _answer(self, kind: DeviceKind, row: CertificateRow) -> IssuedCertificate:
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


def _issued_before(
    tables: IdentityTables, device: DeviceRow, kind: DeviceKind, key: str, now_ms: int
) -> CertificateRow:
    """The first certificate once more, for the key that got it and has nothing newer."""
    refused = refusal_of_device(device.state, device.device_id)
    if refused is not None:
        raise refused
    first = tables.certificate(device.device_id, 1)
    if device.generation != 1 or device.kind is not kind or first is None or first.key_sha256 != key:
        raise AlreadyIssued(f"{device.device_id} already has a certificate", device_id=device.device_id)
    if now_ms >= first.not_after_ms:
        raise CertificateExpired(f"the certificate of {device.device_id} has ended", device_id=device.device_id)
    return first


def _active(tables: IdentityTables, peer: PeerIdentity) -> DeviceRow:
    """The peer's device, if it is let in and the certificate is its own."""
    device = tables.device(peer.device_id)
    held = tables.certificate(peer.device_id, peer.generation)
    if device is None or held is None or held.fingerprint != peer.fingerprint:
        raise UnknownCertificate("no device has this certificate", fingerprint=peer.fingerprint)
    refused = refusal_of_device(device.state, device.device_id)
    if refused is not None:
        raise refused
    return device


def _end(tx: Transaction, device: DeviceRow, event: DeviceEvent, reason: str, now_ms: int, entry: NewEvent) -> None:
    state = after(device.state, event)
    if state is not None:
        ended = msgspec.structs.replace(device, state=state, reason=reason, changed_ms=now_ms)
        IdentityTables(tx).put_device(ended)
        tx.append(entry)


def _shown(device: DeviceRow) -> dict[str, str | int]:
    return {"device_id": device.device_id, "kind": device.kind.value, "generation": device.generation}
