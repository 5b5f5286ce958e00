"""Access and vault: the tokens of agents and people, and the secrets, whose values no page shows."""

import asyncio
from typing import Any

import msgspec

from palyra.identity.api_tokens import list_tokens, revoke_token
from palyra.ids import TokenId
from palyra.journal.search import EventQuery, search_events
from palyra.server.console.limits import PAGE_ROWS
from palyra.server.console.page import Listing, Page, Role, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.server.http.operator import TokenBody, secret_view, store_token, token_view
from palyra.vault.reference import SecretRef


class RevokeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request that ends a token: it has no fields."""


async def show_access(console: Console, visit: Visit) -> dict[str, Any]:
    tokens = await asyncio.to_thread(list_tokens, console.store)
    now_ms = console.service.clock.now_ms()
    over = [one for one in tokens if one.revoked_ms is not None or (one.expires_ms or now_ms + 1) <= now_ms]
    return {
        "tokens": [one for one in reversed(tokens) if one not in over],
        "over": len(over),
        "own": visit.session.token_id,
    }


async def list_tokens_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    tokens = await asyncio.to_thread(list_tokens, console.store)
    return {"tokens": [token_view(one) for one in reversed(tokens)]}


async def make_token(console: Console, visit: Visit, body: TokenBody) -> dict[str, Any]:
    """Return the token, this once: the store keeps its hash."""
    console.service.require_operator(visit.caller, "config.change")
    record, text = await store_token(console.service, body, visit.caller.actor)
    made: dict[str, Any] = msgspec.to_builtins(token_view(record))
    return {**made, "message": text.reveal()}


async def revoke(console: Console, visit: Visit, _body: RevokeBody) -> Any:
    console.service.require_operator(visit.caller, "config.change")
    token_id = TokenId.parse(visit.path("token_id"))
    return token_view(await console.store.transact(lambda tx: revoke_token(tx, token_id, actor=visit.caller.actor)))


SECTION = Section(
    pages=(
        Page(
            path="/access",
            template="access.html",
            title="Access",
            show=show_access,
            live=("credential.created", "credential.revoked"),
        ),
    ),
    listings=(Listing(path="/console/v1/tokens", show=list_tokens_as_json),),
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


USES = ("vault.secret_used", "vault.use_denied")


async def show_vault(console: Console, visit: Visit) -> dict[str, Any]:
    after = visit.query("after")
    secrets = await asyncio.to_thread(
        console.service.vault().list, after=SecretRef.parse(after) if after else None, limit=PAGE_ROWS
    )
    uses = await asyncio.gather(*(asyncio.to_thread(_newest, console, kind) for kind in USES))
    return {
        "secrets": secrets,
        "next": str(secrets[-1].ref) if len(secrets) == PAGE_ROWS else None,
        "status": await console.service.vault().status(),
        "uses": sorted((event for found in uses for event in found), key=lambda event: event.seq, reverse=True),
    }


async def list_secrets_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    shown = await show_vault(console, visit)
    return {"secrets": [secret_view(info) for info in shown["secrets"]], "next": shown["next"]}


def _newest(console: Console, kind: str) -> Any:
    return search_events(console.store, EventQuery(kind=kind), limit=PAGE_ROWS // 2, look_at=PAGE_ROWS).events


VAULT_SECTION = Section(
    pages=(Page(path="/vault", template="vault.html", title="Vault", menu="Vault", show=show_vault, live=("vault.",)),),
    listings=(Listing(path="/console/v1/vault", show=list_secrets_as_json),),
)
