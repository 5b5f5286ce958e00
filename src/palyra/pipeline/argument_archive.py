"""Keeps the arguments of calls whole and sealed, beside the journal, which has them clipped and redacted by names.

An agent chooses the names and the length of what it writes, so the journal alone would show what the agent likes. Here
only known secret values are replaced.

Arguments are sealed to a public key with AES-256-GCM. Each process that writes makes a key pair of its own (X25519) and
agrees with the public key on a data key, which it drops after a while. The private key is sealed under a key of its own
in the place of the vault's keys, and is opened only to read. So a locked key stops no call and loses no arguments.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import InvalidInput, LimitExceeded, PalyraError, Tampered
from palyra.journal.settings import JournalSettings
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.call import CallRecord, CallRequest
from palyra.pipeline.domain.spec import Arguments
from palyra.pipeline.intake import MAX_QUICK_BYTES, read_refused
from palyra.pipeline.store import argument_tables
from palyra.pipeline.store.argument_tables import ROW_BYTES, ArgumentKey, SealedArguments, StoredArguments
from palyra.signing.dsse import Signer
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction
from palyra.vault.envelope import AesGcm, bind
from palyra.vault.key_source import KeyEncryptionKey, KeyMissing, KeyRecord, KeySource, NewKeyNeeded, VaultTampered
from palyra.vault.limits import NONCE_BYTES, TAG_BYTES

log = logging.getLogger("palyra.gateway")

SEAL_PURPOSE: Final = "palyra.arguments.seal/1"
PRIVATE_PURPOSE: Final = "palyra.arguments.private/1"
SENDER_PURPOSE: Final = "palyra.arguments.sender/1"
KEY_PURPOSE: Final = "palyra.arguments.key/1"
KEY_ID_PREFIX: Final = "arguments:"
KEY_ID_CHARS: Final = 32
# A data key seals so much and lives so long. Random nonces of 96 bits are safe for 2^32 uses of a key.
MAX_SEALS: Final = 2**20
DATA_KEY_SECONDS: Final = 3600.0
# The time between two attempts to make the first key, each of which may ask a keyring.
RETRY_SECONDS: Final = 60.0
MS_PER_DAY: Final = 86_400 * MS_PER_SECOND
# Arguments so young are never dropped to free space: a flood must not wash away what came before it.
SAFE_MS: Final = MS_PER_DAY
# One principal's share of the space within that time.
SHARE: Final = 0.5
# How often the daemon looks for what is due.
LOOK_SECONDS: Final = 60.0
# Batches dropped in one look; the rest waits for the next.
MAX_BATCHES: Final = 64

# Replaces known secrets in text; returns the text and how many parts were replaced.
Redact = Callable[[str], tuple[str, int]]
# Seals the arguments of a call, or returns None if arguments are not kept.
Seal = Callable[[CallRecord, Arguments], Awaitable[SealedArguments | None]]


class ArgumentsNotKept(InvalidInput):
    code = "arguments.not_kept"
    hint = "they are kept for journal.arguments_days; `palyra doctor` says how much is kept, and since when"
    http_status = 404


class ArgumentsMismatch(Tampered):
    code = "arguments.digest_mismatch"
    hint = "somebody changed the database; compare with `palyra journal verify` and a backup"


class ArgumentsFull(LimitExceeded):
    code = "arguments.record_full"
    hint = "call with less: arguments are kept for the record; an operator may raise journal.arguments_bytes"


class OpenedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a call as canonical JSON, which agree with the journal.

    ``redacted`` parts are known secrets. Where there are some, ``argument_digest`` cannot be computed from the text.
    """

    call_id: str
    tool: str
    principal: str
    argument_digest: str
    arguments_json: str
    redacted: int
    kept_ms: int


async def keep_nothing(_record: CallRecord, _arguments: Arguments) -> None:
    return None


async def seal_refused(
    seal: Seal, record: CallRecord, catalog: Catalog, request: CallRequest
) -> tuple[CallRecord, SealedArguments | None]:
    """Seal the arguments of a call that intake refused, if they can be read: they show what was tried."""
    arguments = await read_refused(catalog, request)
    if arguments is None:
        return record, None
    record = msgspec.structs.replace(record, argument_digest=arguments.digest)
    try:
        return record, await seal(record, arguments)
    except LimitExceeded:
        return record, None


class _DataKey(msgspec.Struct, kw_only=True):
    key_id: str
    sender: bytes
    key: bytes
    until: float
    left: int = MAX_SEALS


class ArgumentArchive:
    """The sealed arguments of one store.

    ``sources`` are the places that may hold keys, ``source`` the kind of place for a new one. ``signer`` vouches for
    the public key: a writer of the database could else have arguments sealed to a key of its own.
    """

    def __init__(
        self,
        settings: JournalSettings,
        *,
        store: Store,
        clock: Clock,
        signer: Signer,
        sources: Callable[[], Mapping[str, KeySource]],
        source: str,
        redact: Redact,
        actor: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._signer = signer
        self._sources = sources
        self._source = source
        self._redact = redact
        self._actor = actor
        self._aead = AesGcm()
        self._data_key: _DataKey | None = None
        self._making = asyncio.Lock()
        self._try_again = float("-inf")
        self._reported = ""
        # The bytes of each principal that are too young to be dropped, as far as this process knows.
        self._young: dict[str, int] = {}

    async def seal(self, record: CallRecord, arguments: Arguments) -> SealedArguments | None:
        """Seal the arguments of a call for the transaction that records their digest."""
        if not self._settings.arguments_days:
            return None
        data_key = self._data_key
        if data_key is None or data_key.left <= 0 or data_key.until <= self._clock.monotonic():
            data_key = await self._new_data_key()
            if data_key is None:
                return None
        self._count(record.principal, len(arguments.canonical) + ROW_BYTES)
        if len(arguments.canonical) > MAX_QUICK_BYTES:
            return await asyncio.to_thread(self._seal, data_key, record, arguments)
        return self._seal(data_key, record, arguments)

    def _count(self, principal: str, size: int) -> None:
        young = self._young.get(principal, 0) + size
        if young > self._settings.arguments_bytes * SHARE:
            raise ArgumentsFull(
                f"the arguments of {principal} within a day take {young} bytes, which is its share of the record",
                limit=int(self._settings.arguments_bytes * SHARE),
            )
        self._young[principal] = young

    def _seal(self, data_key: _DataKey, record: CallRecord, arguments: Arguments) -> SealedArguments:
        text, redacted = self._redact(arguments.canonical.decode())
        stored = text.encode() if redacted else arguments.canonical
        data_key.left -= 1
        nonce = os.urandom(NONCE_BYTES)
        bound = _bind_place(record.call_id, record.principal, arguments.digest, data_key.key_id, redacted)
        return SealedArguments(
            call_id=record.call_id,
            principal=record.principal,
            digest=arguments.digest,
            key_id=data_key.key_id,
            sender=data_key.sender,
            sealed=nonce + self._aead.seal(data_key.key, nonce, stored, bound),
            redacted=redacted,
            bytes=len(stored),
            stored_sha256=hashlib.sha256(stored).hexdigest() if redacted else arguments.digest,
        )

    async def prepare(self) -> None:
        """Make the key if there is none, or if the place that had it says that it is lost. Report why if that fails."""
        if not self._settings.arguments_days:
            return
        key = self._trusted_key()
        if key is not None and (lost := await self._find_loss(key)) is not None:
            await self._replace_lost(key, lost)
        await self._new_data_key()

    async def open(self, record: CallRecord, *, actor: str) -> OpenedArguments:
        """Open the arguments of a call, and put on record who read them. Raise if they are not those of the journal."""
        stored = argument_tables.find_arguments(self._store, record.call_id)
        if stored is None:
            raise ArgumentsNotKept(f"the arguments of {record.call_id} are not kept", call_id=record.call_id)
        try:
            text = await self._opened(record, stored)
        except ArgumentsMismatch as found:
            await self._record("journal.arguments_mismatch", actor, record, found=found.message)
            raise
        # Secrets that came to be known since are not shown either.
        shown, redacted = self._redact(text)
        await self._record("journal.arguments_read", actor, record, argument_digest=stored.digest)
        return OpenedArguments(
            call_id=record.call_id,
            tool=record.tool,
            principal=record.principal,
            argument_digest=stored.digest,
            arguments_json=shown,
            redacted=stored.redacted + redacted,
            kept_ms=stored.created_ms,
        )

    async def _opened(self, record: CallRecord, stored: StoredArguments) -> str:
        digest, stored_sha256 = argument_tables.read_recorded_digest(self._store, record)
        key = next((each for each in argument_tables.list_keys(self._store) if each.key_id == stored.key_id), None)
        if key is None or stored.digest != digest:
            raise _mismatch(record)
        private = await self._open_private(key)
        bound = _bind_place(record.call_id, record.principal, digest, stored.key_id, stored.redacted)
        try:
            data_key = _agree_as_reader(private, stored.sender)
            raw = self._aead.open(data_key, stored.sealed[:NONCE_BYTES], stored.sealed[NONCE_BYTES:], bound)
        except (VaultTampered, ValueError):
            raise _mismatch(record) from None
        if not hmac.compare_digest(hashlib.sha256(raw).hexdigest(), stored_sha256):
            raise _mismatch(record)
        return raw.decode()

    async def _record(self, kind: str, actor: str, record: CallRecord, **more: Any) -> None:
        """Record a reading. Not as an event of the call: the agent that made it can follow those."""
        payload = {"call_id": record.call_id, "tool": record.tool, "of": record.principal, **more}
        event = NewEvent(kind=kind, actor=actor, principal=actor, payload=payload)
        await self._store.transact(lambda tx: tx.append(event))

    async def _new_data_key(self) -> _DataKey | None:
        async with self._making:
            held, now = self._data_key, self._clock.monotonic()
            if held is not None and held.left > 0 and held.until > now:
                return held
            key = self._trusted_key()
            if key is None and now >= self._try_again:
                self._try_again = now + RETRY_SECONDS
                key = await self._new_key()
            if key is None:
                return None
            sender, data_key = _agree_as_sender(key.public_key)
            self._data_key = _DataKey(key_id=key.key_id, sender=sender, key=data_key, until=now + DATA_KEY_SECONDS)
            return self._data_key

    def _trusted_key(self) -> ArgumentKey | None:
        """Return the newest key that the daemon's own key vouches for: Ed25519 signs one text one way."""
        for key in argument_tables.list_keys(self._store):
            if hmac.compare_digest(self._signer.sign(_statement(key.key_id, key.public_key)), key.signature):
                return key
        return None

    async def _new_key(self) -> ArgumentKey | None:
        try:
            record, wrapping = await asyncio.to_thread(self._place(self._source).create, ())
        except PalyraError as error:
            await self._report_not_kept(error)
            return None
        private, public = _new_pair()
        key_id = KEY_ID_PREFIX + hashlib.sha256(public).hexdigest()[:KEY_ID_CHARS]
        key = ArgumentKey(
            key_id=key_id,
            public_key=public,
            signature=self._signer.sign(_statement(key_id, public)),
            wrapping_key=wrapping.key_id,
            source=record.source,
            parameters=record.parameters,
            sealed_private=self._wrap(wrapping, key_id, private),
            created_ms=self._clock.now_ms(),
        )
        await self._store.transact(lambda tx: argument_tables.put_key(tx, key))
        return key

    async def rewrap(self, source: str | None) -> None:
        """Seal the private keys under a new key: that of the vault is changed, and the old ones may be taken away.

        A key that is lost already stays as it is.
        """
        keys = argument_tables.list_keys(self._store)
        opened: list[tuple[ArgumentKey, bytes]] = []
        for key in keys:
            with contextlib.suppress(KeyMissing):
                opened.append((key, await self._open_private(key)))
        if not opened:
            return
        before = {key.wrapping_key for key, _ in opened}
        try:
            record, wrapping = await asyncio.to_thread(self._place(source or self._source).create, before)
        except NewKeyNeeded as error:
            # They stay under the newest key that there is, and readable.
            log.warning("the key of kept arguments stays as it is: %s", error.message)
            return
        rewrapped = [
            msgspec.structs.replace(
                key,
                wrapping_key=wrapping.key_id,
                source=record.source,
                parameters=record.parameters,
                sealed_private=self._wrap(wrapping, key.key_id, private),
            )
            for key, private in opened
        ]

        def work(tx: Transaction) -> None:
            for key in rewrapped:
                argument_tables.put_key(tx, key)

        await self._store.transact(work)
        for old in {key.wrapping_key: key for key, _ in opened}.values():
            # In the environment the same key may serve the vault.
            if old.wrapping_key != wrapping.key_id:
                with contextlib.suppress(PalyraError):
                    await asyncio.to_thread(self._place(old.source).forget, _record_of(old))

    def _wrap(self, wrapping: KeyEncryptionKey, key_id: str, private: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        bound = bind(PRIVATE_PURPOSE, key_id, wrapping.key_id)
        return nonce + self._aead.seal(wrapping.reveal(), nonce, private, bound)

    async def _open_private(self, key: ArgumentKey) -> bytes:
        wrapping = await asyncio.to_thread(self._place(key.source).load, _record_of(key))
        if wrapping.key_id != key.wrapping_key:
            raise KeyMissing(f"another key than {key.wrapping_key} was found", key_id=key.wrapping_key)
        sealed, bound = key.sealed_private, bind(PRIVATE_PURPOSE, key.key_id, wrapping.key_id)
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            raise VaultTampered("the sealed key of kept arguments is cut short")
        return self._aead.open(wrapping.reveal(), sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)

    async def _report_not_kept(self, error: PalyraError) -> None:
        """Report once, in the log and the journal, that arguments are not kept and why."""
        if self._reported == error.code:
            return
        self._reported = error.code
        log.warning("the arguments of calls are not kept whole: %s; %s", error.message, error.hint)
        event = NewEvent(
            kind="journal.arguments_not_kept",
            actor=self._actor,
            payload={"code": error.code, "message": error.message, "hint": error.hint},
        )
        await self._store.transact(lambda tx: tx.append(event))

    async def _find_loss(self, key: ArgumentKey) -> PalyraError | None:
        """Return why the key's place does not have it, or None. A locked place is no reason for a new key."""
        try:
            await self._open_private(key)
        except (KeyMissing, VaultTampered) as error:
            return error
        except PalyraError:
            return None
        return None

    async def _replace_lost(self, key: ArgumentKey, lost: PalyraError) -> None:
        log.warning("a new key seals the arguments of calls; earlier ones need the old one: %s", lost.message)
        made = await self._new_key()
        event = NewEvent(
            kind="journal.arguments_key_lost",
            actor=self._actor,
            payload={
                "key_id": key.key_id,
                "new_key_id": "" if made is None else made.key_id,
                "code": lost.code,
                "message": lost.message,
            },
        )
        await self._store.transact(lambda tx: tx.append(event))

    def _place(self, kind: str) -> KeySource:
        source = self._sources().get(kind)
        if source is None:
            raise KeyMissing(f"the key is kept in a place this process does not know: {kind[:32]!r}")
        return source

    async def keep_bounded(self) -> None:
        """Drop what is too old or too much, as long as the daemon runs. Ends only by being cancelled."""
        while True:
            try:
                await self.drop_due()
            except Exception:
                log.exception("old arguments could not be dropped; will try again")
            await asyncio.sleep(LOOK_SECONDS)

    def drop_expired(self) -> None:
        """Drop one batch of what is too old, for a command without a daemon."""
        before_ms = self._clock.now_ms() - self._settings.arguments_days * MS_PER_DAY
        if argument_tables.is_due(self._store, before_ms):
            self._store.transact_blocking(lambda tx: argument_tables.drop_older(tx, before_ms, actor=self._actor))

    async def drop_due(self) -> int:
        """Drop arguments that are too old, then the oldest of who has most while all take too much space."""
        now_ms = self._clock.now_ms()
        expired_ms, safe_ms = now_ms - self._settings.arguments_days * MS_PER_DAY, now_ms - SAFE_MS
        dropped = 0
        for _ in range(MAX_BATCHES):
            if not await asyncio.to_thread(argument_tables.is_due, self._store, expired_ms):
                break
            dropped += await self._store.transact(
                lambda tx: argument_tables.drop_older(tx, expired_ms, actor=self._actor)
            )
        for _ in range(MAX_BATCHES):
            kept = await asyncio.to_thread(argument_tables.measure_arguments, self._store)
            if kept.bytes <= self._settings.arguments_bytes:
                break
            largest = await asyncio.to_thread(argument_tables.find_largest_before, self._store, safe_ms)
            if largest is None:
                break
            dropped += await self._store.transact(
                lambda tx, who=largest: argument_tables.drop_of_principal(  # type: ignore[misc]
                    tx, who, safe_ms, actor=self._actor
                )
            )
        self._young = await asyncio.to_thread(argument_tables.measure_by_principal, self._store, safe_ms)
        return dropped


def _mismatch(record: CallRecord) -> ArgumentsMismatch:
    return ArgumentsMismatch(
        f"the sealed arguments of {record.call_id} do not match the recorded digest", call_id=record.call_id
    )


def _bind_place(call_id: str, principal: str, digest: str, key_id: str, redacted: int) -> bytes:
    """Bind sealed arguments to their call, so that no row can stand in for another."""
    return bind(SEAL_PURPOSE, call_id, principal, digest, key_id, str(redacted))


def _statement(key_id: str, public_key: bytes) -> bytes:
    return bind(KEY_PURPOSE, key_id, public_key.hex())


def _expand(secret: bytes, purpose: bytes) -> bytes:
    """Derive a key of 32 bytes: HKDF with SHA-256 (RFC 5869), without salt, in its one step for that length."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def _record_of(key: ArgumentKey) -> KeyRecord:
    return KeyRecord(key_id=key.wrapping_key, source=key.source, parameters=key.parameters)


def _new_pair() -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def _agree_as_sender(public_key: bytes) -> tuple[bytes, bytes]:
    """Make a key pair for this process. Return its public half, and the data key that the reader can derive from it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    own = X25519PrivateKey.generate()
    sender = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(public_key))
    return sender, _expand(shared, bind(SENDER_PURPOSE, sender.hex(), public_key.hex()))


def _agree_as_reader(private: bytes, sender: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(sender))
    return _expand(shared, bind(SENDER_PURPOSE, sender.hex(), own.public_key().public_bytes_raw().hex()))
