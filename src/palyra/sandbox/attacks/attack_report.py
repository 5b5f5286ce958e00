"""The list of verdicts, what they come to, and the error that makes a success known."""

from collections import Counter
from typing import Any

import msgspec

from palyra.errors import Failed, Unavailable
from palyra.sandbox.attacks.verdict import Result, Verdict
from palyra.sandbox.profile import SandboxTier


class Escaped(Failed):
    """An attempt that a tier promises to stop succeeded on this machine."""

    code = "doctor.escaped"
    hint = "do not run untrusted programs in this tier here; the list names the layer that should have stopped it"


class NotAttacked(Unavailable):
    """A tier in which nothing at all could be tried is no tier that held."""

    code = "doctor.not_attacked"
    hint = "`palyra doctor` shows what this machine lacks"


class TierCount(msgspec.Struct, frozen=True, kw_only=True):
    tier: SandboxTier
    blocked: int
    not_blocked: int
    not_promised: int
    not_applicable: int


class AttackReport(msgspec.Struct, frozen=True, kw_only=True):
    """``user`` is the numeric id the attempts were made as."""

    verdicts: tuple[Verdict, ...]
    user: int
    seconds: float

    @property
    def escapes(self) -> tuple[Verdict, ...]:
        return tuple(each for each in self.verdicts if each.result is Result.NOT_BLOCKED and each.promised)

    @property
    def attempted(self) -> tuple[Verdict, ...]:
        return tuple(each for each in self.verdicts if each.result is not Result.NOT_APPLICABLE)

    def counts(self) -> tuple[TierCount, ...]:
        return tuple(self._count(tier) for tier in SandboxTier if any(each.tier is tier for each in self.verdicts))

    def _count(self, tier: SandboxTier) -> TierCount:
        of_tier = [each for each in self.verdicts if each.tier is tier]
        by = Counter((each.result, each.promised) for each in of_tier)
        return TierCount(
            tier=tier,
            blocked=by[Result.BLOCKED, True] + by[Result.BLOCKED, False],
            not_blocked=by[Result.NOT_BLOCKED, True],
            not_promised=by[Result.NOT_BLOCKED, False],
            not_applicable=by[Result.NOT_APPLICABLE, True] + by[Result.NOT_APPLICABLE, False],
        )

    def summary(self) -> str:
        lines = [
            f"Tier {count.tier.upper()}: {count.blocked} blocked, {count.not_blocked} not blocked, "
            f"{count.not_promised} not blocked and not promised, {count.not_applicable} not applicable"
            for count in self.counts()
        ]
        distinct = len({each.id for each in self.attempted})
        return "\n".join([*lines, f"{distinct} distinct attempts as uid {self.user} in {self.seconds:.1f} s"])

    @property
    def idle(self) -> tuple[SandboxTier, ...]:
        """Tiers in which nothing at all was tried."""
        return tuple(
            count.tier for count in self.counts() if not count.blocked + count.not_blocked + count.not_promised
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "attempts": [msgspec.to_builtins(each) for each in self.verdicts],
            "tiers": [msgspec.to_builtins(each) for each in self.counts()],
            "distinct_attempts": len({each.id for each in self.attempted}),
            "user": self.user,
            "seconds": self.seconds,
        }

    def raise_if_escaped(self) -> None:
        """Raises for successes first; then for a tier in which nothing was tried."""
        if self.escapes:
            names = ", ".join(f"{each.id} (tier {each.tier})" for each in self.escapes)
            count = len(self.escapes)
            said = f"{count} attempts were not blocked" if count > 1 else "an attempt was not blocked"
            raise Escaped(f"{said}: {names}", **self.as_dict())
        if self.idle:
            reason = next(each.evidence for each in self.verdicts if each.tier in self.idle)
            raise NotAttacked(f"nothing could be tried in tier {', '.join(self.idle)}: {reason}", **self.as_dict())
