"""The rules of pairing: the changes of codes and of requests to pair, and their errors.

The errors contain nothing that helps an attacker to guess a code."""

import unicodedata
from collections.abc import Callable
from typing import Any, Final

import msgspec

from palyra.clock import MS_PER_SECOND
from palyra.devicelink.limits import (
    MAX_CODE_TTL_SECONDS,
    MAX_DEVICE_NAME_CHARS,
    MAX_LIVE_CODES,
    MAX_NODES,
    MAX_PENDING_PAIRINGS,
    MAX_PLATFORM_CHARS,
    MAX_VERSION_CHARS,
    MAX_WRONG_GUESSES,
    MIN_CODE_TTL_SECONDS,
    PAIRING_COLLECTION_MS,
    PAIRING_DECISION_MS,
)
from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode, free_nameplate
from palyra.devicelink.pairing.proof import Proved, collect_digest
from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable
from palyra.identity.device import DeviceId, DeviceKind
from palyra.nodes.domain.records import (
    KIND_OF,
    CodeId,
    CodeState,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
    PairingEvent,
    PairingId,
    PairingState,
    next_pairing_state,
)
from palyra.nodes.store.port import NodeUnit
from palyra.store.event import NewEvent


class UnknownCode(InvalidInput):
    code = "pairing.unknown_code"
    hint = "the code may have expired: `palyra pair code` at the daemon makes a new one"
    http_status = 404


class CodeBurned(Denied):
    code = "pairing.code_burned"
    hint = "too many wrong guesses made this code void: `palyra pair code` at the daemon makes a new one"


class CodeUsed(Denied):
    code = "pairing.code_used"
    hint = (
        "another device used this code. If that was not yours, reject its request with `palyra pair reject`,"
        " then make a new code"
    )


class TooManyCodes(LimitExceeded):
    code = "pairing.too_many_codes"
    hint = "wait until some have expired, or withdraw some with `palyra pair reject`"


class TooManyPairings(LimitExceeded):
    code = "pairing.too_many_pending"
    hint = "`palyra pair list` shows them: decide some first"


class TooManyDevices(LimitExceeded):
    code = "pairing.too_many_devices"
    hint = "revoke devices that are no longer used"


class UnknownPairing(InvalidInput):
    code = "pairing.unknown_request"
    hint = "`palyra pair list` shows what waits"
    http_status = 404


class WrongComparison(InvalidInput):
    code = "pairing.wrong_comparison_code"
    hint = "compare again; if the device shows another code than `palyra pair list`, reject the request"
    http_status = 409


class BadDeviceFacts(InvalidInput):
    code = "pairing.bad_device_facts"
    hint = "a device's name is 1 to 64 printable characters"


class BadCodeLife(InvalidInput):
    code = "pairing.bad_ttl"
    hint = "a code works for 30 seconds to 24 hours"


class SessionGone(InvalidInput):
    code = "pairing.session_gone"
    hint = "begin again with the same code; each attempt has a minute"
    http_status = 404


class NotListening(Unavailable):
    code = "pairing.not_listening"
    hint = "pairing needs a running daemon with nodes.enabled: `palyra up`"


# Each change runs inside one unit of work, with its journal entry.

# Controls, formats (which can reverse text), surrogates, unassigned, line and paragraph separators.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def check_facts(facts: DeviceFacts) -> DeviceFacts:
    """Check that the device's texts are printable. They are not proof of identity: the comparison code is."""
    for text, most in (
        (facts.name, MAX_DEVICE_NAME_CHARS),
        (facts.platform, MAX_PLATFORM_CHARS),
        (facts.software_version, MAX_VERSION_CHARS),
    ):
        if len(text) > most or any(unicodedata.category(char) in _HIDDEN for char in text):
            raise BadDeviceFacts("the device's name, platform or version is too long or not printable")
    if not facts.name.strip():
        raise BadDeviceFacts("the device has no name")
    return facts


def check_ttl(seconds: int) -> int:
    if not MIN_CODE_TTL_SECONDS <= seconds <= MAX_CODE_TTL_SECONDS:
        raise BadCodeLife(f"{seconds} seconds is too short or too long for a code")
    return seconds


def add_code(
    unit: NodeUnit,
    *,
    method: PairingMethod,
    kind: DeviceKind,
    stretched: StretchedCode,
    ttl_seconds: int,
    actor: str,
    random: Callable[[int], bytes],
) -> DevicePairingCodeRecord:
    known = unit.codes.list()
    live = sum(code.state is CodeState.LIVE and code.in_force(unit.now_ms) for code in known)
    if live >= MAX_LIVE_CODES:
        raise TooManyCodes(f"{live} codes are live already", limit=MAX_LIVE_CODES)
    # Codes that ended early keep their nameplate until they expire, so that a device with one gets the right error.
    taken = frozenset(code.nameplate for code in known if unit.now_ms < code.expires_ms)
    record = DevicePairingCodeRecord(
        id=str(CodeId.new()),
        nameplate=free_nameplate(taken, random),
        method=method,
        kind=kind,
        stretched=stretched,
        created_ms=unit.now_ms,
        expires_ms=unit.now_ms + check_ttl(ttl_seconds) * MS_PER_SECOND,
        created_by=actor,
    )
    unit.codes.put(record)
    _note_code(unit, "pairing.code_created", record, actor, method=method.value, expires_ms=record.expires_ms)
    return record


def find_code(unit: NodeUnit, nameplate: str, kind: DeviceKind) -> DevicePairingCodeRecord:
    """Find the code in force with this nameplate."""
    for code in unit.codes.list():
        if code.nameplate == nameplate and code.kind is kind and unit.now_ms < code.expires_ms:
            if code.state is CodeState.BURNED:
                raise CodeBurned("this code is void")
            if code.in_force(unit.now_ms):
                return code
    raise UnknownCode("there is no such code")


def note_wrong_guess(unit: NodeUnit, code_id: str, address: str) -> None:
    """Count a wrong guess, and burn the code after the last one. An ended code does not count."""
    code = unit.codes.get(code_id)
    if code is None or not code.in_force(unit.now_ms):
        return
    guesses = code.wrong_guesses + 1
    burned = guesses >= MAX_WRONG_GUESSES
    code = msgspec.structs.replace(code, wrong_guesses=guesses, state=CodeState.BURNED if burned else code.state)
    unit.codes.put(code)
    _note_code(unit, "pairing.guess_failed", code, "device", address=address, wrong_guesses=guesses)
    if burned:
        _note_code(unit, "pairing.code_burned", code, "device", address=address)


def withdraw_code(unit: NodeUnit, code_id: str, *, actor: str) -> DevicePairingCodeRecord:
    code = unit.codes.get(code_id)
    if code is None or not code.in_force(unit.now_ms):
        raise UnknownCode("there is no such code in force")
    code = msgspec.structs.replace(code, state=CodeState.WITHDRAWN)
    unit.codes.put(code)
    _note_code(unit, "pairing.code_withdrawn", code, actor)
    return code


def claim(
    unit: NodeUnit,
    code_id: str,
    *,
    facts: DeviceFacts,
    csr_der: bytes,
    key_fingerprint: str,
    proved: Proved,
    address: str,
) -> DevicePairingRequestRecord | None:
    """Make the request of a device that proved the code. The result is None if another device has used it.

    The same key gets its own request again, because its reply was lost, with a new secret for fetching the answer.
    """
    code = unit.codes.get(code_id)
    if code is not None and code.state is CodeState.BURNED:
        raise CodeBurned("this code is void")
    if code is None or not code.in_force(unit.now_ms):
        raise UnknownCode("there is no such code")
    if code.state is CodeState.USED:
        return _claim_again(unit, code, key_fingerprint, proved, address)
    waiting = sum(pairing.state is PairingState.PENDING_APPROVAL for pairing in unit.pairings.list())
    if waiting >= MAX_PENDING_PAIRINGS:
        raise TooManyPairings(f"{waiting} requests to pair wait for a person", limit=MAX_PENDING_PAIRINGS)
    pairing = DevicePairingRequestRecord(
        id=str(PairingId.new()),
        device_id=str(DeviceId.new()),
        kind=code.kind,
        code_id=code.id,
        method=code.method,
        state=PairingState.PENDING_APPROVAL,
        facts=facts,
        csr_der=csr_der,
        key_fingerprint=key_fingerprint,
        comparison_code=proved.comparison_code,
        collect_sha256=collect_digest(proved.collect),
        address=address,
        created_ms=unit.now_ms,
        expires_ms=unit.now_ms + PAIRING_DECISION_MS,
    )
    unit.pairings.put(pairing)
    unit.codes.put(msgspec.structs.replace(code, state=CodeState.USED, pairing_id=pairing.id))
    note_pairing(unit, "pairing.requested", pairing, f"{pairing.kind.value}/{pairing.device_id}", address=address)
    return pairing


def _claim_again(
    unit: NodeUnit, code: DevicePairingCodeRecord, key_fingerprint: str, proved: Proved, address: str
) -> DevicePairingRequestRecord | None:
    pairing = unit.pairings.get(code.pairing_id)
    if pairing is None:
        raise UnknownCode("there is no such code")
    if pairing.key_fingerprint != key_fingerprint:
        pairing = msgspec.structs.replace(pairing, refused_claims=pairing.refused_claims + 1)
        unit.pairings.put(pairing)
        note_pairing(unit, "pairing.claim_refused", pairing, "device", address=address, claimant_key=key_fingerprint)
        return None
    pending = pairing.state is PairingState.PENDING_APPROVAL
    pairing = msgspec.structs.replace(
        pairing,
        collect_sha256=collect_digest(proved.collect),
        # After the decision, the code that the person compared stays.
        comparison_code=proved.comparison_code if pending else pairing.comparison_code,
    )
    unit.pairings.put(pairing)
    note_pairing(unit, "pairing.requested_again", pairing, f"{pairing.kind.value}/{pairing.device_id}", address=address)
    return pairing


def decide_pairing(
    unit: NodeUnit,
    pairing_id: str,
    event: PairingEvent,
    *,
    actor: str,
    reason: str = "",
    comparison_code: str | None = None,
) -> DevicePairingRequestRecord:
    """Decide a request. Refuse if ``comparison_code``, which the person saw at the device, differs."""
    expire_due(unit)
    pairing = require_pairing(unit, pairing_id)
    state = next_pairing_state(pairing.state, event)
    if comparison_code is not None and comparison_code != pairing.comparison_code:
        raise WrongComparison("the request does not have that comparison code", id=pairing.id)
    approved = event is PairingEvent.APPROVE
    if approved:
        _require_room(unit)
    pairing = msgspec.structs.replace(
        pairing,
        state=state,
        decided_ms=unit.now_ms,
        decided_by=actor,
        reason=reason,
        expires_ms=unit.now_ms + PAIRING_COLLECTION_MS if approved else pairing.expires_ms,
    )
    unit.pairings.put(pairing)
    note_pairing(unit, KIND_OF[event], pairing, actor, reason=reason)
    return pairing


def complete_pairing(unit: NodeUnit, pairing_id: str) -> DevicePairingRequestRecord:
    """Make a device that fetches its certificate a paired device. A second call changes nothing."""
    pairing = require_pairing(unit, pairing_id)
    if pairing.state is PairingState.COMPLETED:
        return pairing
    pairing = msgspec.structs.replace(pairing, state=next_pairing_state(pairing.state, PairingEvent.COMPLETE))
    unit.pairings.put(pairing)
    unit.nodes.put(
        NodeRecord(
            id=pairing.device_id,
            kind=pairing.kind,
            name=pairing.facts.name,
            platform=pairing.facts.platform,
            software_version=pairing.facts.software_version,
            paired_ms=unit.now_ms,
            pairing_id=pairing.id,
        )
    )
    note_pairing(unit, KIND_OF[PairingEvent.COMPLETE], pairing, f"{pairing.kind.value}/{pairing.device_id}")
    return pairing


def expire_due(unit: NodeUnit) -> None:
    for pairing in unit.pairings.list():
        if pairing.open() and unit.now_ms >= pairing.expires_ms:
            ended = msgspec.structs.replace(pairing, state=next_pairing_state(pairing.state, PairingEvent.EXPIRE))
            unit.pairings.put(ended)
            note_pairing(unit, KIND_OF[PairingEvent.EXPIRE], ended, "palyrad")


def has_due(unit: NodeUnit) -> bool:
    return any(pairing.open() and unit.now_ms >= pairing.expires_ms for pairing in unit.pairings.list())


def require_pairing(unit: NodeUnit, pairing_id: str) -> DevicePairingRequestRecord:
    pairing = unit.pairings.get(pairing_id)
    if pairing is None:
        raise UnknownPairing(f"there is no request {pairing_id[:64]}")
    return pairing


def note_pairing(unit: NodeUnit, kind: str, pairing: DevicePairingRequestRecord, actor: str, **more: Any) -> None:
    payload = {
        "pairing_id": pairing.id,
        "device_id": pairing.device_id,
        "kind": pairing.kind.value,
        "name": pairing.facts.name,
        "platform": pairing.facts.platform,
        "key_fingerprint": pairing.key_fingerprint,
        **more,
    }
    unit.append(NewEvent(kind=kind, actor=actor, payload=payload))


def _note_code(unit: NodeUnit, kind: str, code: DevicePairingCodeRecord, actor: str, **more: Any) -> None:
    payload = {"code_id": code.id, "nameplate": code.nameplate, "kind": code.kind.value, **more}
    unit.append(NewEvent(kind=kind, actor=actor, payload=payload))


def _require_room(unit: NodeUnit) -> None:
    paired = sum(node.revoked_ms is None for node in unit.nodes.list())
    if paired >= MAX_NODES:
        raise TooManyDevices(f"{paired} devices are paired already", limit=MAX_NODES)
