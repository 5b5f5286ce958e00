"""``BrowserService`` over gRPC: who asks is checked, then messages become values, and the session does the rest."""

import contextlib
from typing import Any, Final

import msgspec

from palyra.browser import service_limits as limits
from palyra.browser import session_log
from palyra.browser.action import Navigate, Screenshot
from palyra.browser.browser_session import BrowserSession
from palyra.browser.callers import admitted
from palyra.browser.grpc_answer import answering
from palyra.browser.live import LiveFrame, OperatorInput
from palyra.browser.observation import ObserveAsk
from palyra.browser.profile_desk import ProfileDesk
from palyra.browser.session_manager import SessionManager
from palyra.browser.session_ports import HealthOf
from palyra.browser.session_view import (
    BadRequest,
    Caller,
    CookieView,
    HealthView,
    ProfilesHead,
    ProfileView,
    SessionAsk,
    WatchAsk,
)
from palyra.browser.storage_transfer import export_state, import_state
from palyra.browser.wire_errors import encode_error
from palyra.browser.wire_values import read, read_action, write
from palyra.wire.browser.v1 import browser_pb2 as wire
from palyra.wire.browser.v1.browser_pb2_grpc import BrowserServiceServicer

_NO_CALLER: Final = "a request says for whom it is made"


class BrowserService(BrowserServiceServicer):
    def __init__(self, manager: SessionManager, profiles: ProfileDesk, health: HealthOf) -> None:
        self._manager = manager
        self._profiles = profiles
        self._health = health

    @answering
    async def Health(self, request: Any, context: Any) -> Any:  # noqa: N802
        health: HealthView = self._health()
        return write(health, wire.HealthResponse())

    # Sessions.

    @answering
    async def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller = _caller("CreateSession", request)
        return _session(await self._manager.create(caller, read(request, SessionAsk)))

    @answering
    async def GetSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _session(self._find("GetSession", request)[1])

    @answering
    async def ListSessions(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller = _caller("ListSessions", request)
        answer = wire.ListSessionsResponse()
        for session in self._manager.sessions(caller):
            write(session.view(), answer.sessions.add())
        return answer

    @answering
    async def CloseSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("CloseSession", request)
        _on_record(session, caller, "closed")
        return write(await self._manager.close(session, discard=request.discard), wire.CloseSessionResponse())

    # Actions.

    @answering
    async def Navigate(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("Navigate", request)
        outcome = await session.perform(caller, read(request, Navigate))
        return wire.OutcomeResponse(outcome=write(outcome, wire.ActionOutcome()))

    @answering
    async def Act(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("Act", request)
        if not 1 <= len(request.actions) <= limits.MAX_ACTIONS_PER_BATCH:
            raise BadRequest(f"one call has 1 to {limits.MAX_ACTIONS_PER_BATCH} actions")
        actions = [read_action(each) for each in request.actions]
        report = await session.act(caller, actions, picture_on_failure=request.picture_on_failure)
        answer = wire.ActResponse()
        for outcome in report.outcomes:
            write(outcome, answer.outcomes.add())
        if report.problem is not None:
            answer.problem_json = encode_error(report.problem)
        if report.picture is not None:
            write(report.picture, answer.picture)
        return answer

    @answering
    async def Observe(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("Observe", request)
        _on_record(session, caller, "observed")
        return write(await session.observe(caller, read(request.ask, ObserveAsk)), wire.ObserveResponse())

    @answering
    async def Screenshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("Screenshot", request)
        action = wire.Action(tab=request.tab, timeout_ms=request.timeout_ms, screenshot=request.screenshot)
        ask = read_action(action)
        assert isinstance(ask, Screenshot)
        outcome = await session.perform(caller, ask)
        return wire.OutcomeResponse(outcome=write(outcome, wire.ActionOutcome()))

    # What is known.

    @answering
    async def ListTabs(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ListTabs", request)
        answer = wire.ListTabsResponse()
        for tab in session.parts.pages.tabs():
            write(tab, answer.tabs.add())
        return answer

    @answering
    async def ReadConsoleLog(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ReadConsoleLog", request)
        return _entries(session.parts.pages.console_log(), request.last)

    @answering
    async def ReadNetworkLog(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ReadNetworkLog", request)
        return _entries(session.parts.pages.network_log(), request.last)

    @answering
    async def ReadEvents(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._find("ReadEvents", request)
        answer = wire.ReadEventsResponse()
        for event in session.log.after(request.after):
            write(event, answer.events.add())
        return answer

    @answering
    async def GetCookies(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._used("GetCookies", request)
        _on_record(session, caller, "cookies listed")
        answer = wire.GetCookiesResponse()
        for fields in await session.parts.pages.cookies():
            write(msgspec.convert(fields, CookieView), answer.cookies.add())
        return answer

    # Downloads.

    @answering
    async def ListDownloads(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ListDownloads", request)
        answer = wire.ListDownloadsResponse()
        for record in session.download_records():
            write(record, answer.downloads.add())
        return answer

    @answering
    async def ReadDownload(self, request: Any, context: Any) -> None:  # noqa: N802
        _, session = self._used("ReadDownload", request)
        content = await session.read_download(request.download_id)
        for offset in range(0, len(content), limits.CHUNK_BYTES):
            await context.write(wire.DownloadChunk(offset=offset, data=content[offset : offset + limits.CHUNK_BYTES]))

    @answering
    async def ReleaseDownload(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("ReleaseDownload", request)
        record = await session.release_download(caller, request.download_id)
        return wire.DownloadResponse(download=write(record, wire.DownloadView()))

    @answering
    async def DeleteDownload(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._used("DeleteDownload", request)
        record = await session.delete_download(caller, request.download_id)
        return wire.DownloadResponse(download=write(record, wire.DownloadView()))

    # Profiles.

    @answering
    async def ListProfiles(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller = _caller("ListProfiles", request)
        answer = wire.ListProfilesResponse()
        for profile in await self._profiles.profiles(caller):
            write(profile, answer.profiles.add())
        return answer

    @answering
    async def CreateProfile(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller = _caller("CreateProfile", request)
        return _profile(await self._profiles.create(caller, request.name, request.colour, private=request.private))

    @answering
    async def RenameProfile(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller = _caller("RenameProfile", request)
        return _profile(await self._profiles.rename(caller, request.profile_id, request.name, request.colour))

    @answering
    async def DeleteProfile(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.delete(_caller("DeleteProfile", request), request.profile_id))

    @answering
    async def ResetProfile(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.reset(_caller("ResetProfile", request), request.profile_id))

    @answering
    async def FollowProfiles(self, request: Any, context: Any) -> None:  # noqa: N802
        _caller("FollowProfiles", request)
        async with contextlib.aclosing(self._profiles.follow(read(request.heard, ProfilesHead))) as heads:
            async for head in heads:
                await context.write(write(head, wire.ProfilesHead()))

    @answering
    async def AcceptProfiles(self, request: Any, context: Any) -> Any:  # noqa: N802
        _caller("AcceptProfiles", request)
        return write(await self._profiles.accept(), wire.ProfilesHead())

    @answering
    async def ExportStorageState(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._used("ExportStorageState", request)
        document = await export_state(session.parts)
        session.log.add(session_log.STATE_EXPORTED, text=f"{len(document)} bytes", caller=caller)
        return wire.StorageStateResponse(document=document)

    @answering
    async def ImportStorageState(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._used("ImportStorageState", request)
        report = await import_state(session.parts, request.document)
        text = f"{report.cookies} cookies, {report.origins} origins"
        session.log.add(session_log.STATE_IMPORTED, text=text, caller=caller)
        return write(report, wire.ImportStorageStateResponse())

    # People.

    @answering
    async def WatchSession(self, request: Any, context: Any) -> None:  # noqa: N802
        caller, session = self._find("WatchSession", request)
        _on_record(session, caller, "watched")
        async for seen in session.watch(read(request, WatchAsk)):
            if isinstance(seen, LiveFrame):
                await context.write(wire.WatchEvent(frame=write(seen, wire.LiveFrame())))
            else:
                await context.write(wire.WatchEvent(event=write(seen, wire.SessionEvent())))

    @answering
    async def TakeOver(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("TakeOver", request)
        if len(request.reason) > limits.MAX_REASON_CHARS:
            raise BadRequest(f"a reason has at most {limits.MAX_REASON_CHARS} characters")
        await session.take_over(caller, request.reason)
        return _session(session)

    @answering
    async def HandBack(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("HandBack", request)
        session.hand_back(caller)
        return _session(session)

    @answering
    async def Operate(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._find("Operate", request)
        if len(request.inputs) > limits.MAX_INPUTS_PER_CALL:
            raise BadRequest(f"one call has at most {limits.MAX_INPUTS_PER_CALL} inputs")
        await session.operate(caller, [read(each, OperatorInput) for each in request.inputs])
        return wire.OperateResponse()

    def _find(self, method: str, request: Any) -> tuple[Caller, BrowserSession]:
        caller = _caller(method, request)
        return caller, self._manager.find(caller, request.session_id)

    def _used(self, method: str, request: Any) -> tuple[Caller, BrowserSession]:
        """As above, and a use of the session where its owner asks: a person who looks on does not keep it alive."""
        caller, session = self._find(method, request)
        if not caller.operator:
            session.use()
        return caller, session


def _caller(method: str, request: Any) -> Caller:
    if not request.HasField("caller"):
        raise BadRequest(_NO_CALLER)
    return admitted(method, read(request.caller, Caller))


def _on_record(session: BrowserSession, caller: Caller, what: str) -> None:
    if caller.operator:
        session.log.add(session_log.LOOKED_AT, text=what, caller=caller)


def _session(session: BrowserSession) -> Any:
    return wire.SessionResponse(session=write(session.view(), wire.SessionView()))


def _profile(profile: ProfileView) -> Any:
    return wire.ProfileResponse(profile=write(profile, wire.ProfileView()))


def _entries(entries: tuple[Any, ...], last: int) -> Any:
    answer = wire.ReadLogResponse()
    for entry in entries[-last:] if last else entries:
        write(entry, answer.entries.add())
    return answer
