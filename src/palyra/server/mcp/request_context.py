"""What the request behind a message says of its sender: token, principal, session."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from palyra.executors.mcp_upstream.limits import MAX_SESSIONS, SESSION_IDLE_SECONDS
from palyra.identity.api_tokens import Unauthenticated
from palyra.ids import PRINCIPAL_HEADER, RunId
from palyra.server.mcp.service import Visitor

SESSION_HEADER: Final = "mcp-session-id"
# The key in a request's scope that names a connection on stdio.
CONNECTION: Final = "palyra.connection"
APPROVALS_PAGE: Final = "/approvals"
# A file of the state directory that says: agents have come over the protocol here before. A daemon that
# finds it loads the protocol's library without being asked.
USED_FILE: Final = "mcp.used"


class DoorRequest(Protocol):
    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def scope(self) -> Any: ...


def token_of(request: DoorRequest | None) -> str:
    scheme, _, raw = ("" if request is None else request.headers.get("authorization", "")).partition(" ")
    if scheme.lower() != "bearer" or not raw.strip():
        raise Unauthenticated("this needs a token")
    return raw.strip()


def speaks_for(request: DoorRequest | None) -> str | None:
    return None if request is None else request.headers.get(PRINCIPAL_HEADER)


def session_of(request: DoorRequest | None, token_id: str) -> str:
    """Without a session of its own a request belongs to its token's."""
    if request is None:
        return token_id
    return str(request.scope.get(CONNECTION) or request.headers.get(SESSION_HEADER) or token_id)


def console_of(request: DoorRequest | None) -> str:
    """Where a person decides approvals on this daemon, by the name that the request called it by: one of its own."""
    host = "" if request is None else request.headers.get("host", "")
    return f"{request.scope.get('scheme', 'http')}://{host}{APPROVALS_PAGE}" if request is not None and host else ""


# Which run the calls of a session belong to.
#
# Calls of one session share a run: its budget, and the handles that earlier calls returned. A session is a connection
# on stdio, a session id over HTTP, and, where the protocol has no sessions, the token itself while it is in use.


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
