"""The life of one version of a skill. One table holds every transition; what is not in it is refused.

A version is one (skill id, version, digest). Only ``approved`` runs, and a skill has at most one version in it.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.errors import InvalidInput


class SkillState(StrEnum):
    INGESTED = "ingested"
    AUDITED = "audited"
    QUARANTINED = "quarantined"
    APPROVED = "approved"
    DISABLED = "disabled"
    SUPERSEDED = "superseded"
    REMOVED = "removed"
    FAILED = "failed"


class SkillEvent(StrEnum):
    INGEST = "ingest"
    AUDIT = "audit"
    QUARANTINE = "quarantine"
    APPROVE = "approve"
    DISABLE = "disable"
    ENABLE = "enable"
    SUPERSEDE = "supersede"
    ROLL_BACK = "roll_back"
    FAIL = "fail"
    REMOVE = "remove"


TRANSITIONS: Final[dict[tuple[SkillState, SkillEvent], SkillState]] = {
    (SkillState.INGESTED, SkillEvent.AUDIT): SkillState.AUDITED,
    (SkillState.AUDITED, SkillEvent.QUARANTINE): SkillState.QUARANTINED,
    (SkillState.AUDITED, SkillEvent.FAIL): SkillState.FAILED,
    (SkillState.QUARANTINED, SkillEvent.APPROVE): SkillState.APPROVED,
    (SkillState.QUARANTINED, SkillEvent.FAIL): SkillState.FAILED,
    (SkillState.QUARANTINED, SkillEvent.REMOVE): SkillState.REMOVED,
    (SkillState.APPROVED, SkillEvent.QUARANTINE): SkillState.QUARANTINED,
    (SkillState.APPROVED, SkillEvent.DISABLE): SkillState.DISABLED,
    (SkillState.APPROVED, SkillEvent.SUPERSEDE): SkillState.SUPERSEDED,
    (SkillState.APPROVED, SkillEvent.FAIL): SkillState.FAILED,
    (SkillState.APPROVED, SkillEvent.REMOVE): SkillState.REMOVED,
    (SkillState.DISABLED, SkillEvent.ENABLE): SkillState.APPROVED,
    (SkillState.DISABLED, SkillEvent.QUARANTINE): SkillState.QUARANTINED,
    (SkillState.DISABLED, SkillEvent.SUPERSEDE): SkillState.SUPERSEDED,
    (SkillState.DISABLED, SkillEvent.FAIL): SkillState.FAILED,
    (SkillState.DISABLED, SkillEvent.REMOVE): SkillState.REMOVED,
    (SkillState.SUPERSEDED, SkillEvent.ROLL_BACK): SkillState.APPROVED,
    (SkillState.SUPERSEDED, SkillEvent.QUARANTINE): SkillState.QUARANTINED,
    (SkillState.SUPERSEDED, SkillEvent.FAIL): SkillState.FAILED,
    (SkillState.SUPERSEDED, SkillEvent.REMOVE): SkillState.REMOVED,
    (SkillState.FAILED, SkillEvent.INGEST): SkillState.INGESTED,
    (SkillState.FAILED, SkillEvent.REMOVE): SkillState.REMOVED,
    (SkillState.REMOVED, SkillEvent.INGEST): SkillState.INGESTED,
}
# What the journal calls each event.
KIND_OF: Final = {
    SkillEvent.INGEST: "skill.ingested",
    SkillEvent.AUDIT: "skill.audited",
    SkillEvent.QUARANTINE: "skill.quarantined",
    SkillEvent.APPROVE: "skill.approved",
    SkillEvent.DISABLE: "skill.disabled",
    SkillEvent.ENABLE: "skill.enabled",
    SkillEvent.SUPERSEDE: "skill.superseded",
    SkillEvent.ROLL_BACK: "skill.rolled_back",
    SkillEvent.FAIL: "skill.failed",
    SkillEvent.REMOVE: "skill.removed",
}
# The archive of a version in these states is on disk.
KEPT: Final = frozenset((SkillState.QUARANTINED, SkillState.APPROVED, SkillState.DISABLED, SkillState.SUPERSEDED))

_INTO_USE: Final = frozenset((SkillEvent.APPROVE, SkillEvent.ENABLE, SkillEvent.ROLL_BACK))
# The hint for a wrong command: the one that works from each state.
_WAY_INTO_USE: Final = {
    SkillState.QUARANTINED: "`palyra skill approve SKILL VERSION` puts it in use",
    SkillState.DISABLED: "`palyra skill enable SKILL` lets it run again",
    SkillState.SUPERSEDED: "`palyra skill rollback SKILL --version VERSION` puts it in use again",
    SkillState.FAILED: "install its archive again: `palyra skill install FILE`",
    SkillState.REMOVED: "install its archive again: `palyra skill install FILE`",
}


class WrongState(InvalidInput):
    code = "skill.wrong_state"
    hint = "`palyra skill show SKILL` tells the state of every version"
    http_status = 409


def after(state: SkillState, event: SkillEvent) -> SkillState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        hint = _WAY_INTO_USE.get(state) if event in _INTO_USE else None
        message = f"a version that is {state.value} cannot {in_words(event)}"
        raise WrongState(message, hint=hint, state=state.value) from None


def in_words(event: SkillEvent) -> str:
    passive = {
        SkillEvent.INGEST: "be installed again",
        SkillEvent.AUDIT: "be audited",
        SkillEvent.QUARANTINE: "be put in quarantine",
        SkillEvent.APPROVE: "be approved",
        SkillEvent.DISABLE: "be disabled",
        SkillEvent.ENABLE: "be enabled",
        SkillEvent.SUPERSEDE: "be superseded",
        SkillEvent.ROLL_BACK: "be rolled back to",
        SkillEvent.FAIL: "fail",
        SkillEvent.REMOVE: "be removed",
    }
    return passive[event]


KEY_REVOKED: Final = "skill.key_revoked"
_PUT_IN_USE: Final = frozenset(
    KIND_OF[event] for (_, event), state in TRANSITIONS.items() if state is SkillState.APPROVED
)
_TAKEN_OUT: Final = frozenset(KIND_OF[event] for state, event in TRANSITIONS if state is SkillState.APPROVED)
KINDS: Final = tuple(sorted(_PUT_IN_USE | _TAKEN_OUT | {KEY_REVOKED}))


class PutInUse(msgspec.Struct, frozen=True, kw_only=True):
    """The entry that put a version in use. ``seq`` is its number in the journal."""

    seq: int
    skill_id: str
    version: str
    digest: str
    key_id: str


class UseOnRecord:
    """The versions in use by the journal alone, whatever the tables say. It takes the events one by one, in order."""

    def __init__(self) -> None:
        self.seq = 0
        self.revoked: set[str] = set()
        self._in_use: dict[str, PutInUse] = {}

    def in_use(self, skill_id: str) -> PutInUse | None:
        return self._in_use.get(skill_id)

    def apply(self, seq: int, kind: str, payload: bytes) -> None:
        """Apply the next event of ``KINDS``. About a version that waits or was replaced, it changes nothing."""
        self.seq = seq
        fields = {name: value for name, value in read_payload(payload).items() if isinstance(value, str)}
        if kind == KEY_REVOKED:
            self.revoked.add(fields.get("key_id", ""))
            return
        names = {name: fields.get(name, "") for name in ("skill_id", "version", "digest", "key_id")}
        before = self._in_use.get(names["skill_id"])
        if kind in _PUT_IN_USE:
            self._in_use[names["skill_id"]] = PutInUse(seq=seq, **names)
        elif before is not None and before.digest == names["digest"]:
            del self._in_use[names["skill_id"]]


def read_payload(payload: Any) -> dict[str, Any]:
    """Read an event's payload. A broken one is empty here: verifying the journal will name it."""
    try:
        fields = msgspec.json.decode(payload)
    except (ValueError, RecursionError, TypeError):
        return {}
    return fields if isinstance(fields, dict) else {}
