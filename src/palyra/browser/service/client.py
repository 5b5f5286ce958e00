"""The browser daemon as palyrad sees it: a method per request, with values, and errors with their own codes."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import grpc
import msgspec

from palyra.browser.domain import limits
from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    ChromiumObserveSnapshot,
    LogEntry,
    Navigate,
    ObserveAsk,
    Screenshot,
    TabView,
)
from palyra.browser.domain.download import DownloadRecord
from palyra.browser.domain.session_api import (
    ActReport,
    Caller,
    CloseReport,
    CookieView,
    HealthView,
    ImportReport,
    LiveFrame,
    OperatorInput,
    ProfilesHead,
    ProfileView,
    SessionAsk,
    SessionEvent,
    SessionView,
    WatchAsk,
)
from palyra.browser.service.access import TOKEN_KEY, BrowserAway, SocketPlace
from palyra.browser.service.wire import ERROR_KEY, decode_error, read, write, write_action
from palyra.errors import LimitExceeded, PalyraError
from palyra.wire.browser.v1 import browser_pb2 as wire
from palyra.wire.browser.v1.browser_pb2_grpc import BrowserServiceStub

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    # Each client has a connection of its own, with the token of the daemon that it found.
    ("grpc.use_local_subchannel_pool", 1),
)


class TooLate(LimitExceeded):
    code = "browser.too_late"
    hint = "the browser daemon did not answer in time; look at its health page and at the session's events"
    http_status = 504


class BrowserClient:
    """A client of one daemon. Several calls may be under way; ``close`` ends them."""

    def __init__(self, place: SocketPlace) -> None:
        self._place = place
        self._metadata = ((TOKEN_KEY, place.read_token().reveal()),)
        self._channel = grpc.aio.insecure_channel(place.address, options=_OPTIONS)
        self._stub: Any = BrowserServiceStub(self._channel)  # type: ignore[no-untyped-call]

    @classmethod
    def at(cls, folder: Path) -> Self:
        place = SocketPlace(folder)
        try:
            return cls(place)
        except BaseException:
            place.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()
        self._place.close()

    async def health(self) -> HealthView:
        return read(await self._ask("Health", wire.HealthRequest(), limits.QUICK_SECONDS), HealthView)

    async def create_session(self, caller: Caller, ask: SessionAsk) -> SessionView:
        request = write(ask, _for(wire.CreateSessionRequest, caller))
        return read((await self._ask("CreateSession", request, limits.OPEN_SECONDS)).session, SessionView)

    async def get_session(self, caller: Caller, session_id: str) -> SessionView:
        return read((await self._ask("GetSession", _of_session(caller, session_id))).session, SessionView)

    async def sessions(self, caller: Caller) -> tuple[SessionView, ...]:
        answer = await self._ask("ListSessions", _for(wire.ListSessionsRequest, caller))
        return _all(answer.sessions, SessionView)

    async def close_session(self, caller: Caller, session_id: str, *, discard: bool = False) -> CloseReport:
        request = _for(wire.CloseSessionRequest, caller, session_id=session_id, discard=discard)
        return read(await self._ask("CloseSession", request, limits.CLOSE_SECONDS), CloseReport)

    async def navigate(self, caller: Caller, session_id: str, ask: Navigate) -> ActionOutcome:
        request = write(ask, _for(wire.NavigateRequest, caller, session_id=session_id))
        return read((await self._ask("Navigate", request, limits.ACTION_SECONDS)).outcome, ActionOutcome)

    async def screenshot(self, caller: Caller, session_id: str, ask: Screenshot) -> ActionOutcome:
        request = _for(wire.ScreenshotRequest, caller, session_id=session_id, tab=ask.tab, timeout_ms=ask.timeout_ms)
        write(ask, request.screenshot)
        request.screenshot.SetInParent()
        return read((await self._ask("Screenshot", request, limits.ACTION_SECONDS)).outcome, ActionOutcome)

    async def act(
        self, caller: Caller, session_id: str, actions: Sequence[Action], *, picture_on_failure: bool = False
    ) -> ActReport:
        """Run the actions up to the first that fails; the report has its error. Raise if none was begun."""
        request = _for(wire.ActRequest, caller, session_id=session_id, picture_on_failure=picture_on_failure)
        request.actions.extend(map(write_action, actions))
        answer = await self._ask("Act", request, limits.ACTION_SECONDS * max(1, len(actions)))
        return ActReport(
            outcomes=_all(answer.outcomes, ActionOutcome),
            problem=decode_error(answer.problem_json) if answer.problem_json else None,
            picture=read(answer.picture, ActionOutcome) if answer.HasField("picture") else None,
        )

    async def observe(self, caller: Caller, session_id: str, ask: ObserveAsk) -> ChromiumObserveSnapshot:
        request = _for(wire.ObserveRequest, caller, session_id=session_id)
        write(ask, request.ask)
        return read(await self._ask("Observe", request, limits.ACTION_SECONDS), ChromiumObserveSnapshot)

    async def tabs(self, caller: Caller, session_id: str) -> tuple[TabView, ...]:
        return _all((await self._ask("ListTabs", _of_session(caller, session_id))).tabs, TabView)

    async def console_log(self, caller: Caller, session_id: str, last: int = 0) -> tuple[LogEntry, ...]:
        request = _for(wire.ReadLogRequest, caller, session_id=session_id, last=last)
        return _all((await self._ask("ReadConsoleLog", request)).entries, LogEntry)

    async def network_log(self, caller: Caller, session_id: str, last: int = 0) -> tuple[LogEntry, ...]:
        request = _for(wire.ReadLogRequest, caller, session_id=session_id, last=last)
        return _all((await self._ask("ReadNetworkLog", request)).entries, LogEntry)

    async def events(self, caller: Caller, session_id: str, after: int = 0) -> tuple[SessionEvent, ...]:
        request = _for(wire.ReadEventsRequest, caller, session_id=session_id, after=after)
        return _all((await self._ask("ReadEvents", request)).events, SessionEvent)

    async def cookies(self, caller: Caller, session_id: str) -> tuple[CookieView, ...]:
        return _all((await self._ask("GetCookies", _of_session(caller, session_id))).cookies, CookieView)

    async def downloads(self, caller: Caller, session_id: str) -> tuple[DownloadRecord, ...]:
        return _all((await self._ask("ListDownloads", _of_session(caller, session_id))).downloads, DownloadRecord)

    async def read_download(self, caller: Caller, session_id: str, download_id: str) -> AsyncIterator[bytes]:
        request = _for(wire.DownloadRequest, caller, session_id=session_id, download_id=download_id)
        async for chunk in self._follow("ReadDownload", request):
            yield chunk.data

    async def release_download(self, caller: Caller, session_id: str, download_id: str) -> DownloadRecord:
        request = _for(wire.DownloadRequest, caller, session_id=session_id, download_id=download_id)
        return read((await self._ask("ReleaseDownload", request)).download, DownloadRecord)

    async def delete_download(self, caller: Caller, session_id: str, download_id: str) -> DownloadRecord:
        request = _for(wire.DownloadRequest, caller, session_id=session_id, download_id=download_id)
        return read((await self._ask("DeleteDownload", request)).download, DownloadRecord)

    async def profiles(self, caller: Caller) -> tuple[ProfileView, ...]:
        return _all((await self._ask("ListProfiles", _for(wire.ListProfilesRequest, caller))).profiles, ProfileView)

    async def create_profile(
        self, caller: Caller, name: str, *, colour: str = "", private: bool = False
    ) -> ProfileView:
        request = _for(wire.CreateProfileRequest, caller, name=name, colour=colour, private=private)
        return read((await self._ask("CreateProfile", request)).profile, ProfileView)

    async def rename_profile(self, caller: Caller, profile_id: str, *, name: str, colour: str = "") -> ProfileView:
        """Rename a profile. An empty colour keeps the old one."""
        request = _for(wire.RenameProfileRequest, caller, profile_id=profile_id, name=name, colour=colour)
        return read((await self._ask("RenameProfile", request)).profile, ProfileView)

    async def delete_profile(self, caller: Caller, profile_id: str) -> ProfileView:
        request = _for(wire.ProfileRequest, caller, profile_id=profile_id)
        return read((await self._ask("DeleteProfile", request)).profile, ProfileView)

    async def reset_profile(self, caller: Caller, profile_id: str) -> ProfileView:
        request = _for(wire.ProfileRequest, caller, profile_id=profile_id)
        return read((await self._ask("ResetProfile", request)).profile, ProfileView)

    async def follow_profiles(self, caller: Caller, last_head: ProfilesHead) -> AsyncGenerator[ProfilesHead, None]:
        request = _for(wire.FollowProfilesRequest, caller)
        write(last_head, request.heard)
        async with contextlib.aclosing(self._follow("FollowProfiles", request)) as heads:
            async for head in heads:
                yield read(head, ProfilesHead)

    async def accept_profiles(self, caller: Caller) -> ProfilesHead:
        return read(await self._ask("AcceptProfiles", _for(wire.AcceptProfilesRequest, caller)), ProfilesHead)

    async def export_storage_state(self, caller: Caller, session_id: str) -> bytes:
        answer = await self._ask("ExportStorageState", _of_session(caller, session_id), limits.ACTION_SECONDS)
        return bytes(answer.document)

    async def import_storage_state(self, caller: Caller, session_id: str, document: bytes) -> ImportReport:
        request = _for(wire.ImportStorageStateRequest, caller, session_id=session_id, document=document)
        return read(await self._ask("ImportStorageState", request, limits.ACTION_SECONDS), ImportReport)

    async def watch(self, caller: Caller, session_id: str, ask: WatchAsk) -> AsyncIterator[LiveFrame | SessionEvent]:
        request = write(ask, _for(wire.WatchSessionRequest, caller, session_id=session_id))
        async for seen in self._follow("WatchSession", request):
            if seen.WhichOneof("seen") == "frame":
                yield read(seen.frame, LiveFrame)
            else:
                yield read(seen.event, SessionEvent)

    async def take_over(self, caller: Caller, session_id: str, reason: str) -> SessionView:
        request = _for(wire.TakeOverRequest, caller, session_id=session_id, reason=reason)
        return read((await self._ask("TakeOver", request)).session, SessionView)

    async def hand_back(self, caller: Caller, session_id: str) -> SessionView:
        return read((await self._ask("HandBack", _of_session(caller, session_id))).session, SessionView)

    async def operate(self, caller: Caller, session_id: str, inputs: Sequence[OperatorInput]) -> None:
        request = _for(wire.OperateRequest, caller, session_id=session_id)
        for given in inputs:
            write(given, request.inputs.add())
        await self._ask("Operate", request, limits.ACTION_SECONDS)

    async def _ask(self, method: str, request: Any, seconds: float = limits.QUICK_SECONDS) -> Any:
        try:
            return await getattr(self._stub, method)(request, timeout=seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as failure:
            raise _error_of(failure) from None

    async def _follow(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        call = getattr(self._stub, method)(request, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as failure:
            raise _error_of(failure) from None
        finally:
            call.cancel()


def _for(kind: Any, caller: Caller, **fields: Any) -> Any:
    request = kind(**fields)
    write(caller, request.caller)
    request.caller.SetInParent()
    return request


def _of_session(caller: Caller, session_id: str) -> Any:
    return _for(wire.SessionRequest, caller, session_id=session_id)


def _all(messages: Iterable[Any], kind: Any) -> tuple[Any, ...]:
    return tuple(read(each, kind) for each in messages)


def _error_of(failure: grpc.aio.AioRpcError) -> PalyraError:
    for key, value in failure.trailing_metadata() or ():
        if key == ERROR_KEY:
            try:
                return decode_error(bytes(value))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                break
    if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TooLate("the browser daemon did not answer in time")
    return BrowserAway(f"the browser daemon did not answer: {failure.code().name.lower()}")
