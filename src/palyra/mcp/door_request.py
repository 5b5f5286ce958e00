"""What the request behind a message says of its sender: token, principal, session."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from palyra.identity.api_token import Unauthenticated

# Set by our own program on stdio, which holds the owner's token and speaks for an agent.
PRINCIPAL_HEADER: Final = "palyra-principal"
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
