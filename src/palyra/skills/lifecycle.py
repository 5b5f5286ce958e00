"""The life of one version of a skill. One table holds every transition; what is not in it is refused.

A version is one (skill id, version, digest). Only ``approved`` runs, and a skill has at most one version in it.
"""

from enum import StrEnum
from typing import Final

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
# For who tried another way: the one that there is from each state.
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
