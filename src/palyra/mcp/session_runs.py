"""Which run the calls of a session belong to.

Calls of one session share a run: its budget, and the handles that earlier calls returned. A session is a connection on
stdio, a session id over HTTP, and, where the protocol has no sessions, the token itself while it is in use.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from palyra.ids import RunId
from palyra.mcp.limits import MAX_SESSIONS, SESSION_IDLE_SECONDS
from palyra.mcp.ports import Visitor


class _Session(msgspec.Struct):
    run_id: RunId
    used: float


class SessionRuns:
    """``now`` is a clock that only goes forward; ``new_run`` makes an id."""

    def __init__(self, now: Callable[[], float], new_run: Callable[[], RunId] = RunId.new) -> None:
        self._now = now
        self._new_run = new_run
        self._sessions: OrderedDict[tuple[str, str, str], _Session] = OrderedDict()

    def run_of(self, visitor: Visitor, session: str) -> RunId:
        """The session's run; a new one for a session that is new, or was left alone for too long."""
        if visitor.run_id:
            return RunId.parse(visitor.run_id)
        now = self._now()
        self._forget(now)
        # By token and principal too: a session id is no secret worth relying on.
        key = (visitor.token_id, visitor.principal, session)
        known = self._sessions.pop(key, None) or _Session(self._new_run(), now)
        known.used = now
        self._sessions[key] = known
        return known.run_id

    def _forget(self, now: float) -> None:
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if len(self._sessions) <= MAX_SESSIONS and now - oldest.used < SESSION_IDLE_SECONDS:
                return
            self._sessions.popitem(last=False)

    def __len__(self) -> int:
        return len(self._sessions)
