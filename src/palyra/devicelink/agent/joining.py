"""Pairs this device: proves the code, shows the comparison code, waits for the person at the daemon.

Every step is on disk before the next is taken. A host that is killed anywhere between goes on from there: with the
same key it finds the same request, and the answer to it is the same however often it is fetched.
"""

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import httpcore2
import msgspec

from palyra.client import address as client_address
from palyra.client.protocol import ClientLimits, ConnectFailed, ConnectionLost, Request, Response
from palyra.client.transport import causes, named_errors, new_request, read_answer
from palyra.clock import MS_PER_SECOND
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.device_folder import AlreadyPaired, DeviceFileBad, DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import certificate_request, new_key, require_own
from palyra.devicelink.limits import DECISION_WAIT_MS, MAX_PAIRING_ANSWER_BYTES, MAX_SERVERS, PAIRING_ANSWER_SECONDS
from palyra.devicelink.pairing import messages as wire
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, ServerAddress, stretch
from palyra.devicelink.pairing.proof import (
    Bound,
    DeviceAnswer,
    DeviceExchange,
    DeviceProof,
    MalformedProof,
    WrongServer,
    hash_certificate,
    require_issued_by,
)
from palyra.errors import Denied, PalyraError, RemoteError, Unavailable
from palyra.identity.certificate import pem_of
from palyra.identity.device import DeviceKind
from palyra.secret import Secret
from palyra.visible_text import is_visible

# A device's side of pairing: prove a code, then wait for the person's decision. Every kind of device uses it.
#
# Before the proof ends, the server is not trusted: TLS is not verified, but the certificate it showed goes into the
# proof, and only the daemon that made the code can confirm that. From then on its authority is pinned.

# The name that every server certificate has, whatever address was dialled.
SERVER_NAME: Final = "palyra"
MAX_SHOWN_CHARS: Final = 256
_LIMITS: Final = ClientLimits(max_response_bytes=MAX_PAIRING_ANSWER_BYTES, max_header_bytes=MAX_PAIRING_ANSWER_BYTES)

M = TypeVar("M", bound=msgspec.Struct)


class DaemonNotReached(Unavailable):
    code = "pairing.daemon_not_reached"
    hint = "check the address, that the daemon runs, and what lies between"


class NoAddress(Denied):
    code = "pairing.no_address"
    hint = "a PIN does not say where the daemon is: give --server HOST:PORT, as `palyra pair code` printed it"


class WrongKind(Denied):
    code = "pairing.wrong_kind"
    hint = "make a code for this kind of device: `palyra pair code --kind`"


class ProvedPairing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state that a device keeps until it has its certificate, so that it can go on after it was killed.

    ``collect`` is secret, because it fetches the answer. Write it to a file of mode 0600 and nowhere else.
    """

    pairing_id: str
    device_id: str
    kind: DeviceKind
    comparison_code: str
    collect: bytes
    ca_pem: bytes
    server: str

    def __repr__(self) -> str:
        return f"ProvedPairing({self.pairing_id}, [redacted])"


async def prove(
    code: PairingCode,
    *,
    kind: DeviceKind,
    csr_der: bytes,
    facts: DeviceFacts,
    servers: Sequence[ServerAddress] = (),
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
) -> ProvedPairing:
    """Prove the code to the first server that answers. The same CSR finds the same request after a lost reply.

    Raise WrongProof, WrongServer, or the daemon's refusal as RemoteError.
    """
    if code.kind is not None and code.kind is not kind:
        raise WrongKind(f"this code is for a {code.kind.value}, not for a {kind.value}")
    addresses = tuple(servers) or code.addresses
    if not addresses:
        raise NoAddress("this code does not name a server")
    unreached: DaemonNotReached | None = None
    for address in addresses:
        try:
            return await _prove_to(address, code, kind=kind, csr_der=csr_der, facts=facts, now=now)
        except DaemonNotReached as error:
            unreached = error
    assert unreached is not None
    raise unreached


async def wait_for_decision(proved: ProvedPairing, *, wait_ms: int) -> wire.Answer:
    """Return the decision, or ``pending_approval`` when the time is up. The server must be the pinned one."""
    address = ServerAddress.parse(proved.server)
    message = wire.Wait(pairing_id=proved.pairing_id, collect=proved.collect, wait_ms=wait_ms)
    patience = PAIRING_ANSWER_SECONDS + wait_ms / MS_PER_SECOND
    async with _connected(address, _pinned(proved.ca_pem)) as connection:
        answer = await connection.call(wire.WAIT, message, wire.Answer, patience)
    if answer.device_id != proved.device_id:
        raise WrongServer("the answer is for another device")
    return msgspec.structs.replace(answer, reason=_printable(answer.reason))


async def _prove_to(
    address: ServerAddress,
    code: PairingCode,
    *,
    kind: DeviceKind,
    csr_der: bytes,
    facts: DeviceFacts,
    now: Callable[[], datetime.datetime],
) -> ProvedPairing:
    async with _connected(address, _unverified()) as connection:
        begin = wire.Begin(version=wire.VERSION, nameplate=code.nameplate, kind=kind)
        hello = await connection.call(wire.BEGIN, begin, wire.Hello, PAIRING_ANSWER_SECONDS)
        ca_hash = hash_certificate(hello.ca_der)
        if code.ca_hash and code.ca_hash != ca_hash:
            raise WrongServer("the server's authority is not the one in the code")
        require_issued_by(connection.leaf_der, hello.ca_der, now=now())
        if hello.method is not code.method:
            raise MalformedProof("the server takes this code for one of another kind")
        bound = Bound(
            method=code.method,
            kind=kind,
            nameplate=code.nameplate,
            salt=hello.salt,
            ca_hash=ca_hash,
            leaf_hash=hash_certificate(connection.leaf_der),
            csr_der=csr_der,
            facts=facts,
        )
        proof, answer = await asyncio.to_thread(_answer, code.secret, hello, bound)
        finish = wire.Finish(
            session=hello.session,
            message=answer.message,
            confirmation=answer.confirmation,
            csr_der=csr_der,
            facts=facts,
            leaf_hash=bound.leaf_hash,
        )
        finished = await connection.call(wire.FINISH, finish, wire.Finished, PAIRING_ANSWER_SECONDS)
    proved = proof.conclude(finished.confirmation)
    return ProvedPairing(
        pairing_id=finished.pairing_id,
        device_id=finished.device_id,
        kind=kind,
        comparison_code=proved.comparison_code,
        collect=proved.collect,
        ca_pem=pem_of(hello.ca_der),
        server=str(address),
    )


def _answer(secret: Secret, hello: wire.Hello, bound: Bound) -> tuple[DeviceProof, DeviceAnswer]:
    proof = DeviceProof(DeviceExchange(stretch(secret, hello.salt)))
    return proof, proof.answer(hello.message, bound)


class _Connection:
    """A connection to one server. ``leaf_der`` is its certificate, the same with every response."""

    def __init__(self, address: ServerAddress, pool: httpcore2.AsyncConnectionPool) -> None:
        self._address = address
        self._pool = pool
        self.leaf_der = b""

    async def call(self, path: str, message: msgspec.Struct, type_: type[M], patience: float) -> M:
        request = Request(method="POST", path=path, body=wire.encode(message))
        try:
            async with asyncio.timeout(patience):
                response = await self._exchange(request)
        except ConnectFailed as error:
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
                raise WrongServer("the server is not the one that this device was paired with") from error
            raise DaemonNotReached(f"no daemon answers at {self._address}") from error
        except (TimeoutError, httpcore2.TimeoutException, ConnectionLost) as error:
            raise DaemonNotReached("the daemon did not answer") from error
        if response.status != 200:
            raise _refusal(response)
        return wire.decode(response.body, type_)

    async def _exchange(self, request: Request) -> Response:
        where = client_address.ServerAddress(host=self._address.host, port=self._address.port, tls=True)
        extensions = {"sni_hostname": SERVER_NAME, "timeout": {"connect": PAIRING_ANSWER_SECONDS}}
        with named_errors(where.host_header):
            answer = await self._pool.handle_async_request(new_request(request, where, extensions))
            try:
                self._take_leaf(answer)
                return await read_answer(answer, _LIMITS)
            finally:
                await answer.aclose()

    def _take_leaf(self, answer: httpcore2.Response) -> None:
        shown: bytes = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert(binary_form=True)
        if self.leaf_der not in (b"", shown):
            raise WrongServer("another server answered in the middle of the pairing")
        self.leaf_der = shown


@contextlib.asynccontextmanager
async def _connected(address: ServerAddress, context: ssl.SSLContext) -> AsyncIterator[_Connection]:
    async with httpcore2.AsyncConnectionPool(ssl_context=context, max_connections=1) as pool:
        yield _Connection(address, pool)


def _unverified() -> ssl.SSLContext:
    """Make a context that verifies nothing; the proof verifies the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _pinned(ca_pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    return context


def _refusal(response: Response) -> PalyraError:
    """Read the server's error. Before the proof any server may have sent it, so its text is only shown."""
    try:
        error = msgspec.json.decode(response.body)["error"]
        code, message, hint = str(error["code"]), str(error["message"]), str(error.get("hint", ""))
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return MalformedProof(f"the server answered {response.status} without a reason")
    known = PalyraError.registry.get(code)
    if known is None or not code.startswith(("pairing.", "identity.")):
        return MalformedProof(f"the server refused: {_printable(message)}")
    return RemoteError(
        _printable(message),
        remote_code=code,
        hint=_printable(hint),
        exit_code=known.exit_code,
        http_status=response.status,
    )


def _printable(text: str) -> str:
    return "".join(char if is_visible(char) else "?" for char in text[:MAX_SHOWN_CHARS])


_PROVED = "proved"
_OTHERS = "others"


class PairingNotGranted(Denied):
    code = "nodes.pairing_not_granted"
    hint = "ask who runs the daemon; a new try needs a new code"


@dataclass(eq=False, repr=False)
class Joining:
    """``show_comparison`` gets the code that the person compares, and this device's id."""

    folder: PairingFolder
    kind: DeviceKind
    facts: DeviceFacts
    show_comparison: Callable[[str, str], None]
    draw: Callable[[], float]

    async def join(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> DeviceRecord:
        """Pair the device and return its record. Without a code, resume an interrupted pairing."""
        record = await asyncio.to_thread(self.folder.load)
        if record is not None and record.paired:
            if code is not None:
                raise AlreadyPaired(f"this device is already paired, as {record.device_id}")
            return record
        if code is not None:
            record = await self._prove(record, code, servers)
        if record is None or _PROVED not in record.pairing:
            raise NotPaired("this device is not paired, and no pairing was begun")
        proved = _read(record)
        self.show_comparison(proved.comparison_code, proved.device_id)
        return await self._collect(record, proved)

    async def _prove(
        self, record: DeviceRecord | None, code: PairingCode, servers: Sequence[ServerAddress]
    ) -> DeviceRecord:
        key = record.pending_key_pem if record is not None else None
        if key is None:
            key = new_key()
        record = DeviceRecord(device_name=self.facts.name, servers=(), pending_key_pem=key)
        await asyncio.to_thread(self.folder.save, record)
        proved = await prove(code, kind=self.kind, csr_der=certificate_request(key), facts=self.facts, servers=servers)
        others = [str(each) for each in (*servers, *code.addresses) if str(each) != proved.server]
        kept = {_PROVED: msgspec.json.encode(proved).decode(), _OTHERS: " ".join(others)}
        record = msgspec.structs.replace(record, pairing=kept)
        await asyncio.to_thread(self.folder.save, record)
        return record

    async def _collect(self, record: DeviceRecord, proved: ProvedPairing) -> DeviceRecord:
        backoff = Backoff()
        while True:
            try:
                answer = await wait_for_decision(proved, wait_ms=DECISION_WAIT_MS)
            except DaemonNotReached:
                backoff = backoff.failed()
                await asyncio.sleep(backoff.delay_ms(self.draw()) / 1000)
                continue
            backoff = Backoff()
            if answer.state == "completed":
                return await self._keep(record, proved, answer)
            if answer.state in ("rejected", "expired"):
                await asyncio.to_thread(self.folder.forget)
                raise PairingNotGranted(f"the request was {answer.state}", reason=answer.reason)

    async def _keep(self, record: DeviceRecord, proved: ProvedPairing, answer: wire.Answer) -> DeviceRecord:
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
        await asyncio.to_thread(self.folder.save, paired)
        return paired


def _read(record: DeviceRecord) -> ProvedPairing:
    try:
        return msgspec.json.decode(record.pairing[_PROVED], type=ProvedPairing)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The decoder's message may quote a secret.
        raise DeviceFileBad("the stored state of the pairing cannot be read") from None


def _node_addresses(server: str, others: str, port: int) -> tuple[str, ...]:
    """List the daemon's addresses: the hosts known from pairing, first the one that answered."""
    hosts = [ServerAddress.parse(each).host for each in (server, *others.split())]
    return tuple(str(ServerAddress(host, port)) for host in dict.fromkeys(hosts))[:MAX_SERVERS]
