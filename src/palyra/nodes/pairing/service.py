"""The two services of pairing: ``BootstrapService`` for devices, and ``PairingService`` for people.

A device is not trusted before it proved a code. An attempt is in memory for a minute. The state is on disk before the
device gets an answer, so after a crash the device begins again with the same code and key, and finds its own request.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.limits import MAX_PAIRING_SESSIONS, PAIRING_LOOK_SECONDS, PAIRING_SESSION_SECONDS
from palyra.devicelink.pairing.code import SALT_BYTES, PairingMethod, ServerAddress, new_code, stretch
from palyra.devicelink.pairing.messages import VERSION, Answer, Begin, Finish, Finished, Hello, Wait
from palyra.devicelink.pairing.proof import Bound, DaemonExchange, DaemonProof, DeviceAnswer, WrongProof, collect_digest
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.nodes.domain.rate_limits import GuessThrottle, TooManyAttempts
from palyra.nodes.domain.records import DevicePairingCodeRecord, DevicePairingRequestRecord, PairingEvent, PairingState
from palyra.nodes.pairing import rules
from palyra.nodes.pairing.rules import CodeUsed, SessionGone, UnknownPairing
from palyra.nodes.store.port import NodeState
from palyra.secret import Secret

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

_SESSION_BYTES = 16


class Served(NamedTuple):
    """The listener's authority, and the hashes of its recent certificates."""

    ca_der: bytes
    ca_hash: str
    leaf_hashes: Sequence[str]


class _Session(NamedTuple):
    proof: DaemonProof
    code: DevicePairingCodeRecord
    served: Served
    ends: float


class DecisionSignal:
    """Wakes the calls that wait for a decision. It is only a hint: they read the state."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return


@dataclass(eq=False, repr=False, kw_only=True)
class BootstrapService:
    """``read_key`` returns the fingerprint of a CSR's key, and refuses a CSR for more than a certificate.

    ``refused`` gets the code and the address of every refusal.
    """

    state: NodeState
    issuer: "IdentityManager"
    read_key: Callable[[bytes], str]
    served: Callable[[], Served]
    node_port: Callable[[], int]
    clock: Clock
    decided: DecisionSignal
    refused: Callable[[str, str], None] = lambda code, address: None

    def __post_init__(self) -> None:
        self._throttle = GuessThrottle()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    async def begin(self, begin: Begin, address: str) -> Hello:
        now = self.clock.monotonic()
        try:
            self._throttle.admit(address, now)
            code = self.state.read(lambda unit: rules.find_code(unit, begin.nameplate, begin.kind))
        except PalyraError as error:
            if not isinstance(error, TooManyAttempts):
                self._throttle.failed(address, now)
            self.refused(error.code, address)
            raise
        served = self.served()
        proof = DaemonProof(DaemonExchange(code.stretched))
        # It computes for some milliseconds, so it does not run on the event loop.
        message = await asyncio.to_thread(proof.hello)
        session = secrets.token_urlsafe(_SESSION_BYTES)
        self._drop_old(now)
        self._sessions[session] = _Session(proof, code, served, now + PAIRING_SESSION_SECONDS)
        return Hello(
            version=VERSION,
            session=session,
            method=code.method,
            salt=code.stretched.salt,
            message=message,
            ca_der=served.ca_der,
        )

    async def finish(self, finish: Finish, address: str) -> Finished:
        now = self.clock.monotonic()
        self._throttle.require_few_failures(address, now)
        # Removed before the first await, so that concurrent requests end an attempt only once.
        session = self._sessions.pop(finish.session, None)
        if session is None or now >= session.ends:
            raise SessionGone("this attempt is over, or never began")
        facts = rules.check_facts(finish.facts)
        fingerprint = await asyncio.to_thread(self.read_key, finish.csr_der)
        code, served = session.code, session.served
        bound = Bound(
            method=code.method,
            kind=code.kind,
            nameplate=code.nameplate,
            salt=code.stretched.salt,
            ca_hash=served.ca_hash,
            # With a certificate that this daemon never served, the proof must fail.
            leaf_hash=finish.leaf_hash if finish.leaf_hash in served.leaf_hashes else "",
            csr_der=finish.csr_der,
            facts=facts,
        )
        answer = DeviceAnswer(message=finish.message, confirmation=finish.confirmation)
        try:
            confirmation, proved = await asyncio.to_thread(session.proof.conclude, answer, bound)
        except WrongProof as error:
            self._throttle.failed(address, now)
            self.refused(error.code, address)
            await self.state.transact(lambda unit: rules.note_wrong_guess(unit, code.id, address))
            raise
        pairing = await self.state.transact(
            lambda unit: rules.claim(
                unit,
                code.id,
                facts=facts,
                csr_der=finish.csr_der,
                key_fingerprint=fingerprint,
                proved=proved,
                address=address,
            )
        )
        if pairing is None:
            self.refused(CodeUsed.code, address)
            raise CodeUsed("another device used this code")
        return Finished(confirmation=confirmation, pairing_id=pairing.id, device_id=pairing.device_id)

    async def wait(self, wait: Wait, address: str) -> Answer:
        """Wait for the decision until the time is up. An ended request is answered while its record exists."""
        deadline = self.clock.monotonic() + wait.wait_ms / MS_PER_SECOND
        while True:
            pairing = await self._look(wait, address)
            # The device can use a certificate only once the listener for paired devices has a port.
            approved = pairing.state in (PairingState.APPROVED, PairingState.COMPLETED)
            if pairing.state is not PairingState.PENDING_APPROVAL and (self.node_port() or not approved):
                return await self._answer(pairing)
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return Answer(state=PairingState.PENDING_APPROVAL.value, device_id=pairing.device_id)
            await self.decided.wait(min(left, PAIRING_LOOK_SECONDS))

    async def _look(self, wait: Wait, address: str) -> DevicePairingRequestRecord:
        await _expire_due(self.state)
        pairing = self.state.read(lambda unit: unit.pairings.get(wait.pairing_id))
        # The same answer for an unknown request and for another device's.
        expected = pairing.collect_sha256 if pairing is not None else b""
        if not hmac.compare_digest(expected, collect_digest(wait.collect)) or pairing is None:
            self._throttle.failed(address, self.clock.monotonic())
            self.refused(UnknownPairing.code, address)
            raise UnknownPairing("there is no such request")
        return pairing

    async def _answer(self, pairing: DevicePairingRequestRecord) -> Answer:
        if pairing.state not in (PairingState.APPROVED, PairingState.COMPLETED):
            return Answer(state=pairing.state.value, device_id=pairing.device_id, reason=pairing.reason)
        issued = await self.issuer.issue(
            pairing.kind, DeviceId.parse(pairing.device_id), pairing.csr_der, actor=pairing.decided_by
        )
        done = await self.state.transact(lambda unit: rules.complete_pairing(unit, pairing.id))
        return Answer(
            state=done.state.value,
            device_id=done.device_id,
            certificate_pem=issued.certificate_pem,
            ca_bundle_pem=issued.ca_bundle_pem,
            generation=issued.generation,
            node_port=self.node_port(),
        )

    def _drop_old(self, now: float) -> None:
        for session, attempt in list(self._sessions.items()):
            if now >= attempt.ends or len(self._sessions) >= MAX_PAIRING_SESSIONS:
                del self._sessions[session]
            else:
                break


class PairingEndpoint(NamedTuple):
    """The addresses of the bootstrap listener, the best first, and the hash of its authority."""

    addresses: tuple[ServerAddress, ...]
    ca_hash: str


class NewCode(NamedTuple):
    """A new code, whose text is shown once."""

    record: DevicePairingCodeRecord
    text: Secret
    addresses: tuple[ServerAddress, ...]
    ca_hash: str


@dataclass(eq=False, repr=False, kw_only=True)
class PairingService:
    """``open_endpoint`` opens the bootstrap listener if it is closed, or raises NotListening.

    ``learn`` registers a code with the redactor, before anything could log it.
    """

    state: NodeState
    open_endpoint: Callable[[], Awaitable[PairingEndpoint]]
    random: Callable[[int], bytes]
    decided: DecisionSignal
    learn: Callable[[Secret], None]
    ttl_seconds: int

    async def make_code(
        self, method: PairingMethod, kind: DeviceKind, *, actor: str, ttl_seconds: int | None = None
    ) -> NewCode:
        ttl = rules.check_ttl(self.ttl_seconds if ttl_seconds is None else ttl_seconds)
        endpoint = await self.open_endpoint()
        code = new_code(method, "", self.random, kind=kind, addresses=endpoint.addresses, ca_hash=endpoint.ca_hash)
        self.learn(code.secret)
        stretched = await asyncio.to_thread(stretch, code.secret, self.random(SALT_BYTES))
        record = await self.state.transact(
            lambda unit: rules.add_code(
                unit,
                method=method,
                kind=kind,
                stretched=stretched,
                ttl_seconds=ttl,
                actor=actor,
                random=self.random,
            )
        )
        text = msgspec.structs.replace(code, nameplate=record.nameplate).text()
        self.learn(text)
        return NewCode(record, text, endpoint.addresses, endpoint.ca_hash)

    async def codes(self) -> Sequence[DevicePairingCodeRecord]:
        """List the codes in force."""
        return self.state.read(lambda unit: [code for code in unit.codes.list() if code.in_force(unit.now_ms)])

    async def withdraw_code(self, code_id: str, *, actor: str) -> DevicePairingCodeRecord:
        return await self.state.transact(lambda unit: rules.withdraw_code(unit, code_id, actor=actor))

    async def pairings(self, state: PairingState | None = None) -> Sequence[DevicePairingRequestRecord]:
        """List the requests, newest first."""
        await _expire_due(self.state)
        found = self.state.read(lambda unit: unit.pairings.list())
        return [pairing for pairing in reversed(found) if state is None or pairing.state is state]

    async def pairing(self, pairing_id: str) -> DevicePairingRequestRecord:
        await _expire_due(self.state)
        return self.state.read(lambda unit: rules.require_pairing(unit, pairing_id))

    async def approve(
        self, pairing_id: str, *, actor: str, comparison_code: str | None = None, reason: str = ""
    ) -> DevicePairingRequestRecord:
        """Approve a request. The device then fetches its certificate."""
        return await self._decide(
            pairing_id, PairingEvent.APPROVE, actor=actor, comparison_code=comparison_code, reason=reason
        )

    async def reject(self, pairing_id: str, *, actor: str, reason: str = "") -> DevicePairingRequestRecord:
        return await self._decide(pairing_id, PairingEvent.REJECT, actor=actor, comparison_code=None, reason=reason)

    async def _decide(
        self, pairing_id: str, event: PairingEvent, *, actor: str, comparison_code: str | None, reason: str
    ) -> DevicePairingRequestRecord:
        decided = await self.state.transact(
            lambda unit: rules.decide_pairing(
                unit, pairing_id, event, actor=actor, comparison_code=comparison_code, reason=reason
            )
        )
        self.decided.notify()
        return decided


async def _expire_due(state: NodeState) -> None:
    if state.read(rules.has_due):
        await state.transact(rules.expire_due)
