"""Who a request speaks for."""

from typing import Any

import pytest
from starlette.requests import Request

from palyra.clock import SystemClock
from palyra.identity.api_tokens import ScopeMissing, TokenRecord, TokenScope, Unauthenticated
from palyra.ids import InvalidPrincipal, Principal
from palyra.server.context import Caller, authenticate_request


def a_caller(*scopes: TokenScope) -> Caller:
    record = TokenRecord(token_id="t", secret_sha256="", principal="agent:bot", scopes=scopes, created_ms=0)
    return Caller(token=record, principal=Principal.parse("agent:bot"))


class NoTokens:
    def __init__(self) -> None:
        self.asked = 0

    def read(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        self.asked += 1
        return []


def test_an_agent_speaks_for_itself_only() -> None:
    agent = a_caller(TokenScope.CALL)
    assert str(agent.on_behalf_of(None)) == str(agent.on_behalf_of("agent:bot")) == "agent:bot"
    for other in ("agent:other", "user:operator", "not a principal"):
        with pytest.raises(ScopeMissing):
            agent.on_behalf_of(other)


def test_an_operator_speaks_for_others_who_are_principals() -> None:
    operator = a_caller(TokenScope.OPERATE)
    assert str(operator.on_behalf_of("user:alice")) == "user:alice"
    with pytest.raises(InvalidPrincipal):
        operator.on_behalf_of("root")


def test_who_sees_what() -> None:
    assert a_caller(TokenScope.CALL).sees() == "agent:bot"
    assert a_caller(TokenScope.CALL, TokenScope.OPERATE).sees() is None
    assert a_caller(TokenScope.OPERATE).actor == "agent:bot"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 43, "Bearer x"]
)
def test_anything_but_a_bearer_token_is_not_looked_up(header: str) -> None:
    reader = NoTokens()
    headers = [(b"authorization", header.encode())] if header else []
    request = Request({"type": "http", "headers": headers})
    with pytest.raises(Unauthenticated):
        authenticate_request(request, reader, SystemClock())
    assert reader.asked == 0


def test_a_token_in_the_query_is_not_taken() -> None:
    query = b"token=plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + b"a" * 43
    with pytest.raises(Unauthenticated):
        authenticate_request(Request({"type": "http", "headers": [], "query_string": query}), NoTokens(), SystemClock())
