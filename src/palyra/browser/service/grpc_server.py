"""The server on its socket: every call shows the token of this very daemon before anything is looked at."""

import contextlib
import errno
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

import grpc
import msgspec

from palyra.browser.domain import limits, session_api
from palyra.browser.domain.action import Navigate, ObserveAsk, Screenshot
from palyra.browser.domain.session_api import (
    BadRequest,
    Caller,
    CookieView,
    HealthView,
    LiveFrame,
    OperatorInput,
    ProfilesHead,
    ProfileView,
    SessionAsk,
    WatchAsk,
)
from palyra.browser.service.access import TOKEN_KEY, NotAdmitted, SocketPlace, admitted
from palyra.browser.service.profile_service import ProfileService
from palyra.browser.service.session import BrowserSession, HealthOf
from palyra.browser.service.session_manager import SessionManager
from palyra.browser.service.storage_transfer import export_state, import_state
from palyra.browser.service.wire import ERROR_KEY, encode_error, read, read_action, write
from palyra.errors import Denied, InternalError, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.secret import Secret
from palyra.wire.browser.v1 import browser_pb2 as wire
from palyra.wire.browser.v1.browser_pb2_grpc import BrowserServiceServicer, add_BrowserServiceServicer_to_server

# How the browser daemon says no: our own error in the trailing metadata, under a status that fits.

log = logging.getLogger(__name__)
S = TypeVar("S")

_NOT_FOUND: Final = 404
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_STATUS: Final = (
    (InvalidInput, grpc.StatusCode.INVALID_ARGUMENT),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (PalyraError, grpc.StatusCode.FAILED_PRECONDITION),
)


class BrowserDiskFull(Unavailable):
    code = "browser.disk_full"
    hint = "free space on the disk of the browser daemon's state directory: sessions have folders there"


async def refuse(context: Any, error: PalyraError) -> NoReturn:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    if error.http_status == _NOT_FOUND:
        status = grpc.StatusCode.NOT_FOUND
    await context.abort(status, error.code, ((ERROR_KEY, encode_error(error)),))
    raise AssertionError("abort does not return")


def answering(method: Callable[[S, Any, Any], Awaitable[Any]]) -> Callable[[S, Any, Any], Awaitable[Any]]:
    """A method of the service whose errors are answers. A fault of ours is told without its inner text."""

    @functools.wraps(method)
    async def answer(self: S, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except PalyraError as error:
            await refuse(context, error)
        except (grpc.aio.BaseError, grpc.aio.AbortError):
            raise
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno in _FULL:
                await refuse(context, BrowserDiskFull("the browser daemon's disk is full"))
            log.exception("a request to the browser daemon failed")
            await refuse(context, InternalError("the request could not be answered"))

    return answer


# ``BrowserService`` over gRPC: who asks is checked, then messages become values, and the session does the rest.

_NO_CALLER: Final = "a request says for whom it is made"


class BrowserService(BrowserServiceServicer):
    def __init__(self, manager: SessionManager, profiles: ProfileService, health: HealthOf) -> None:
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
        for tab in session.pages.tabs():
            write(tab, answer.tabs.add())
        return answer

    @answering
    async def ReadConsoleLog(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ReadConsoleLog", request)
        return _entries(session.pages.console_log(), request.last)

    @answering
    async def ReadNetworkLog(self, request: Any, context: Any) -> Any:  # noqa: N802
        _, session = self._used("ReadNetworkLog", request)
        return _entries(session.pages.network_log(), request.last)

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
        for fields in await session.pages.cookies():
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
        document = await export_state(session)
        session.log.add(session_api.STATE_EXPORTED, text=f"{len(document)} bytes", caller=caller)
        return wire.StorageStateResponse(document=document)

    @answering
    async def ImportStorageState(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, session = self._used("ImportStorageState", request)
        report = await import_state(session, request.document)
        text = f"{report.cookies} cookies, {report.origins} origins"
        session.log.add(session_api.STATE_IMPORTED, text=text, caller=caller)
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
        session.log.add(session_api.LOOKED_AT, text=what, caller=caller)


def _session(session: BrowserSession) -> Any:
    return wire.SessionResponse(session=write(session.view(), wire.SessionView()))


def _profile(profile: ProfileView) -> Any:
    return wire.ProfileResponse(profile=write(profile, wire.ProfileView()))


def _entries(entries: tuple[Any, ...], last: int) -> Any:
    answer = wire.ReadLogResponse()
    for entry in entries[-last:] if last else entries:
        write(entry, answer.entries.add())
    return answer


_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    # Two daemons at one socket would each have half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", limits.MAX_CALLS_AT_ONCE),
)


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, token: Secret) -> None:
        self._token = token

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        shown = [value for key, value in call.invocation_metadata if key == TOKEN_KEY]
        if len(shown) == 1 and isinstance(shown[0], str) and self._token.matches(shown[0]):
            return await continuation(call)
        return grpc.unary_unary_rpc_method_handler(_turned_away)


async def _turned_away(_request: Any, context: Any) -> None:
    await refuse(context, NotAdmitted("the call does not show this daemon's token"))


@asynccontextmanager
async def serving(service: BrowserService, place: SocketPlace) -> AsyncIterator[None]:
    """From here on calls are answered. At the end those that run get a moment, and no new one is taken."""
    server = grpc.aio.server(interceptors=(TokenCheck(place.new_token()),), options=_OPTIONS)
    add_BrowserServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(place.address)
    await server.start()
    place.close_socket()
    try:
        yield
    finally:
        await server.stop(limits.STOP_SECONDS)
        place.clear()
