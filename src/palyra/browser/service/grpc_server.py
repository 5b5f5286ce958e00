"""The gRPC server of the browser daemon. Every call shows this daemon's token before it is handled."""

import contextlib
import errno
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

import grpc
import msgspec

from palyra.browser.domain import limits, session_api
from palyra.browser.domain.action import ActionOutcome, Navigate, ObserveAsk
from palyra.browser.domain.session_api import (
    BadRequest,
    Caller,
    CookieView,
    LiveFrame,
    OperatorInput,
    ProfilesHead,
    ProfileView,
    SessionAsk,
    WatchAsk,
)
from palyra.browser.service.access import TOKEN_KEY, NotAdmitted, SocketPlace, admit
from palyra.browser.service.profile_service import ProfileService
from palyra.browser.service.session import BrowserSession, HealthOf
from palyra.browser.service.session_manager import SessionManager
from palyra.browser.service.storage_transfer import export_state, import_state
from palyra.browser.service.wire import ERROR_KEY, encode_error, read, read_action, write
from palyra.errors import Denied, InternalError, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.secret import Secret
from palyra.wire.browser.v1 import browser_pb2 as wire
from palyra.wire.browser.v1.browser_pb2_grpc import BrowserServiceServicer, add_BrowserServiceServicer_to_server

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


def answer_errors(method: Callable[[S, Any, Any], Awaitable[Any]]) -> Callable[[S, Any, Any], Awaitable[Any]]:
    """Turn the errors of a method into answers. A fault of ours is answered without its inner text."""

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


def for_caller(method: Callable[[S, Caller, Any, Any], Awaitable[Any]]) -> Callable[[S, Any, Any], Awaitable[Any]]:
    """Check the caller's right, which is looked up by the method's name, before the method runs."""

    @answer_errors
    @functools.wraps(method)
    async def check(self: S, request: Any, context: Any) -> Any:
        if not request.HasField("caller"):
            raise BadRequest("a request says for whom it is made")
        caller = admit(method.__name__, read(request.caller, Caller))
        return await method(self, caller, request, context)

    return check


class BrowserService(BrowserServiceServicer):
    def __init__(self, manager: SessionManager, profiles: ProfileService, health: HealthOf) -> None:
        self._manager = manager
        self._profiles = profiles
        self._health = health

    @answer_errors
    async def Health(self, request: Any, context: Any) -> Any:  # noqa: N802
        return write(self._health(), wire.HealthResponse())

    # Sessions.

    @for_caller
    async def CreateSession(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _session(await self._manager.create(caller, read(request, SessionAsk)))

    @for_caller
    async def GetSession(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _session(self._find(caller, request))

    @for_caller
    async def ListSessions(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        answer = wire.ListSessionsResponse()
        return _list(answer, answer.sessions, (session.view() for session in self._manager.sessions(caller)))

    @for_caller
    async def CloseSession(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        _record_operator(session, caller, "closed")
        return write(await self._manager.close(session, discard=request.discard), wire.CloseSessionResponse())

    # Actions.

    @for_caller
    async def Navigate(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _outcome(await self._find(caller, request).perform(caller, read(request, Navigate)))

    @for_caller
    async def Act(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        if not 1 <= len(request.actions) <= limits.MAX_ACTIONS_PER_BATCH:
            raise BadRequest(f"one call has 1 to {limits.MAX_ACTIONS_PER_BATCH} actions")
        actions = [read_action(each) for each in request.actions]
        report = await session.act(caller, actions, picture_on_failure=request.picture_on_failure)
        answer = wire.ActResponse()
        _list(answer, answer.outcomes, report.outcomes)
        if report.problem is not None:
            answer.problem_json = encode_error(report.problem)
        if report.picture is not None:
            write(report.picture, answer.picture)
        return answer

    @for_caller
    async def Observe(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        _record_operator(session, caller, "observed")
        return write(await session.observe(caller, read(request.ask, ObserveAsk)), wire.ObserveResponse())

    @for_caller
    async def Screenshot(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        action = wire.Action(tab=request.tab, timeout_ms=request.timeout_ms, screenshot=request.screenshot)
        return _outcome(await session.perform(caller, read_action(action)))

    # State of a session.

    @for_caller
    async def ListTabs(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        answer = wire.ListTabsResponse()
        return _list(answer, answer.tabs, self._use(caller, request).pages.tabs())

    @for_caller
    async def ReadConsoleLog(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _entries(self._use(caller, request).pages.console_log(), request.last)

    @for_caller
    async def ReadNetworkLog(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _entries(self._use(caller, request).pages.network_log(), request.last)

    @for_caller
    async def ReadEvents(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        answer = wire.ReadEventsResponse()
        return _list(answer, answer.events, self._find(caller, request).log.after(request.after))

    @for_caller
    async def GetCookies(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._use(caller, request)
        _record_operator(session, caller, "cookies listed")
        answer = wire.GetCookiesResponse()
        return _list(answer, answer.cookies, msgspec.convert(await session.pages.cookies(), tuple[CookieView, ...]))

    # Downloads.

    @for_caller
    async def ListDownloads(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        answer = wire.ListDownloadsResponse()
        return _list(answer, answer.downloads, self._use(caller, request).downloads.records())

    @for_caller
    async def ReadDownload(self, caller: Caller, request: Any, context: Any) -> None:  # noqa: N802
        content = await self._use(caller, request).read_download(request.download_id)
        for offset in range(0, len(content), limits.CHUNK_BYTES):
            await context.write(wire.DownloadChunk(offset=offset, data=content[offset : offset + limits.CHUNK_BYTES]))

    @for_caller
    async def ReleaseDownload(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        record = await self._find(caller, request).release_download(caller, request.download_id)
        return wire.DownloadResponse(download=write(record, wire.DownloadView()))

    @for_caller
    async def DeleteDownload(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        record = await self._use(caller, request).delete_download(caller, request.download_id)
        return wire.DownloadResponse(download=write(record, wire.DownloadView()))

    # Profiles.

    @for_caller
    async def ListProfiles(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        answer = wire.ListProfilesResponse()
        return _list(answer, answer.profiles, await self._profiles.profiles(caller))

    @for_caller
    async def CreateProfile(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.create(caller, request.name, request.colour, private=request.private))

    @for_caller
    async def RenameProfile(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.rename(caller, request.profile_id, request.name, request.colour))

    @for_caller
    async def DeleteProfile(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.delete(caller, request.profile_id))

    @for_caller
    async def ResetProfile(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return _profile(await self._profiles.reset(caller, request.profile_id))

    @for_caller
    async def FollowProfiles(self, caller: Caller, request: Any, context: Any) -> None:  # noqa: N802
        async with contextlib.aclosing(self._profiles.follow(read(request.heard, ProfilesHead))) as heads:
            async for head in heads:
                await context.write(write(head, wire.ProfilesHead()))

    @for_caller
    async def AcceptProfiles(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        return write(await self._profiles.accept(), wire.ProfilesHead())

    @for_caller
    async def ExportStorageState(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._use(caller, request)
        document = await export_state(session)
        session.log.add(session_api.STATE_EXPORTED, text=f"{len(document)} bytes", caller=caller)
        return wire.StorageStateResponse(document=document)

    @for_caller
    async def ImportStorageState(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._use(caller, request)
        report = await import_state(session, request.document)
        text = f"{report.cookies} cookies, {report.origins} origins"
        session.log.add(session_api.STATE_IMPORTED, text=text, caller=caller)
        return write(report, wire.ImportStorageStateResponse())

    # People.

    @for_caller
    async def WatchSession(self, caller: Caller, request: Any, context: Any) -> None:  # noqa: N802
        session = self._find(caller, request)
        _record_operator(session, caller, "watched")
        async for seen in session.watch(read(request, WatchAsk)):
            if isinstance(seen, LiveFrame):
                await context.write(wire.WatchEvent(frame=write(seen, wire.LiveFrame())))
            else:
                await context.write(wire.WatchEvent(event=write(seen, wire.SessionEvent())))

    @for_caller
    async def TakeOver(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        if len(request.reason) > limits.MAX_REASON_CHARS:
            raise BadRequest(f"a reason has at most {limits.MAX_REASON_CHARS} characters")
        await session.take_over(caller, request.reason)
        return _session(session)

    @for_caller
    async def HandBack(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        session.hand_back(caller)
        return _session(session)

    @for_caller
    async def Operate(self, caller: Caller, request: Any, context: Any) -> Any:  # noqa: N802
        session = self._find(caller, request)
        if len(request.inputs) > limits.MAX_INPUTS_PER_CALL:
            raise BadRequest(f"one call has at most {limits.MAX_INPUTS_PER_CALL} inputs")
        await session.operate(caller, [read(each, OperatorInput) for each in request.inputs])
        return wire.OperateResponse()

    def _find(self, caller: Caller, request: Any) -> BrowserSession:
        return self._manager.find(caller, request.session_id)

    def _use(self, caller: Caller, request: Any) -> BrowserSession:
        """Find the session, and keep it alive if its owner asks. An operator does not keep it alive."""
        session = self._find(caller, request)
        if not caller.operator:
            session.use()
        return session


def _record_operator(session: BrowserSession, caller: Caller, what: str) -> None:
    if caller.operator:
        session.log.add(session_api.LOOKED_AT, text=what, caller=caller)


def _list(answer: Any, field: Any, values: Iterable[Any]) -> Any:
    for value in values:
        write(value, field.add())
    return answer


def _entries(entries: tuple[Any, ...], last: int) -> Any:
    answer = wire.ReadLogResponse()
    return _list(answer, answer.entries, entries[-last:] if last else entries)


def _session(session: BrowserSession) -> Any:
    return wire.SessionResponse(session=write(session.view(), wire.SessionView()))


def _outcome(outcome: ActionOutcome) -> Any:
    return wire.OutcomeResponse(outcome=write(outcome, wire.ActionOutcome()))


def _profile(profile: ProfileView) -> Any:
    return wire.ProfileResponse(profile=write(profile, wire.ProfileView()))


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
        return grpc.unary_unary_rpc_method_handler(_refuse_call)


async def _refuse_call(_request: Any, context: Any) -> None:
    await refuse(context, NotAdmitted("the call does not show this daemon's token"))


@asynccontextmanager
async def serve(service: BrowserService, place: SocketPlace) -> AsyncIterator[None]:
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
