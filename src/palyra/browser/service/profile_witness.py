"""palyrad's memory of the browser daemon's profiles, which their folder cannot keep itself.

A process that can write the folder can put back an older copy of all of it, in which everything fits together. So
palyrad stores the last change that it received, in its own database, and reports it to each browser daemon. If the
daemon's profiles do not follow that change, nobody uses them until an operator accepts them. The browser daemon
stores a change before it reports it. A crash in between leaves palyrad behind, which is not refused.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from palyra.browser.domain.session_api import Caller, ProfilesHead
from palyra.browser.profiles.tables import put_last_head, read_last_head
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient

Heads = AsyncGenerator[ProfilesHead, None]


class ProfileWitness:
    """``caller`` makes the requests to the browser daemon; ``actor`` is on record."""

    def __init__(self, store: Store, caller: Caller, actor: str) -> None:
        self._store = store
        self._caller = caller
        self._actor = actor
        # The older copy that the browser daemon has.
        self._older: ProfilesHead | None = None

    @property
    def rolled_back(self) -> bool:
        return self._older is not None

    async def meet(self, client: "BrowserClient") -> Heads:
        """Report the last known change and receive the daemon's answer. Return the stream for ``follow``."""
        self._older = None
        heads = client.follow_profiles(self._caller, read_last_head(self._store))
        await self._on_head(await anext(heads))
        return heads

    async def follow(self, heads: Heads) -> None:
        async with aclosing(heads):
            async for head in heads:
                await self._on_head(head)

    async def catch_up(self, client: "BrowserClient") -> None:
        await (await self.meet(client)).aclose()

    async def accept(self, client: "BrowserClient", actor: str) -> dict[str, Any]:
        """Accept the older copy as the newest, and record the operator."""
        last_head, found = read_last_head(self._store), self._older or ProfilesHead()
        head = await client.accept_profiles(Caller(operator=actor))
        self._older = None
        payload = {"heard": last_head.generation, "found": found.generation, "generation": head.generation}
        event = NewEvent(kind="browser.profiles_accepted", actor=actor, payload=payload)

        def remember(tx: Transaction) -> None:
            put_last_head(tx, head)
            tx.append(event)

        await self._store.transact(remember)
        return payload

    async def _on_head(self, head: ProfilesHead) -> None:
        if not head.rolled_back:
            self._older = None
            if head.mark:
                await self._store.transact(lambda tx: put_last_head(tx, head))
        elif self._older is None:
            self._older = head
            payload = {"heard": read_last_head(self._store).generation, "found": head.generation}
            event = NewEvent(kind="browser.profiles_folder_rolled_back", actor=self._actor, payload=payload)
            await self._store.transact(lambda tx: tx.append(event))
