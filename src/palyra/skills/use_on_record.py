"""What the journal alone says about which version of a skill is in use, whatever the tables say.

Told event after event, in their order, so that who remembers how far that went never begins again.
"""

from typing import Any, Final

import msgspec

from palyra.skills.lifecycle import KIND_OF, TRANSITIONS, SkillState

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
    def __init__(self) -> None:
        self.seq = 0
        self.revoked: set[str] = set()
        self._in_use: dict[str, PutInUse] = {}

    def in_use(self, skill_id: str) -> PutInUse | None:
        return self._in_use.get(skill_id)

    def tell(self, seq: int, kind: str, payload: bytes) -> None:
        """The next event of ``KINDS``. About a version that waits or was replaced, it changes nothing."""
        self.seq = seq
        told = _fields(payload)
        if kind == KEY_REVOKED:
            self.revoked.add(told.get("key_id", ""))
            return
        names = {name: told.get(name, "") for name in ("skill_id", "version", "digest", "key_id")}
        before = self._in_use.get(names["skill_id"])
        if kind in _PUT_IN_USE:
            self._in_use[names["skill_id"]] = PutInUse(seq=seq, **names)
        elif before is not None and before.digest == names["digest"]:
            del self._in_use[names["skill_id"]]


def _fields(payload: bytes) -> dict[str, Any]:
    """What of it is text. What somebody has broken says nothing; verifying the journal will name it."""
    try:
        told = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return {}
    return {name: value for name, value in told.items() if isinstance(value, str)} if isinstance(told, dict) else {}
