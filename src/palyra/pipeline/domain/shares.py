"""Fair shares of the calls in progress: of all, of one principal, and what is kept for operators."""

from collections import Counter
from collections.abc import Collection
from typing import Final, Self

import msgspec

from palyra.errors import LimitExceeded
from palyra.ids import Principal
from palyra.pipeline.domain.call import ToolCallConfig, TooManyCalls
from palyra.policy.request import OPERATORS, EntityDirectory

# A principal's share of calls is never more than this part of all, however few calls are allowed.
SHARE_OF_ALL: Final = 3 / 4
# The operators' reserve is never more than this part of all calls.
RESERVE_OF_ALL: Final = 1 / 4
# Principals that a refusal names to an operator, those with the most calls first.
MAX_NAMED_HOLDERS: Final = 8
# Only a token with the scope ``operate`` may name these channels.
OPERATORS_CHANNELS: Final = frozenset(("cli", "console"))


class ShareUsed(LimitExceeded):
    code = "call.share_used"
    hint = "wait for one of this principal's calls to end, or cancel one; tools.max_concurrent_calls_per_principal"


def is_operators_own(directory: EntityDirectory, principal: Principal, channel: str) -> bool:
    """Return whether an operator makes the call, or has it made in a terminal or the console.

    An agent's MCP client may work with an operator's token: its calls are the agent's.
    """
    return channel in OPERATORS_CHANNELS or str(principal) in directory.groups.get(OPERATORS, ())


class CallShares(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of calls in progress: of all, of one principal, and what of all is kept for operators."""

    total: int
    share: int
    reserve: int

    @classmethod
    def of(cls, config: ToolCallConfig) -> Self:
        """Take the settings, fitted to a total that is smaller than they expect."""
        total = config.max_concurrent_calls
        return cls(
            total=total,
            share=max(1, min(config.max_concurrent_calls_per_principal, int(total * SHARE_OF_ALL))),
            reserve=min(config.calls_for_operators, int(total * RESERVE_OF_ALL)),
        )

    def refuse(self, holders: Collection[str], principal: str, *, operators_own: bool) -> LimitExceeded | None:
        """Return why one more call may not start. ``holders`` has the principal of each call in progress."""
        busy = len(holders)
        if operators_own:
            return TooManyCalls(_describe_holders(holders), holders=_count(holders)) if busy >= self.total else None
        if busy >= self.share and (held := sum(each == principal for each in holders)) >= self.share:
            return ShareUsed(f"{principal} has {held} calls in progress, all of its share", share=self.share, held=held)
        if busy >= self.total - self.reserve:
            # Without names: a principal learns nothing of the others.
            return TooManyCalls(f"{busy} calls are in progress, and the rest is kept for operators")
        return None


def _count(holders: Collection[str]) -> dict[str, int]:
    return dict(Counter(holders).most_common(MAX_NAMED_HOLDERS))


def _describe_holders(holders: Collection[str]) -> str:
    shares = ", ".join(f"{count} of {holder}" for holder, count in _count(holders).items())
    return f"{len(holders)} calls are in progress: {shares}"
