"""The certificate authorities of this installation: made, opened, replaced and retired, with their keys in memory.

Keys are loaded outside of transactions, because that may need a person or a slow derivation. A row counts only once
its sealed key has opened. So a writer of the database can neither add an authority nor exchange one.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from palyra.clock import Clock
from palyra.errors import PalyraError
from palyra.identity.certificate import (
    CertificateProfile,
    authority_profile,
    fingerprint_of,
    pem_of,
    server_names,
    server_profile,
)
from palyra.identity.device import (
    AuthorityUnavailable,
    IdentityTampered,
    NoAuthority,
    NotOpened,
    RotationRunning,
    new_trust_domain,
    renewal_due_ms,
)
from palyra.identity.limits import MAX_KEY_TURNS
from palyra.identity.records import (
    TRANSITIONS,
    AuthorityEvent,
    AuthorityRow,
    AuthorityState,
    ServerCertificate,
    authority_id_of,
    open_key,
    seal_key,
)
from palyra.identity.tables import IdentityTables, trust_domain_of
from palyra.identity.x509 import CertificateSigner, create_authority, create_key
from palyra.ids import Ulid
from palyra.secret import Secret
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction
from palyra.vault.envelope import AesGcm
from palyra.vault.key_source import KeyEncryptionKey, KeyMissing, KeyRecord, KeySource


class KeyNeeded(Exception):
    """The work needs an authority that this process has not opened. It is rolled back, and repeated after ``open``."""


class OpenedAuthority(msgspec.Struct, frozen=True, kw_only=True):
    row: AuthorityRow
    signer: CertificateSigner


@dataclass(eq=False, repr=False, kw_only=True)
class Authorities:
    """``sources`` are the places that may hold key-encryption keys, ``source`` the kind of place for new ones."""

    store: Store
    clock: Clock
    aead: AesGcm
    random: Callable[[int], bytes]
    sources: Mapping[str, KeySource]
    source: str
    actor: str

    def __post_init__(self) -> None:
        self._trust_domain: str | None = None
        self._in_force: tuple[OpenedAuthority, ...] = ()
        self._opening = asyncio.Lock()
        self._recorded: set[str] = set()

    @property
    def trust_domain(self) -> str:
        if self._trust_domain is None:
            raise NotOpened("the trust domain is not known yet")
        return self._trust_domain

    @property
    def is_open(self) -> bool:
        return bool(self._in_force)

    def in_force(self) -> tuple[OpenedAuthority, ...]:
        """List the authority that signs, then the one it replaced if that is still trusted."""
        if not self._in_force:
            raise NotOpened("no authority is open yet")
        return self._in_force

    def bundle_pem(self) -> bytes:
        return b"".join(pem_of(opened.row.certificate_der) for opened in self.in_force())

    def current(self, tables: IdentityTables) -> OpenedAuthority:
        """Return the authority that signs, by the database. Raise ``KeyNeeded`` if it is not open."""
        rows = tables.authorities()
        opened = self._in_force[0] if self._in_force else None
        if not rows or opened is None or rows[0].authority_id != opened.row.authority_id:
            raise KeyNeeded
        return opened

    async def open(self) -> None:
        """Make the first authority if none exists, and open those in force. Cheap if nothing has changed."""
        async with self._opening:
            for _ in range(MAX_KEY_TURNS):
                try:
                    found = await self.store.transact(_look)
                    if found is None:
                        await self._create()
                        continue
                    self._trust_domain, stored = found
                    self._in_force = tuple([await self._opened(row, record) for row, record in stored])
                except IdentityTampered as error:
                    await self._record_tampering(error)
                    raise
                return
            raise AuthorityUnavailable("the authorities could not be opened")

    async def rotate(self, *, actor: str) -> AuthorityRow:
        """Make a new authority, which now signs. The old one is trusted until its last certificate has ended."""
        if trust_domain_of(self.store) is None:
            raise NoAuthority("there is no authority yet")
        await self.retire_due(actor=actor)
        await self.open()
        if len(self.in_force()) > 1:
            raise _running(self.in_force()[1].row)
        record, key = await asyncio.to_thread(self._place(self.source).create, ())
        now_ms = self.clock.now_ms()

        def work(tx: Transaction) -> AuthorityRow:
            tables = IdentityTables(tx)
            before = self.current(tables)
            outgoing = tables.authorities()[1:]
            if outgoing:
                raise _running(outgoing[0])
            row = self._new_row(self.trust_domain, record, key, now_ms, before)
            tables.put_key(record)
            tables.set_authority_state(
                before.row.authority_id, TRANSITIONS[AuthorityState.CURRENT, AuthorityEvent.REPLACE]
            )
            tables.add_authority(row)
            tables.next_revision()
            tx.append(_event("identity.authority_rotated", actor, row, previous=before.row.authority_id))
            return row

        try:
            made = await self.store.transact(work)
        except KeyNeeded:
            await self._forget(record)
            raise AuthorityUnavailable("another process replaced the authority meanwhile") from None
        except BaseException:
            await self._forget(record)
            raise
        await self.open()
        await self.retire_due(actor=actor)
        return made

    async def retire_due(self, *, actor: str) -> list[str]:
        """Retire each authority that issued no certificate still in use, and destroy its key."""
        now_ms = self.clock.now_ms()

        def work(tx: Transaction) -> tuple[list[str], list[KeyRecord]]:
            tables = IdentityTables(tx)
            retired: list[str] = []
            for row in tables.authorities():
                after = TRANSITIONS.get((row.state, AuthorityEvent.RETIRE))
                if after is None or tables.needed_until_ms(row.authority_id) > now_ms:
                    continue
                tables.set_authority_state(row.authority_id, after)
                tables.destroy_authority_key(row.authority_id)
                tables.next_revision()
                tx.append(_event("identity.authority_retired", actor, row))
                retired.append(row.authority_id)
            return retired, tables.drop_unused_keys() if retired else []

        retired, unused = await self.store.transact(work)
        for record in unused:
            await self._forget(record)
        if retired:
            await self.open()
        return retired

    async def _create(self) -> None:
        record, key = await asyncio.to_thread(self._place(self.source).create, ())
        trust_domain, now_ms = new_trust_domain(), self.clock.now_ms()

        def work(tx: Transaction) -> bool:
            tables = IdentityTables(tx)
            if tables.trust_domain() is not None:
                return False
            row = self._new_row(trust_domain, record, key, now_ms, None)
            tables.create(trust_domain)
            tables.put_key(record)
            tables.add_authority(row)
            tx.append(
                _event(
                    "identity.authority_created", self.actor, row, trust_domain=trust_domain, key_source=record.source
                )
            )
            return True

        if not await self.store.transact(work):
            # Another process made the first authority, with a key of its own.
            await self._forget(record)

    def _new_row(
        self, trust_domain: str, record: KeyRecord, key: KeyEncryptionKey, now_ms: int, before: OpenedAuthority | None
    ) -> AuthorityRow:
        profile = authority_profile(str(Ulid.new()), now_ms=now_ms)
        certificate, private = create_authority(profile)
        return AuthorityRow(
            authority_id=authority_id_of(certificate),
            state=AuthorityState.CURRENT,
            certificate_der=certificate,
            cross_der=b"" if before is None else before.signer.cross_sign(_below(profile, before.row), certificate),
            key_id=record.key_id,
            sealed_key=seal_key(
                self.aead,
                self.random,
                key,
                trust_domain=trust_domain,
                certificate_der=certificate,
                private_key=private,
            ),
            created_ms=now_ms,
            not_before_ms=profile.not_before_ms,
            not_after_ms=profile.not_after_ms,
        )

    async def _opened(self, row: AuthorityRow, record: KeyRecord) -> OpenedAuthority:
        for held in self._in_force:
            if held.row.certificate_der == row.certificate_der and held.row.sealed_key == row.sealed_key:
                return OpenedAuthority(row=row, signer=held.signer)
        if authority_id_of(row.certificate_der) != row.authority_id:
            raise IdentityTampered("an authority's certificate is not the one it was made with", id=row.authority_id)
        key = await asyncio.to_thread(self._place(record.source).load, record)
        private = open_key(
            self.aead,
            key,
            trust_domain=self.trust_domain,
            certificate_der=row.certificate_der,
            sealed_key=row.sealed_key,
        )
        return OpenedAuthority(row=row, signer=CertificateSigner(row.certificate_der, private))

    def _place(self, kind: str) -> KeySource:
        source = self.sources.get(kind)
        if source is None:
            raise KeyMissing(f"the key is kept in a place this process does not know: {kind[:32]!r}")
        return source

    async def _forget(self, record: KeyRecord) -> None:
        """Delete a key. An unreachable one stays in its place: nothing is sealed with it."""
        with contextlib.suppress(PalyraError):
            await asyncio.to_thread(self._place(record.source).forget, record)

    async def _record_tampering(self, found: IdentityTampered) -> None:
        """Record each finding once, since every retry finds it again."""
        if found.message in self._recorded:
            return
        self._recorded.add(found.message)
        event = NewEvent(
            kind="identity.tamper_found", actor=self.actor, payload={"found": found.message, **found.details}
        )
        await self.store.transact(lambda tx: tx.append(event))


def _look(tx: Transaction) -> tuple[str, list[tuple[AuthorityRow, KeyRecord]]] | None:
    tables = IdentityTables(tx)
    trust_domain = tables.trust_domain()
    if trust_domain is None:
        return None
    rows = tables.authorities()
    if [row.state for row in rows] not in ([AuthorityState.CURRENT], [AuthorityState.CURRENT, AuthorityState.OUTGOING]):
        raise IdentityTampered("the records of the authorities were changed: one signs, and at most one is outgoing")
    return trust_domain, [(row, tables.key(row.key_id)) for row in rows]


def _below(profile: CertificateProfile, before: AuthorityRow) -> CertificateProfile:
    """Limit the new authority's profile for the old one's signature: to the old one's life, and to leaves only."""
    return msgspec.structs.replace(profile, path_length=0, not_after_ms=min(profile.not_after_ms, before.not_after_ms))


def _running(outgoing: AuthorityRow) -> RotationRunning:
    return RotationRunning("the last rotation is not over: an authority is still outgoing", id=outgoing.authority_id)


def _event(kind: str, actor: str, row: AuthorityRow, **more: str) -> NewEvent:
    shown = {"authority_id": row.authority_id, "key_id": row.key_id, "not_after_ms": row.not_after_ms, **more}
    return NewEvent(kind=kind, actor=actor, payload=shown)


# The certificate that listeners show: made in memory, renewed when due, never stored.


class ServerCertificates:
    """Every handshake calls ``current``, on any thread. It does no I/O."""

    def __init__(self, authorities: Authorities, *, clock: Clock, life_ms: int, names: Sequence[str]) -> None:
        self._authorities = authorities
        self._clock = clock
        self._life_ms = life_ms
        server_names(names)
        self._names = tuple(names)
        self._lock = threading.Lock()
        self._shown: ServerCertificate | None = None

    def set_names(self, names: Sequence[str]) -> None:
        """Set the names of the next certificate. The present one is not shown again."""
        server_names(names)
        with self._lock:
            self._names, self._shown = tuple(names), None

    def current(self) -> ServerCertificate:
        in_force = self._authorities.in_force()
        with self._lock:
            shown, now_ms = self._shown, self._clock.now_ms()
            if (
                shown is None
                or shown.authority_id != in_force[0].row.authority_id
                # The clock was set back: a device with the right time would find the certificate not valid yet.
                or now_ms < shown.not_before_ms
                or now_ms >= renewal_due_ms(shown.not_before_ms, shown.not_after_ms)
            ):
                shown = self._shown = self._made(in_force, now_ms)
            elif len(in_force) == 1 and shown.chain_pem.count(b"BEGIN") > 1:
                # The old authority is retired, so no device needs the chain from it to this one.
                shown = self._shown = self._made(in_force, now_ms)
            return shown

    def _made(self, in_force: Sequence[OpenedAuthority], now_ms: int) -> ServerCertificate:
        authority = in_force[0]
        key_pem, public = create_key()
        profile = server_profile(
            self._names, now_ms=now_ms, life_ms=self._life_ms, authority_ends_ms=authority.row.not_after_ms
        )
        leaf = authority.signer.sign(profile, public)
        # Devices that know only the old authority accept this one by the old one's signature.
        led = authority.row.cross_der if len(in_force) > 1 else b""
        return ServerCertificate(
            key_pem=Secret(key_pem.decode("ascii")),
            chain_pem=pem_of(leaf) + (pem_of(led) if led else b""),
            fingerprint=fingerprint_of(leaf),
            not_before_ms=profile.not_before_ms,
            not_after_ms=profile.not_after_ms,
            authority_id=authority.row.authority_id,
        )
