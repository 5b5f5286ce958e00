"""Pairs this device: proves the code, shows the comparison code, waits for the person at the daemon.

Every step is on disk before the next is taken. A host that is killed anywhere between goes on from there: with the
same key it finds the same request, and the answer to it is the same however often it is fetched.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from palyra.errors import Denied
from palyra.identity.device import DeviceKind
from palyra.nodes.bootstrap_client import DaemonNotReached, PairingAnswer, ProvedPairing, prove, wait_for_decision
from palyra.nodes.device.backoff import Backoff
from palyra.nodes.device.device_key import certificate_request, new_key, require_own
from palyra.nodes.device.device_record import DeviceRecord
from palyra.nodes.device.errors import AlreadyPaired, DeviceFileBad, NotPaired
from palyra.nodes.device.limits import DECISION_WAIT_MS, MAX_SERVERS
from palyra.nodes.device.pairing_folder import PairingFolder
from palyra.nodes.pairing_code import PairingCode, ServerAddress
from palyra.nodes.records import DeviceFacts
from palyra.secret import Secret

_PROVED = "proved"
_OTHERS = "others"


class PairingNotGranted(Denied):
    code = "nodes.pairing_not_granted"
    hint = "ask who runs the daemon; a new try needs a new code"


class Joining:
    def __init__(
        self,
        folder: PairingFolder,
        *,
        kind: DeviceKind,
        facts: DeviceFacts,
        show_comparison: Callable[[str, str], None],
        draw: Callable[[], float],
    ) -> None:
        """``show_comparison`` is given the code that the person compares, and this device's id."""
        self._folder = folder
        self._kind = kind
        self._facts = facts
        self._show = show_comparison
        self._draw = draw

    async def join(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> DeviceRecord:
        """The record of a paired device. Without a code, a pairing that was begun is gone on with."""
        record = await asyncio.to_thread(self._folder.load)
        if record is not None and record.paired:
            if code is not None:
                raise AlreadyPaired(f"this device is already paired, as {record.device_id}")
            return record
        if code is not None:
            record = await self._prove(record, code, servers)
        if record is None or _PROVED not in record.pairing:
            raise NotPaired("this device is not paired, and no pairing was begun")
        proved = _read(record)
        self._show(proved.comparison_code, proved.device_id)
        return await self._collect(record, proved)

    async def _prove(
        self, record: DeviceRecord | None, code: PairingCode, servers: Sequence[ServerAddress]
    ) -> DeviceRecord:
        key = record.pending_key_pem if record is not None else None
        if key is None:
            key = new_key()
        record = DeviceRecord(device_name=self._facts.name, servers=(), pending_key_pem=key)
        await asyncio.to_thread(self._folder.save, record)
        proved = await prove(
            code, kind=self._kind, csr_der=certificate_request(key), facts=self._facts, servers=servers
        )
        others = [str(each) for each in (*servers, *code.addresses) if str(each) != proved.server]
        kept = {_PROVED: msgspec.json.encode(proved).decode(), _OTHERS: " ".join(others)}
        record = msgspec.structs.replace(record, pairing=kept)
        await asyncio.to_thread(self._folder.save, record)
        return record

    async def _collect(self, record: DeviceRecord, proved: ProvedPairing) -> DeviceRecord:
        backoff = Backoff()
        while True:
            try:
                answer = await wait_for_decision(proved, wait_ms=DECISION_WAIT_MS)
            except DaemonNotReached:
                backoff = backoff.failed()
                await asyncio.sleep(backoff.delay_ms(self._draw()) / 1000)
                continue
            backoff = Backoff()
            if answer.state == "completed":
                return await self._keep(record, proved, answer)
            if answer.state in ("rejected", "expired"):
                await asyncio.to_thread(self._folder.forget)
                raise PairingNotGranted(f"the request was {answer.state}", reason=answer.reason)

    async def _keep(self, record: DeviceRecord, proved: ProvedPairing, answer: PairingAnswer) -> DeviceRecord:
        key, certificate = record.pending_key_pem, answer.certificate_pem.decode("ascii", "replace")
        if key is None:
            raise DeviceFileBad("the key of this pairing is gone")
        require_own(certificate, key)
        paired = DeviceRecord(
            device_name=record.device_name,
            servers=_node_addresses(proved.server, record.pairing.get(_OTHERS, ""), answer.node_port),
            device_id=proved.device_id,
            key_pem=Secret(key.reveal()),
            certificate_pem=certificate,
            ca_bundle_pem=answer.ca_bundle_pem.decode("ascii", "replace"),
            generation=answer.generation,
        )
        await asyncio.to_thread(self._folder.save, paired)
        return paired


def _read(record: DeviceRecord) -> ProvedPairing:
    try:
        return msgspec.json.decode(record.pairing[_PROVED], type=ProvedPairing)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The decoder's words may quote what only this device may know.
        raise DeviceFileBad("what was kept of the pairing cannot be read") from None


def _node_addresses(server: str, others: str, port: int) -> tuple[str, ...]:
    """Where the daemon is found from now on: the hosts that pairing knew, the one that answered first."""
    hosts = [ServerAddress.parse(each).host for each in (server, *others.split())]
    return tuple(str(ServerAddress(host, port)) for host in dict.fromkeys(hosts))[:MAX_SERVERS]
