"""One budget of bytes for several proxy processes at the same address.

A file that all of them hold says how much of the budget has been handed out. A process takes a portion under a lock and
spends it alone, so that all together never move a byte more, and ordinary reads cost no lock. What a process took and
did not spend is lost to the others: portions are small against what is left.
"""

import fcntl
import os
import tempfile

from palyra.egress.meter import ByteBudget
from palyra.egress.proxy_limits import MAX_LEASE_BYTES, MIN_LEASE_BYTES, SHARES_OF_THE_REST

_COUNT_BYTES = 8


class BudgetFile:
    """``taken`` bytes of ``total``. Its descriptor is inherited; a process that dies under the lock gives it back."""

    def __init__(self, total: int, descriptor: int) -> None:
        self.total = total
        self.descriptor = descriptor

    @classmethod
    def create(cls, total: int) -> "BudgetFile":
        with tempfile.TemporaryFile() as file:
            made = cls(total, os.dup(file.fileno()))
        os.pwrite(made.descriptor, bytes(_COUNT_BYTES), 0)
        return made

    def lease(self) -> int:
        """A portion of what is left for the caller alone; 0 when all is handed out."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            taken = int.from_bytes(os.pread(self.descriptor, _COUNT_BYTES, 0), "little")
            left = self.total - taken
            portion = min(left, MAX_LEASE_BYTES, max(left // SHARES_OF_THE_REST, MIN_LEASE_BYTES))
            os.pwrite(self.descriptor, (taken + portion).to_bytes(_COUNT_BYTES, "little"), 0)
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
        return portion

    def close(self) -> None:
        os.close(self.descriptor)


class LeasedBudget(ByteBudget):
    """This process's part of a shared budget: it grows while the file has more. Setting ``limit`` ends that."""

    __slots__ = ("_file", "_grows", "_limit")

    def __init__(self, file: BudgetFile) -> None:
        super().__init__(0)
        self._file = file
        self._grows = True

    @property
    def limit(self) -> int:
        if self._grows and self._limit - self.up - self.down < MIN_LEASE_BYTES:
            self._grow()
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._grows = False

    def extend(self, count: int) -> int:
        while self._grows and self._limit - self.spent < count:
            self._grow()
        return self._limit - self.spent

    def _grow(self) -> None:
        portion = self._file.lease()
        self._grows = portion > 0
        self._limit += portion

    @property
    def granted(self) -> int:
        return self._file.total
