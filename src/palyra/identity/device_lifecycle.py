"""The changes of a device inside one transaction: first certificate, renewal, first use, revocation.

Each method decides by the database's present state, changes it, and appends the journal entry.
"""

import msgspec

from palyra.identity.authorities import Authorities
from palyra.identity.certificate import device_profile, fingerprint_of
from palyra.identity.device import (
    TRANSITIONS,
    AlreadyIssued,
    CertificateExpired,
    DeviceEvent,
    DeviceId,
    DeviceKind,
    DeviceState,
    IdentityTampered,
    RenewalVerdict,
    SpiffeId,
    TooManyCertificates,
    TooManyDevices,
    UnknownCertificate,
    UnknownDevice,
    actor_of,
    find_device_refusal,
    judge_renewal,
)
from palyra.identity.limits import MAX_DEVICES, MAX_LIVE_CERTIFICATES
from palyra.identity.records import CertificateRow, DeviceRow, PeerIdentity
from palyra.identity.tables import IdentityTables
from palyra.identity.x509 import key_sha256
from palyra.store.event import NewEvent
from palyra.store.port import Transaction


class DeviceChange:
    """One unit of work at one instant. It raises ``KeyNeeded`` if it needs an authority that is not open yet."""

    def __init__(self, tx: Transaction, authorities: Authorities, *, now_ms: int) -> None:
        self._tx = tx
        self._tables = IdentityTables(tx)
        self._authorities = authorities
        self._now_ms = now_ms

    def first_certificate(
        self, kind: DeviceKind, device_id: DeviceId, public_key: bytes, *, life_ms: int, actor: str
    ) -> CertificateRow:
        device = self._tables.device(device_id)
        if device is not None:
            return self._first_again(device, kind, key_sha256(public_key))
        if self._tables.count_active() >= MAX_DEVICES:
            raise TooManyDevices(f"there are already {MAX_DEVICES} devices")
        device = DeviceRow(
            device_id=device_id,
            kind=kind,
            state=DeviceState.ACTIVE,
            generation=0,
            used_generation=0,
            reason="",
            created_ms=self._now_ms,
            changed_ms=self._now_ms,
        )
        return self._sign_next(device, public_key, life_ms, actor)

    def next_certificate(
        self, peer: PeerIdentity, public_key: bytes, presented: int, *, life_ms: int
    ) -> CertificateRow | None:
        """Renew. The result is None if the generation was stale: the device is then locked, which must be committed."""
        device, held = self._active(peer)
        self._require_current(held)
        newest = self._tables.certificate(device.device_id, device.generation)
        if newest is None:
            raise IdentityTampered(f"the newest certificate of {device.device_id} is gone", device_id=device.device_id)
        key, actor = key_sha256(public_key), actor_of(peer.kind, peer.device_id)
        verdict = judge_renewal(
            presented=presented,
            newest=device.generation,
            newest_used=device.used_generation >= device.generation,
            requested_key=key,
            newest_key=newest.key_sha256,
        )
        if verdict is RenewalVerdict.NEXT:
            return self._sign_next(device, public_key, life_ms, actor)
        if verdict is RenewalVerdict.AGAIN:
            return self._require_current(newest)
        reason = f"generation {presented} was presented after {device.generation} had been issued"
        evidence = {"presented": presented, "fingerprint": peer.fingerprint, "key_sha256": key, "reason": reason}
        event = NewEvent(kind="identity.device_locked", actor=actor, payload={**_describe(device), **evidence})
        self._end(device, DeviceEvent.LOCK, reason, event)
        return None

    def first_use(self, peer: PeerIdentity) -> None:
        device, _ = self._active(peer)
        if device.used_generation >= peer.generation:
            return
        used = msgspec.structs.replace(device, used_generation=peer.generation, changed_ms=self._now_ms)
        self._tables.put_device(used)
        payload = {**_describe(device), "generation": peer.generation, "fingerprint": peer.fingerprint}
        actor = actor_of(peer.kind, peer.device_id)
        self._tx.append(NewEvent(kind="identity.certificate_used", actor=actor, payload=payload))

    def revoke(self, device_id: DeviceId, *, reason: str, actor: str) -> None:
        device = self._tables.device(device_id)
        if device is None:
            raise UnknownDevice(f"there is no device {device_id}", device_id=device_id)
        event = NewEvent(kind="identity.device_revoked", actor=actor, payload={**_describe(device), "reason": reason})
        self._end(device, DeviceEvent.REVOKE, reason, event)

    def _first_again(self, device: DeviceRow, kind: DeviceKind, key: str) -> CertificateRow:
        """Return the first certificate again, for the key that got it and has no newer one."""
        refused = find_device_refusal(device.state, device.device_id)
        if refused is not None:
            raise refused
        first = self._tables.certificate(device.device_id, 1)
        if device.generation != 1 or device.kind is not kind or first is None or first.key_sha256 != key:
            raise AlreadyIssued(f"{device.device_id} already has a certificate", device_id=device.device_id)
        return self._require_current(first)

    def _require_current(self, row: CertificateRow) -> CertificateRow:
        if self._now_ms >= row.not_after_ms:
            raise CertificateExpired(f"the certificate of {row.device_id} has ended", device_id=row.device_id)
        return row

    def _active(self, peer: PeerIdentity) -> tuple[DeviceRow, CertificateRow]:
        """Return the peer's device and certificate, if the device is active and the certificate belongs to it."""
        device = self._tables.device(peer.device_id)
        held = self._tables.certificate(peer.device_id, peer.generation)
        if device is None or held is None or held.fingerprint != peer.fingerprint:
            raise UnknownCertificate("no device has this certificate", fingerprint=peer.fingerprint)
        refused = find_device_refusal(device.state, device.device_id)
        if refused is not None:
            raise refused
        return device, held

    def _sign_next(self, device: DeviceRow, public_key: bytes, life_ms: int, actor: str) -> CertificateRow:
        authority = self._authorities.current(self._tables)
        left = self._tables.drop_ended_certificates(device.device_id, below=device.generation, now_ms=self._now_ms)
        if left >= MAX_LIVE_CERTIFICATES:
            raise TooManyCertificates(f"{device.device_id} already has {left} certificates", device_id=device.device_id)
        profile = device_profile(
            SpiffeId(self._authorities.trust_domain, device.kind, device.device_id),
            now_ms=self._now_ms,
            life_ms=life_ms,
            authority_ends_ms=authority.row.not_after_ms,
        )
        der = authority.signer.sign(profile, public_key)
        row = CertificateRow(
            fingerprint=fingerprint_of(der),
            device_id=device.device_id,
            generation=device.generation + 1,
            key_sha256=key_sha256(public_key),
            authority_id=authority.row.authority_id,
            certificate_der=der,
            not_before_ms=profile.not_before_ms,
            not_after_ms=profile.not_after_ms,
        )
        renewed = msgspec.structs.replace(device, generation=row.generation, changed_ms=self._now_ms)
        self._tables.add_certificate(row)
        self._tables.put_device(renewed)
        payload = {
            **_describe(renewed),
            "fingerprint": row.fingerprint,
            "key_sha256": row.key_sha256,
            "authority_id": row.authority_id,
            "not_after_ms": row.not_after_ms,
        }
        kind = "identity.certificate_renewed" if device.generation else "identity.certificate_issued"
        self._tx.append(NewEvent(kind=kind, actor=actor, payload=payload))
        return row

    def _end(self, device: DeviceRow, event: DeviceEvent, reason: str, entry: NewEvent) -> None:
        state = TRANSITIONS.get((device.state, event))
        if state is not None:
            ended = msgspec.structs.replace(device, state=state, reason=reason, changed_ms=self._now_ms)
            self._tables.put_device(ended)
            self._tx.append(entry)


def _describe(device: DeviceRow) -> dict[str, str | int]:
    return {"device_id": device.device_id, "kind": device.kind.value, "generation": device.generation}
