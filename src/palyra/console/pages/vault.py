"""Vault: which secrets there are and what they were used for. No page and no answer has a value."""

import asyncio
from typing import Any

from palyra.api.vault import secret_view
from palyra.console.console import Console
from palyra.console.limits import PAGE_ROWS
from palyra.console.page import Listing, Page, Section
from palyra.console.visit import Visit
from palyra.journal.sqlite_search import EventQuery, search_events
from palyra.vault.ref import SecretRef

USES = ("vault.secret_used", "vault.use_denied")


async def show_vault(console: Console, visit: Visit) -> dict[str, Any]:
    after = visit.query("after")
    secrets = await asyncio.to_thread(
        console.service.vault.list, after=SecretRef.parse(after) if after else None, limit=PAGE_ROWS
    )
    uses = await asyncio.gather(*(asyncio.to_thread(_newest, console, kind) for kind in USES))
    return {
        "secrets": secrets,
        "next": str(secrets[-1].ref) if len(secrets) == PAGE_ROWS else None,
        "status": await console.service.vault.status(),
        "uses": sorted((event for found in uses for event in found), key=lambda event: event.seq, reverse=True),
    }


async def list_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    shown = await show_vault(console, visit)
    return {"secrets": [secret_view(info) for info in shown["secrets"]], "next": shown["next"]}


def _newest(console: Console, kind: str) -> Any:
    return search_events(console.store, EventQuery(kind=kind), limit=PAGE_ROWS // 2, look_at=PAGE_ROWS).events


SECTION = Section(
    pages=(
        Page(
            path="/vault",
            template="vault.html",
            title="Vault",
            menu="Vault",
            icon="vault",
            show=show_vault,
            live=("vault.",),
        ),
    ),
    listings=(Listing(path="/console/v1/vault", show=list_as_json),),
)
