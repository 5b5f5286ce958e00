"""The operator's requests: see and end sessions, decide about downloads, look after profiles."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from palyra.browser.domain.download import DownloadRecord
from palyra.browser.domain.profile import NoSuchProfile
from palyra.browser.domain.session_api import (
    Caller,
    LiveFrame,
    OperatorInput,
    ProfileView,
    SessionEvent,
    SessionView,
    WatchAsk,
)
from palyra.executors.browser import results
from palyra.executors.browser.session_supervisor import SessionSupervisor
from palyra.ids import Principal

_HIDDEN_FIELDS = ("fences_json", "fences_waived")


class BrowserOperatorService:
    def __init__(self, supervisor: SessionSupervisor) -> None:
        self._supervisor = supervisor

    async def sessions(self, actor: str) -> list[dict[str, Any]]:
        async with self._supervisor.connected() as client:
            return [self._to_view(view) for view in await client.sessions(Caller(operator=actor))]

    async def session(self, session_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            return self._to_view(await client.get_session(Caller(operator=actor), session_id))

    async def close(self, session_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            owned = self._supervisor.registry.find(session_id)
            if owned is not None:
                await self._supervisor.catch_up(owned, client)
            report = await client.close_session(Caller(operator=actor), session_id)
        if owned is not None:
            await self._supervisor.record_end(owned, reason=f"{actor} closed it", saved=report.saved)
        return {"session_id": session_id, "closed": True, **msgspec.to_builtins(report)}

    async def downloads(self, session_id: str, actor: str) -> list[dict[str, Any]]:
        async with self._supervisor.connected() as client:
            records = await client.downloads(Caller(operator=actor), session_id)
        return [_download(record) for record in records]

    async def release(self, session_id: str, download_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            record = await client.release_download(Caller(operator=actor), session_id, download_id)
            await self._catch_up(session_id, client)
        return _download(record)

    async def delete(self, session_id: str, download_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            record = await client.delete_download(Caller(operator=actor), session_id, download_id)
            await self._catch_up(session_id, client)
        return _download(record)

    async def take_over(self, session_id: str, actor: str, reason: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            view = await client.take_over(Caller(operator=actor), session_id, reason)
            await self._catch_up(session_id, client)
        return self._to_view(view)

    async def hand_back(self, session_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            view = await client.hand_back(Caller(operator=actor), session_id)
            await self._catch_up(session_id, client)
        return self._to_view(view)

    async def events(self, session_id: str, actor: str) -> list[dict[str, Any]]:
        async with self._supervisor.connected() as client:
            found = await client.events(Caller(operator=actor), session_id)
        return [msgspec.to_builtins(event) for event in reversed(found)]

    async def watch(self, session_id: str, actor: str) -> AsyncIterator[LiveFrame | SessionEvent]:
        async with self._supervisor.connected() as client:
            async for seen in client.watch(Caller(operator=actor), session_id, WatchAsk()):
                yield seen

    async def operate(self, session_id: str, actor: str, inputs: Sequence[OperatorInput]) -> None:
        async with self._supervisor.connected() as client:
            await client.operate(Caller(operator=actor), session_id, inputs)

    async def profiles(self, actor: str) -> list[dict[str, Any]]:
        async with self._supervisor.connected() as client:
            return [_profile(view) for view in await client.profiles(Caller(operator=actor))]

    @property
    def profiles_rolled_back(self) -> bool:
        return self._supervisor.profiles.rolled_back

    async def create_profile(
        self, principal: Principal, name: str, actor: str, *, colour: str = "", private: bool = False
    ) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            made = await client.create_profile(Caller(principal=str(principal)), name, colour=colour, private=private)
        await self._record_profile("browser.profile_created", made, actor)
        return _profile(made)

    async def delete_profile(self, profile_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            gone = await client.delete_profile(await _owner(client, profile_id, actor), profile_id)
        await self._record_profile("browser.profile_deleted", gone, actor)
        return _profile(gone)

    async def reset_profile(self, profile_id: str, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            empty = await client.reset_profile(await _owner(client, profile_id, actor), profile_id)
        await self._record_profile("browser.profile_reset", empty, actor)
        return _profile(empty)

    async def accept_profiles(self, actor: str) -> dict[str, Any]:
        async with self._supervisor.connected() as client:
            return await self._supervisor.profiles.accept(client, actor)

    async def _record_profile(self, kind: str, view: ProfileView, actor: str) -> None:
        await self._supervisor.record(
            None,
            kind,
            actor=actor,
            profile_id=view.profile_id,
            owner=view.principal,
            name=view.name,
            private=view.private,
        )

    async def _catch_up(self, session_id: str, client: Any) -> None:
        owned = self._supervisor.registry.find(session_id)
        if owned is not None:
            await self._supervisor.catch_up(owned, client)

    def _to_view(self, view: SessionView) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(view)
        for name in _HIDDEN_FIELDS:
            del shown[name]
        owned = self._supervisor.registry.find(view.session_id)
        fences = results.receipt_of(view, owned.reach) if owned is not None else ()
        return {
            **shown,
            "tabs": results.tab_views(view.tabs),
            **(owned.to_view() if owned is not None else {"run_id": ""}),
            "fences": list(fences),
        }


async def _owner(client: Any, profile_id: str, actor: str) -> Caller:
    for view in await client.profiles(Caller(operator=actor)):
        if view.profile_id == profile_id:
            return Caller(principal=view.principal)
    raise NoSuchProfile(f"there is no profile {profile_id[:64]!r}")


def _download(record: DownloadRecord) -> dict[str, Any]:
    return {**results.download_view(record), "released_by": record.released_by or ""}


def _profile(view: ProfileView) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(view)
    return shown
