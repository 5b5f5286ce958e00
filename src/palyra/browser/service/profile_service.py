"""Requests about profiles. A profile that a session uses is not changed until the session has ended."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from palyra.browser.domain.profile import DEFAULT_COLOUR, BrowserProfileRecord, ProfilesFolderRolledBack
from palyra.browser.domain.session_api import Caller, ProfilesHead, ProfileView
from palyra.browser.profiles.store import ProfileStore
from palyra.browser.service.session_manager import ProfileInUse


class ProfileService:
    def __init__(self, store: ProfileStore, session_of: Callable[[str], str]) -> None:
        self._store = store
        self._session_of = session_of
        self._followers: set[asyncio.Event] = set()
        self._ending = False

    async def follow(self, last_head: ProfilesHead) -> AsyncGenerator[ProfilesHead, None]:
        """Yield how the profiles relate to ``last_head``, then the latest change, until ``end_following``."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def changed() -> None:
            loop.call_soon_threadsafe(news.set)

        stop = self._store.subscribe(changed)
        self._followers.add(news)
        try:
            sent: ProfilesHead | None = None
            await asyncio.to_thread(self._store.expect, last_head)
            while True:
                news.clear()
                ending, head = self._ending, self._store.head
                if head != sent:
                    yield head
                    sent = head
                if ending:
                    return
                await news.wait()
        finally:
            self._followers.discard(news)
            stop()

    def end_following(self) -> None:
        self._ending = True
        for news in self._followers:
            news.set()

    async def accept(self) -> ProfilesHead:
        return await asyncio.to_thread(self._store.accept)

    async def profiles(self, caller: Caller) -> list[ProfileView]:
        """List profiles. An operator who names no principal gets those of all."""
        if caller.operator and not caller.principal:
            found = await asyncio.to_thread(self._store.every_profile)
        else:
            found = await asyncio.to_thread(self._store.profiles, caller.principal)
        views = [self._view(each) for each in found]
        if self._store.head.rolled_back:
            return [msgspec.structs.replace(each, damaged=ProfilesFolderRolledBack.code) for each in views]
        return views

    async def create(self, caller: Caller, name: str, colour: str, *, private: bool) -> ProfileView:
        made = await asyncio.to_thread(
            self._store.create,
            caller.principal,
            name,
            colour=colour or DEFAULT_COLOUR,
            persistence=not private,
            private=private,
        )
        return self._view(made)

    async def rename(self, caller: Caller, profile_id: str, name: str, colour: str) -> ProfileView:
        def change() -> BrowserProfileRecord:
            known = self._store.get(caller.principal, profile_id)
            return self._store.rename(caller.principal, profile_id, name=name, colour=colour or known.colour)

        return self._view(await asyncio.to_thread(change))

    async def delete(self, caller: Caller, profile_id: str) -> ProfileView:
        await self._require_free(caller, profile_id)
        return self._view(await asyncio.to_thread(self._store.delete, caller.principal, profile_id))

    async def reset(self, caller: Caller, profile_id: str) -> ProfileView:
        await self._require_free(caller, profile_id)
        return self._view(await asyncio.to_thread(self._store.reset, caller.principal, profile_id))

    async def _require_free(self, caller: Caller, profile_id: str) -> None:
        """Check the owner first: whether another's profile is in use is not revealed."""
        await asyncio.to_thread(self._store.get, caller.principal, profile_id)
        session_id = self._session_of(profile_id)
        if session_id:
            raise ProfileInUse("a session uses this profile", session_id=session_id)

    def _view(self, record: BrowserProfileRecord) -> ProfileView:
        shown = {name: getattr(record, name) for name in ProfileView.__struct_fields__ if hasattr(record, name)}
        return ProfileView(**shown, session_id=self._session_of(record.profile_id))
