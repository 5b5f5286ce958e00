"""Access: tokens of agents and people. Making and ending them is for the role admin."""

import asyncio
from typing import Any

import msgspec

from palyra.api.operator import TokenBody, token_view
from palyra.clock import MS_PER_SECOND
from palyra.console.console import Console
from palyra.console.page import Listing, Page, Section, Write
from palyra.console.roles import Role
from palyra.console.visit import Visit
from palyra.identity.api_token import TokenScope
from palyra.identity.principal import Principal
from palyra.identity.sqlite_tokens import create_token, list_tokens, revoke_token
from palyra.ids import RunId, TokenId


class RevokeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ending a token needs nothing but its id."""


async def show_access(console: Console, visit: Visit) -> dict[str, Any]:
    tokens = await asyncio.to_thread(list_tokens, console.store)
    now_ms = console.service.clock.now_ms()
    over = [one for one in tokens if one.revoked_ms is not None or (one.expires_ms or now_ms + 1) <= now_ms]
    return {
        "tokens": [one for one in reversed(tokens) if one not in over],
        "over": len(over),
        "own": visit.session.token_id,
    }


async def list_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    tokens = await asyncio.to_thread(list_tokens, console.store)
    return {"tokens": [token_view(one) for one in reversed(tokens)]}


async def make_token(console: Console, visit: Visit, body: TokenBody) -> dict[str, Any]:
    """A token as it is shown, once: what is kept of it is a hash."""
    console.service.require_config_change(visit.caller)
    principal = Principal.parse(body.principal)
    run_id = "" if body.run_id is None else str(RunId.parse(body.run_id))
    record, text = await console.store.transact(
        lambda tx: create_token(
            tx,
            principal,
            tuple(TokenScope(scope) for scope in body.scopes),
            actor=visit.caller.actor,
            label=body.label,
            run_id=run_id,
            ttl_ms=None if body.ttl_seconds is None else body.ttl_seconds * MS_PER_SECOND,
        )
    )
    made: dict[str, Any] = msgspec.to_builtins(token_view(record))
    return {**made, "message": text.reveal()}


async def revoke(console: Console, visit: Visit, _body: RevokeBody) -> Any:
    console.service.require_config_change(visit.caller)
    token_id = TokenId.parse(visit.path("token_id"))
    return token_view(await console.store.transact(lambda tx: revoke_token(tx, token_id, actor=visit.caller.actor)))


SECTION = Section(
    pages=(
        Page(
            path="/access",
            template="access.html",
            title="Access",
            menu="Access",
            icon="access",
            show=show_access,
            live=("credential.created", "credential.revoked"),
        ),
    ),
    listings=(Listing(path="/console/v1/tokens", show=list_as_json),),
    writes=(
        Write(
            path="/console/v1/tokens",
            name="token.create",
            act=make_token,
            body=TokenBody,
            role=Role.ADMIN,
            shown_once=True,
        ),
        Write(
            path="/console/v1/tokens/{token_id}/revoke",
            name="token.revoke",
            act=revoke,
            body=RevokeBody,
            role=Role.ADMIN,
        ),
    ),
)
