"""The first part of a unit of work, done while its caller still computes the rest of what is to be written.

Nothing of it is kept until the rest is done in the same transaction. Whoever wants to write meanwhile takes it back,
and the whole is done later, as if there had been no head start.
"""

from collections.abc import Callable
from typing import Any

from palyra.journal.transaction import Group, Transaction


class HeadStart:
    """A transaction that is open, with what was done in it. To be given to a unit whose work looks at
    ``Transaction.head_start``: it finds there what the first part returned, or None."""

    __slots__ = ("_known", "first_head", "group", "seconds", "transaction")

    def __init__(self, group: Group, first: Callable[[Transaction], Any]) -> None:
        """Raises what ``first`` raises; the caller then takes the transaction back. ``first`` returns something."""
        group.alone = True
        self.group = group
        self._known = group.redactor.known
        self.first_head = group.seq
        # How long it took, for who counts it to the whole.
        self.seconds = 0.0
        self.transaction = Transaction(group)
        self.transaction.head_start = first(self.transaction)
        if self.transaction.fault is not None:
            raise self.transaction.fault
        self.transaction.write()

    def stands(self) -> bool:
        """Whether it may be kept: a secret that was learned since might be in it."""
        return self._known == self.group.redactor.known

    def resumed(self, now_ms: int) -> tuple[Group, Transaction]:
        """For the rest, which is done later than the first part."""
        self.group.now_ms = self.transaction.now_ms = now_ms
        return self.group, self.transaction
