"""A worker's pairing, over the folder that every paired device has."""

import asyncio
from typing import Any

import msgspec

from palyra.nodes.device.device_key import certificate_request, held_certificate, new_key, require_own
from palyra.nodes.device.device_record import DeviceRecord
from palyra.nodes.device.errors import NotPaired
from palyra.nodes.device.pairing_folder import PairingFolder
from palyra.signing.p256 import P256Signer
from palyra.workers.agent.ports import Credentials, Renewed


class WorkerKey:
    """The device's key in the two forms that statements and envelopes are signed with."""

    def __init__(self, pem: bytes) -> None:
        self._signer = P256Signer.from_pem(pem)
        self._key_id = self._signer.verifier().key_id

    @property
    def key_id(self) -> str:
        return self._key_id

    def sign(self, message: bytes) -> bytes:
        return self._signer.sign(message)

    def public_key(self) -> bytes:
        """There is no raw form of such a key: who verifies has it from the certificate."""
        return b""


class HeldIdentity:
    """Every change is on disk before it is used."""

    def __init__(self, folder: PairingFolder, record: DeviceRecord) -> None:
        if not record.paired or record.key_pem is None:
            raise NotPaired("this worker has not joined a daemon")
        self._folder = folder
        self._record = record
        self._held = held_certificate(record.certificate_pem, record.generation)
        self._key = WorkerKey(record.key_pem.reveal().encode())
        self._changing = asyncio.Lock()

    @property
    def worker_id(self) -> str:
        return str.__str__(self._record.device_id)

    @property
    def name(self) -> str:
        return self._record.device_name

    @property
    def servers(self) -> tuple[str, ...]:
        return self._record.servers

    @property
    def generation(self) -> int:
        return self._record.generation

    @property
    def renew_at_ms(self) -> int:
        return self._held.renew_at_ms

    @property
    def not_after_ms(self) -> int:
        return self._held.not_after_ms

    def key(self) -> WorkerKey:
        return self._key

    def credentials(self) -> Credentials:
        record = self._record
        assert record.key_pem is not None
        return Credentials(
            key_pem=record.key_pem, certificate_pem=record.certificate_pem, ca_bundle_pem=record.ca_bundle_pem
        )

    async def request_renewal(self) -> bytes:
        key = self._record.pending_key_pem
        if key is None:
            key = new_key()
            await self._change(pending_key_pem=key)
        return certificate_request(key)

    async def take_renewal(self, renewed: Renewed) -> None:
        key = self._record.pending_key_pem
        if key is None:
            raise NotPaired("no renewal was asked for")
        require_own(renewed.certificate_pem, key)
        held = held_certificate(renewed.certificate_pem, renewed.generation)
        await self._change(
            key_pem=key,
            pending_key_pem=None,
            certificate_pem=renewed.certificate_pem,
            ca_bundle_pem=renewed.ca_bundle_pem or self._record.ca_bundle_pem,
            generation=renewed.generation,
        )
        self._held, self._key = held, WorkerKey(key.reveal().encode())

    async def trust(self, ca_bundle_pem: str) -> None:
        """The daemon, whom we know, says which authorities are in force."""
        if ca_bundle_pem and ca_bundle_pem != self._record.ca_bundle_pem:
            await self._change(ca_bundle_pem=ca_bundle_pem)

    async def _change(self, **fields: Any) -> None:
        async with self._changing:
            changed = msgspec.structs.replace(self._record, **fields)
            await asyncio.to_thread(self._folder.save, changed)
            self._record = changed
