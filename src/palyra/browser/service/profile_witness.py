"""palyrad's memory of the browser daemon's profiles: what their folder cannot know of itself.

Whoever can write the folder can put back an older copy of all of it, in which everything fits together. So palyrad
remembers the last change that it was told of, in its own database, and says so whenever it meets a browser daemon;
one whose profiles do not follow on that change lets nobody use them until an operator accepts them. A change is on the
browser daemon's disk before it is told: a crash in between leaves palyrad behind, which is no reason to refuse.
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
    """``caller`` is who asks the browser daemon, ``actor`` who is on record."""

    def __init__(self, store: Store, caller: Caller, actor: str) -> None:
        self._store = store
        self._caller = caller
        self._actor = actor
        # The older copy that the browser daemon has, as it was found.
        self._older: ProfilesHead | None = None

    @property
    def rolled_back(self) -> bool:
        """Whether the browser daemon that was met last lets nobody use its profiles."""
        return self._older is not None

    async def meet(self, client: "BrowserClient") -> Heads:
        """Says what was heard last and hears how the profiles stand to it; what comes is for ``follow``."""
        self._older = None
        heads = client.follow_profiles(self._caller, read_last_head(self._store))
        await self._on_head(await anext(heads))
        return heads

    async def follow(self, heads: Heads) -> None:
        """Until the browser daemon ends, or is gone."""
        async with aclosing(heads):
            async for head in heads:
                await self._on_head(head)

    async def catch_up(self, client: "BrowserClient") -> None:
        """What was saved until now is remembered when this returns."""
        await (await self.meet(client)).aclose()

    async def accept(self, client: "BrowserClient", actor: str) -> dict[str, Any]:
        """The older copy is the newest from now on; on record with who decided it."""
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
