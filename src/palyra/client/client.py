"""``Client``: the operations of the API as methods, over a transport.

    with Client.local(state_dir) as client:
        print(client.call("echo", {"text": "hi"}).result)

``AsyncClient`` has the same operations; what an operation does is written once, in ``operations``.
"""

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from palyra.client import admin_operations, operations
from palyra.client.address import DEFAULT_BASE_URL, ServerAddress, usable_token
from palyra.client.events import Emit, Head, OpenStream, Pause, ReadChunk, Script, follow_call
from palyra.client.protocol import (
    DEFAULT_LIMITS,
    DEFAULT_TIMEOUT_SECONDS,
    AsyncByteStream,
    AsyncTransportPort,
    ClientLimits,
    Operation,
)
from palyra.client.views import CallEvent
from palyra.errors import PalyraError
from palyra.secret import Secret

if TYPE_CHECKING:
    import ssl

    from palyra.client.blocking import BlockingStream
    from palyra.client.in_process import App

# ``AsyncClient``: the operations of the API as coroutines. ``Client`` has the same, and blocks.

P = ParamSpec("P")
T = TypeVar("T")


def _async(operation: Callable[P, Operation[T]]) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._perform(operation(*args, **kwargs))

    return method


class AsyncClient:
    """Belongs to one event loop. Close it, or use it as an asynchronous context manager."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        *,
        token: Secret | str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        limits: ClientLimits = DEFAULT_LIMITS,
        ssl_context: "ssl.SSLContext | None" = None,
        allow_plaintext: bool = False,
        transport: AsyncTransportPort | None = None,
    ) -> None:
        self._token = usable_token(token)
        self._limits = limits
        if transport is None:
            from palyra.client.transport import AsyncTransport

            address = ServerAddress.parse(base_url, allow_plaintext=allow_plaintext)
            transport = AsyncTransport(address, timeout=timeout, limits=limits, ssl_context=ssl_context)
        self._transport = transport

    @classmethod
    def local(cls, state_dir: Path, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Self:
        """A client of the daemon that runs on this state directory, as its owner."""
        from palyra.client.address import find_daemon

        daemon = find_daemon(Path(state_dir))
        return cls(daemon.url, token=daemon.token, timeout=timeout)

    @classmethod
    def in_process(
        cls,
        app: "App",
        *,
        token: Secret | str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> Self:
        """A client of an ASGI application in this very process and loop."""
        from palyra.client.in_process import AsyncAsgiTransport

        return cls(token=token, limits=limits, transport=AsyncAsgiTransport(app, timeout=timeout, limits=limits))

    call = _async(operations.call)
    call_status = _async(operations.call_status)
    cancel = _async(operations.cancel)
    tools = _async(operations.tools)
    tool = _async(operations.tool)
    start_run = _async(operations.start_run)
    run = _async(operations.run)
    approvals = _async(operations.approvals)
    approval = _async(operations.approval)
    approve = _async(operations.approve)
    deny = _async(operations.deny)
    withdraw = _async(operations.withdraw)
    create_token = _async(operations.create_token)
    tokens = _async(operations.tokens)
    revoke_token = _async(operations.revoke_token)
    put_secret = _async(operations.put_secret)
    secrets = _async(operations.secrets)
    delete_secret = _async(operations.delete_secret)
    rotate_vault = _async(operations.rotate_vault)
    reveal_secret = _async(operations.reveal_secret)
    identity = _async(admin_operations.identity)
    rotate_authority = _async(admin_operations.rotate_authority)
    create_pairing_code = _async(admin_operations.create_pairing_code)
    pairing_codes = _async(admin_operations.pairing_codes)
    withdraw_pairing_code = _async(admin_operations.withdraw_pairing_code)
    pairings = _async(admin_operations.pairings)
    pairing = _async(admin_operations.pairing)
    approve_pairing = _async(admin_operations.approve_pairing)
    reject_pairing = _async(admin_operations.reject_pairing)
    install_skill = _async(admin_operations.install_skill)
    audit_skill = _async(admin_operations.audit_skill)
    skills = _async(admin_operations.skills)
    skill = _async(admin_operations.skill)
    approve_skill = _async(admin_operations.approve_skill)
    change_skill = _async(admin_operations.change_skill)
    remove_skill = _async(admin_operations.remove_skill)
    purge_skill = _async(admin_operations.purge_skill)
    configure_skill = _async(admin_operations.configure_skill)
    publishers = _async(admin_operations.publishers)
    add_publisher = _async(admin_operations.add_publisher)
    remove_publisher = _async(admin_operations.remove_publisher)
    rotate_publisher = _async(admin_operations.rotate_publisher)
    revoke_key = _async(admin_operations.revoke_key)
    nodes = _async(admin_operations.nodes)
    node = _async(admin_operations.node)
    revoke_node = _async(admin_operations.revoke_node)
    withhold_capability = _async(admin_operations.withhold_capability)
    allow_capability = _async(admin_operations.allow_capability)
    mcp_servers = _async(admin_operations.mcp_servers)
    mcp_server = _async(admin_operations.mcp_server)
    look_at_mcp_server = _async(admin_operations.look_at_mcp_server)
    approve_mcp_tools = _async(admin_operations.approve_mcp_tools)
    workers = _async(admin_operations.workers)
    worker = _async(admin_operations.worker)
    change_worker = _async(admin_operations.change_worker)
    leases = _async(admin_operations.leases)
    lease = _async(admin_operations.lease)
    browser_sessions = _async(admin_operations.browser_sessions)
    browser_session = _async(admin_operations.browser_session)
    change_browser_session = _async(admin_operations.change_browser_session)
    browser_downloads = _async(admin_operations.browser_downloads)
    decide_browser_download = _async(admin_operations.decide_browser_download)
    browser_profiles = _async(admin_operations.browser_profiles)
    create_browser_profile = _async(admin_operations.create_browser_profile)
    change_browser_profile = _async(admin_operations.change_browser_profile)
    accept_browser_profiles = _async(admin_operations.accept_browser_profiles)
    status = _async(operations.status)
    health = _async(operations.health)
    ready = _async(operations.ready)
    metrics = _async(operations.metrics)

    def events(self, call_id: str, *, after: str | None = None) -> AsyncIterator[CallEvent]:
        """The call's events to its last, resumed over lost connections; ``after`` is the id of one already seen."""
        return self._follow(follow_call(call_id, after=after, limits=self._limits))

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _perform(self, operation: Operation[T]) -> T:
        try:
            request = next(operation)
            while True:
                request = operation.send(await self._transport.exchange(request.with_token(self._token)))
        except StopIteration as finished:
            result: T = finished.value
            return result

    async def _follow(self, script: Script) -> AsyncIterator[CallEvent]:
        import asyncio

        stream: AsyncByteStream | None = None
        try:
            step = next(script)
            while True:
                came: Head | bytes | None = None
                try:
                    match step:
                        case OpenStream(request):
                            if stream is not None:
                                await stream.close()
                            stream = await self._transport.open_stream(request.with_token(self._token))
                            came = Head(stream.status, stream.headers)
                        case ReadChunk() if stream is not None:
                            came = await stream.chunk()
                        case Pause(seconds):
                            await asyncio.sleep(seconds)
                        case Emit(event):
                            yield event
                except PalyraError as error:
                    step = script.throw(error)
                else:
                    step = script.send(came)
        except StopIteration:
            return
        finally:
            if stream is not None:
                await stream.close()


def _blocking(operation: Callable[P, Operation[T]]) -> Callable[Concatenate["Client", P], T]:
    @wraps(operation)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._perform(operation(*args, **kwargs))

    return method


class Client:
    """Threads may share one. Close it, or use it as a context manager."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        *,
        token: Secret | str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        limits: ClientLimits = DEFAULT_LIMITS,
        ssl_context: "ssl.SSLContext | None" = None,
        allow_plaintext: bool = False,
        transport: AsyncTransportPort | None = None,
    ) -> None:
        from palyra.client.blocking import BlockingTransport

        self._token = usable_token(token)
        self._limits = limits
        if transport is None:
            from palyra.client.transport import AsyncTransport

            address = ServerAddress.parse(base_url, allow_plaintext=allow_plaintext)
            transport = AsyncTransport(address, timeout=timeout, limits=limits, ssl_context=ssl_context)
        self._transport = BlockingTransport(transport)

    @classmethod
    def local(cls, state_dir: Path, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Self:
        """A client of the daemon that runs on this state directory, as its owner."""
        from palyra.client.address import find_daemon

        daemon = find_daemon(Path(state_dir))
        return cls(daemon.url, token=daemon.token, timeout=timeout)

    @classmethod
    def in_process(
        cls,
        app: "App",
        *,
        token: Secret | str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> Self:
        """A client of an ASGI application in this very process."""
        from palyra.client.in_process import AsyncAsgiTransport

        return cls(token=token, limits=limits, transport=AsyncAsgiTransport(app, timeout=timeout, limits=limits))

    call = _blocking(operations.call)
    call_status = _blocking(operations.call_status)
    cancel = _blocking(operations.cancel)
    tools = _blocking(operations.tools)
    tool = _blocking(operations.tool)
    start_run = _blocking(operations.start_run)
    run = _blocking(operations.run)
    approvals = _blocking(operations.approvals)
    approval = _blocking(operations.approval)
    approve = _blocking(operations.approve)
    deny = _blocking(operations.deny)
    withdraw = _blocking(operations.withdraw)
    create_token = _blocking(operations.create_token)
    tokens = _blocking(operations.tokens)
    revoke_token = _blocking(operations.revoke_token)
    put_secret = _blocking(operations.put_secret)
    secrets = _blocking(operations.secrets)
    delete_secret = _blocking(operations.delete_secret)
    rotate_vault = _blocking(operations.rotate_vault)
    reveal_secret = _blocking(operations.reveal_secret)
    identity = _blocking(admin_operations.identity)
    rotate_authority = _blocking(admin_operations.rotate_authority)
    create_pairing_code = _blocking(admin_operations.create_pairing_code)
    pairing_codes = _blocking(admin_operations.pairing_codes)
    withdraw_pairing_code = _blocking(admin_operations.withdraw_pairing_code)
    pairings = _blocking(admin_operations.pairings)
    pairing = _blocking(admin_operations.pairing)
    approve_pairing = _blocking(admin_operations.approve_pairing)
    reject_pairing = _blocking(admin_operations.reject_pairing)
    install_skill = _blocking(admin_operations.install_skill)
    audit_skill = _blocking(admin_operations.audit_skill)
    skills = _blocking(admin_operations.skills)
    skill = _blocking(admin_operations.skill)
    approve_skill = _blocking(admin_operations.approve_skill)
    change_skill = _blocking(admin_operations.change_skill)
    remove_skill = _blocking(admin_operations.remove_skill)
    purge_skill = _blocking(admin_operations.purge_skill)
    configure_skill = _blocking(admin_operations.configure_skill)
    publishers = _blocking(admin_operations.publishers)
    add_publisher = _blocking(admin_operations.add_publisher)
    remove_publisher = _blocking(admin_operations.remove_publisher)
    rotate_publisher = _blocking(admin_operations.rotate_publisher)
    revoke_key = _blocking(admin_operations.revoke_key)
    nodes = _blocking(admin_operations.nodes)
    node = _blocking(admin_operations.node)
    revoke_node = _blocking(admin_operations.revoke_node)
    withhold_capability = _blocking(admin_operations.withhold_capability)
    allow_capability = _blocking(admin_operations.allow_capability)
    mcp_servers = _blocking(admin_operations.mcp_servers)
    mcp_server = _blocking(admin_operations.mcp_server)
    look_at_mcp_server = _blocking(admin_operations.look_at_mcp_server)
    approve_mcp_tools = _blocking(admin_operations.approve_mcp_tools)
    workers = _blocking(admin_operations.workers)
    worker = _blocking(admin_operations.worker)
    change_worker = _blocking(admin_operations.change_worker)
    leases = _blocking(admin_operations.leases)
    lease = _blocking(admin_operations.lease)
    browser_sessions = _blocking(admin_operations.browser_sessions)
    browser_session = _blocking(admin_operations.browser_session)
    change_browser_session = _blocking(admin_operations.change_browser_session)
    browser_downloads = _blocking(admin_operations.browser_downloads)
    decide_browser_download = _blocking(admin_operations.decide_browser_download)
    browser_profiles = _blocking(admin_operations.browser_profiles)
    create_browser_profile = _blocking(admin_operations.create_browser_profile)
    change_browser_profile = _blocking(admin_operations.change_browser_profile)
    accept_browser_profiles = _blocking(admin_operations.accept_browser_profiles)
    status = _blocking(operations.status)
    health = _blocking(operations.health)
    ready = _blocking(operations.ready)
    metrics = _blocking(operations.metrics)

    def events(self, call_id: str, *, after: str | None = None) -> Iterator[CallEvent]:
        """The call's events to its last, resumed over lost connections; ``after`` is the id of one already seen."""
        return self._follow(follow_call(call_id, after=after, limits=self._limits))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _perform(self, operation: Operation[T]) -> T:
        try:
            request = next(operation)
            while True:
                request = operation.send(self._transport.exchange(request.with_token(self._token)))
        except StopIteration as finished:
            result: T = finished.value
            return result

    def _follow(self, script: Script) -> Iterator[CallEvent]:
        stream: BlockingStream | None = None
        try:
            step = next(script)
            while True:
                came: Head | bytes | None = None
                try:
                    match step:
                        case OpenStream(request):
                            if stream is not None:
                                stream.close()
                            stream = self._transport.open_stream(request.with_token(self._token))
                            came = Head(stream.status, stream.headers)
                        case ReadChunk() if stream is not None:
                            came = stream.chunk()
                        case Pause(seconds):
                            time.sleep(seconds)
                        case Emit(event):
                            yield event
                except PalyraError as error:
                    step = script.throw(error)
                else:
                    step = script.send(came)
        except StopIteration:
            return
        finally:
            if stream is not None:
                stream.close()
