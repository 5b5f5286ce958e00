"""The verdict on an attempt, from what is seen outside and from what the attacking program prints.

A success that either of them shows is a success. An attempt counts as stopped only where something says that it was
made and stopped: an attacking program that ends without an answer proves nothing.
"""

from collections import Counter
from enum import StrEnum
from signal import Signals
from typing import Any, Final

import msgspec

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Layers
from palyra.errors import Failed, Unavailable
from palyra.sandbox.domain.profile import Layer, SandboxTier

_SIGSYS: Final = int(Signals.SIGSYS)
_SIGNAL_BASE: Final = 128
MAX_SHOWN: Final = 200


class Result(StrEnum):
    BLOCKED = "blocked"
    NOT_BLOCKED = "not blocked"
    NOT_APPLICABLE = "not applicable"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The one line of the attacking program. ``escaped`` is None where it found nothing to try."""

    escaped: bool | None
    evidence: str
    errno: str | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One run as seen from outside.

    ``traces`` are the things that must not be there: bait that changed, a secret that came out, a process that stayed.
    ``refused`` is the code of the sandbox's error. ``held`` is None where the run ended before there was a receipt.
    """

    traces: tuple[str, ...] = ()
    answer: Answer | None = None
    refused: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    held: frozenset[Layer] | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``layer`` is what stopped it, or what should have. ``promised`` says that the tier answers for it here."""

    id: str
    tier: SandboxTier
    kind: AttackClass
    title: str
    result: Result
    layer: str
    evidence: str
    promised: bool


def judge(attempt: Attempt, tier: SandboxTier, observed: Observed, *, root: bool) -> Verdict:
    binding = _binding(attempt, tier, observed, root=root)
    result, evidence = _result(attempt, observed)
    layer = _layer(attempt, tier, observed, binding, result)
    return _verdict(attempt, tier, result, layer, evidence, promised=bool(binding))


def not_tried(attempt: Attempt, tier: SandboxTier, reason: str) -> Verdict:
    return _verdict(attempt, tier, Result.NOT_APPLICABLE, "", reason, promised=bool(attempt.promise(tier)))


def _verdict(
    attempt: Attempt, tier: SandboxTier, result: Result, layer: str, evidence: str, *, promised: bool
) -> Verdict:
    return Verdict(
        id=attempt.id,
        tier=tier,
        kind=attempt.kind,
        title=attempt.title,
        result=result,
        layer=layer,
        evidence=evidence[:MAX_SHOWN],
        promised=promised,
    )


def _result(attempt: Attempt, observed: Observed) -> tuple[Result, str]:
    if observed.traces:
        return Result.NOT_BLOCKED, "; ".join(observed.traces)
    if observed.refused:
        known = observed.refused in attempt.refused_by
        said = f"{observed.refused}: {observed.message}"
        return (Result.BLOCKED, said) if known else (Result.NOT_APPLICABLE, f"the attempt could not be made: {said}")
    answer = observed.answer
    if answer is not None and answer.escaped and attempt.seen_outside:
        return Result.BLOCKED, f"{answer.evidence}: nothing of it is seen outside"
    if answer is not None and answer.escaped is not None:
        return (Result.NOT_BLOCKED if answer.escaped else Result.BLOCKED), answer.evidence
    if answer is not None:
        return Result.NOT_APPLICABLE, answer.evidence
    ending = _signal(observed)
    if ending in (*attempt.ended_by, _SIGSYS):
        return Result.BLOCKED, f"ended by {Signals(ending).name}"
    if attempt.command and observed.exit_code is not None:
        return Result.NOT_BLOCKED, f"the command was started (exit code {observed.exit_code})"
    ended = f"exit code {observed.exit_code}" if observed.signal is None else f"signal {observed.signal}"
    return Result.NOT_APPLICABLE, f"the attacking program ended without an answer ({ended})"


def _signal(observed: Observed) -> int | None:
    """Return the signal that ended the program. bubblewrap adds 128 to its number, as shells do."""
    if observed.signal is not None or observed.exit_code is None or observed.exit_code <= _SIGNAL_BASE:
        return observed.signal
    return observed.exit_code - _SIGNAL_BASE


def _binding(attempt: Attempt, tier: SandboxTier, observed: Observed, *, root: bool) -> Layers:
    """Select the layers of the promise that were in force for this run."""
    asked = attempt.promise(tier) or ()
    usable = tuple(layer for layer in asked if not (root and layer in attempt.not_for_root))
    if observed.held is None:
        return usable
    return tuple(layer for layer in usable if layer in observed.held)


def _layer(attempt: Attempt, tier: SandboxTier, observed: Observed, binding: Layers, result: Result) -> str:
    if result is Result.NOT_APPLICABLE:
        return ""
    if result is Result.BLOCKED and attempt.command:
        return observed.refused.partition(".")[2].removesuffix("_denied") + " guard" if observed.refused else ""
    if result is Result.BLOCKED and _signal(observed) == _SIGSYS:
        return Layer.SECCOMP
    # A full answer "no such call" comes from the filter wherever it is among the layers.
    answer = observed.answer
    if answer is not None and answer.errno == "ENOSYS" and Layer.SECCOMP in binding:
        return Layer.SECCOMP
    asked = binding or attempt.promise(tier) or ()
    return asked[0] if asked else "not promised"


class Escaped(Failed):
    """An attempt that a tier promises to stop succeeded on this machine."""

    code = "doctor.escaped"
    hint = "do not run untrusted programs in this tier here; the list names the layer that should have stopped it"


class NotAttacked(Unavailable):
    """Nothing at all could be tried in a tier: that does not show that it held."""

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
        """List tiers in which nothing at all was tried."""
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
        """Raise for successes first; then for a tier in which nothing was tried."""
        if self.escapes:
            names = ", ".join(f"{each.id} (tier {each.tier})" for each in self.escapes)
            count = len(self.escapes)
            said = f"{count} attempts were not blocked" if count > 1 else "an attempt was not blocked"
            raise Escaped(f"{said}: {names}", **self.as_dict())
        if self.idle:
            reason = next(each.evidence for each in self.verdicts if each.tier in self.idle)
            raise NotAttacked(f"nothing could be tried in tier {', '.join(self.idle)}: {reason}", **self.as_dict())
