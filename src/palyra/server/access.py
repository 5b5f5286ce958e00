"""Who is calling: the token behind a request, and the principal it may speak for."""

from typing import TYPE_CHECKING

import msgspec

from palyra.clock import Clock
from palyra.identity.api_tokens import TokenRecord, TokenScope, Unauthenticated, authenticate
from palyra.ids import Principal
from palyra.store.port import Reader

if TYPE_CHECKING:
    from starlette.requests import Request


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    token: TokenRecord
    principal: Principal

    @property
    def actor(self) -> str:
        return str(self.principal)

    @property
    def operates(self) -> bool:
        return TokenScope.OPERATE in self.token.scopes

    def speaks_for(self, asked: str | None) -> Principal:
        """The principal of a request: the token's own, or another one where the token may operate."""
        if asked is None or asked == str(self.principal):
            return self.principal
        self.token.require(TokenScope.OPERATE)
        return Principal.parse(asked)

    def sees(self) -> str | None:
        """Whose calls and runs this caller may see: None is everybody's."""
        return None if self.operates else str(self.principal)


def caller_of(request: "Request", reader: Reader, clock: Clock) -> Caller:
    scheme, _, raw = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not raw:
        raise Unauthenticated("this needs a token")
    record = authenticate(reader, raw.strip(), clock.now_ms())
    return Caller(token=record, principal=Principal.parse(record.principal))
