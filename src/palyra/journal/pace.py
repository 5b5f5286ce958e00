"""Whether a commit may be waited for where it is asked for, by how long commits take and what they leave to do."""

from typing import Final

# A loop that waits for the disk does nothing else. As long as this it may: it is ten times what a good disk takes.
QUICK_SECONDS: Final = 0.004
# After a commit that took longer, so many must be quick in the writer's thread before one is waited for again, times
# the square of how often it took that long; twice as many after the next, up to a bound, so that a slow disk is tried
# ever more seldom. One that was slow a single time is forgiven after so many quick ones. A good disk of a shared
# machine stumbles for some milliseconds now and then: it must stay among the quick, or every call there pays for two
# threads that wake each other. One that stands still for long must not stay there, however seldom that is.
FIRST_PENALTY: Final = 2
MAX_PENALTY: Final = 4_096
FORGIVEN_AFTER: Final = 16
# SQLite moves what was committed into the database when a thousand pages wait for it. That takes several commits' time
# and is the thread's to do, so it is done a little sooner; an event is about three pages with its part of the tables.
EVENTS_BETWEEN_MOVES: Final = 200


class Pace:
    """Told of every commit, asked before each. Has no clock of its own."""

    def __init__(self) -> None:
        self._owed = 0
        self._penalty = FIRST_PENALTY
        self._quick_here = 0
        self._events = 0

    def quick(self) -> bool:
        return self._owed <= 0

    def move_due(self) -> bool:
        """Whether enough was committed for SQLite to move it into the database."""
        return self._events >= EVENTS_BETWEEN_MOVES

    def moved(self) -> None:
        self._events = 0

    def note(self, seconds: float, events: int, *, here: bool) -> None:
        """A commit of so many events took so long, in the caller's own thread or in the writer's."""
        self._events += events
        if seconds <= QUICK_SECONDS:
            if not here:
                self._owed -= self._owed > 0
            elif self._penalty > FIRST_PENALTY:
                self._quick_here += 1
                if self._quick_here >= FORGIVEN_AFTER:
                    self._penalty = FIRST_PENALTY
            return
        if here:
            self._owed = min(_weight(seconds) * self._penalty, MAX_PENALTY)
            self._penalty = min(2 * self._penalty, MAX_PENALTY)
            self._quick_here = 0
        elif self._owed > 0:
            self._owed = max(self._owed, min(_weight(seconds), MAX_PENALTY), self._penalty // 2)


def _weight(seconds: float) -> int:
    return int((seconds / QUICK_SECONDS) ** 2)
