"""What a person does about pairing: makes codes, sees what waits, says yes or no. The command line, the API and the
console all come here."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from palyra.identity.device import DeviceKind
from palyra.nodes import pairing_rules as rules
from palyra.nodes.pairing import PairingEvent, PairingState
from palyra.nodes.pairing_code import SALT_BYTES, ServerAddress, new_code, stretch
from palyra.nodes.pairing_door import Bell
from palyra.nodes.records import DevicePairingCodeRecord, DevicePairingRequestRecord, PairingMethod
from palyra.nodes.state_port import NodeState
from palyra.secret import Secret


class Doorstep(NamedTuple):
    """Where devices come to pair, the best address first, and the hash of the authority they will see there."""

    addresses: tuple[ServerAddress, ...]
    ca_hash: str


class Doorkeeper(Protocol):
    async def open(self) -> Doorstep:
        """Listens for devices from now on, if it did not. Raises NotListening where that cannot be."""


class NewCode(NamedTuple):
    """A code as it is shown, once."""

    record: DevicePairingCodeRecord
    text: Secret
    addresses: tuple[ServerAddress, ...]
    ca_hash: str


class PairingDesk:
    def __init__(
        self,
        *,
        state: NodeState,
        doorkeeper: Doorkeeper,
        random: Callable[[int], bytes],
        bell: Bell,
        learn: Callable[[Secret], None],
        ttl_seconds: int,
    ) -> None:
        """``learn`` makes a code known to the redactor before anything could write it down."""
        self._state = state
        self._doorkeeper = doorkeeper
        self._random = random
        self._bell = bell
        self._learn = learn
        self._ttl_seconds = ttl_seconds

    async def make_code(
        self, method: PairingMethod, kind: DeviceKind, *, actor: str, ttl_seconds: int | None = None
    ) -> NewCode:
        ttl = rules.checked_ttl(self._ttl_seconds if ttl_seconds is None else ttl_seconds)
        doorstep = await self._doorkeeper.open()
        code = new_code(method, "", self._random, kind=kind, addresses=doorstep.addresses, ca_hash=doorstep.ca_hash)
        self._learn(code.secret)
        stretched = await asyncio.to_thread(stretch, code.secret, self._random(SALT_BYTES))
        record = await self._state.transact(
            lambda unit: rules.add_code(
                unit,
                method=method,
                kind=kind,
                stretched=stretched,
                ttl_seconds=ttl,
                actor=actor,
                random=self._random,
            )
        )
        text = msgspec.structs.replace(code, nameplate=record.nameplate).text()
        self._learn(text)
        return NewCode(record, text, doorstep.addresses, doorstep.ca_hash)

    async def codes(self) -> Sequence[DevicePairingCodeRecord]:
        """Those in force."""
        return self._state.read(lambda unit: [code for code in unit.codes.list() if code.in_force(unit.now_ms)])

    async def withdraw_code(self, code_id: str, *, actor: str) -> DevicePairingCodeRecord:
        return await self._state.transact(lambda unit: rules.withdraw_code(unit, code_id, actor=actor))

    async def pairings(self, state: PairingState | None = None) -> Sequence[DevicePairingRequestRecord]:
        """The newest first."""
        if self._state.read(rules.any_due):
            await self._state.transact(rules.expire_due)
        found = self._state.read(lambda unit: unit.pairings.list())
        return [pairing for pairing in reversed(found) if state is None or pairing.state is state]

    async def pairing(self, pairing_id: str) -> DevicePairingRequestRecord:
        if self._state.read(rules.any_due):
            await self._state.transact(rules.expire_due)
        return self._state.read(lambda unit: rules.known_pairing(unit, pairing_id))

    async def approve(
        self, pairing_id: str, *, actor: str, comparison_code: str | None = None, reason: str = ""
    ) -> DevicePairingRequestRecord:
        """The device gets its certificate when it next asks."""
        return await self._decide(
            pairing_id, PairingEvent.APPROVE, actor=actor, comparison_code=comparison_code, reason=reason
        )

    async def reject(self, pairing_id: str, *, actor: str, reason: str = "") -> DevicePairingRequestRecord:
        return await self._decide(pairing_id, PairingEvent.REJECT, actor=actor, comparison_code=None, reason=reason)

    async def _decide(
        self, pairing_id: str, event: PairingEvent, *, actor: str, comparison_code: str | None, reason: str
    ) -> DevicePairingRequestRecord:
        decided = await self._state.transact(
            lambda unit: rules.decide_pairing(
                unit, pairing_id, event, actor=actor, comparison_code=comparison_code, reason=reason
            )
        )
        self._bell.ring()
        return decided
