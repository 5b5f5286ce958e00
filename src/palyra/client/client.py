"""``Client``: the operations of the API as methods, over a transport.

    with Client.local(state_dir) as client:
        print(client.call("echo", {"text": "hi"}).result)

``AsyncClient`` has the same operations as coroutines. What an operation does is written once, in ``operations``.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from palyra.client import admin_operations, operations
from palyra.client.address import DEFAULT_BASE_URL, ServerAddress, find_daemon, usable_token
from palyra.client.events import Emit, Head, OpenStream, Pause, ReadChunk, follow_call
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

    from palyra.client.in_process import App

P = ParamSpec("P")
T = TypeVar("T")


class _Method(Generic[P, T]):
    """An operation as a method: a coroutine in ``AsyncClient``, a blocking one in ``Client``."""

    def __init__(self, operation: Callable[P, Operation[T]]) -> None:
        self._operation = operation

    @overload
    def __get__(
        self, client: None, owner: "type[AsyncClient]"
    ) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: None, owner: "type[Client]") -> Callable[Concatenate["Client", P], T]: ...

    @overload
    def __get__(self, client: "AsyncClient", owner: "type[AsyncClient]") -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: "Client", owner: "type[Client]") -> Callable[P, T]: ...

    def __get__(self, client: "_Operations | None", owner: "type[_Operations]") -> Any:
        method = owner._method_of(self._operation)
        return method if client is None else method.__get__(client, owner)


class _Operations:
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
        self._start()

    def _start(self) -> None:
        """Prepare to send requests."""

    @classmethod
    def local(cls, state_dir: Path, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Self:
        """Make a client of the daemon that runs on this state directory, with its owner's token."""
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
        """Make a client of an ASGI application in this process."""
        from palyra.client.in_process import AsyncAsgiTransport

        return cls(token=token, limits=limits, transport=AsyncAsgiTransport(app, timeout=timeout, limits=limits))

    call = _Method(operations.call)
    call_status = _Method(operations.call_status)
    call_arguments = _Method(operations.call_arguments)
    cancel = _Method(operations.cancel)
    tools = _Method(operations.tools)
    tool = _Method(operations.tool)
    start_run = _Method(operations.start_run)
    run = _Method(operations.run)
    approvals = _Method(operations.approvals)
    approvals_page = _Method(operations.approvals_page)
    approval = _Method(operations.approval)
    approve = _Method(operations.approve)
    deny = _Method(operations.deny)
    withdraw = _Method(operations.withdraw)
    create_token = _Method(operations.create_token)
    tokens = _Method(operations.tokens)
    revoke_token = _Method(operations.revoke_token)
    put_secret = _Method(operations.put_secret)
    secrets = _Method(operations.secrets)
    delete_secret = _Method(operations.delete_secret)
    rotate_vault = _Method(operations.rotate_vault)
    reveal_secret = _Method(operations.reveal_secret)
    identity = _Method(admin_operations.identity)
    rotate_authority = _Method(admin_operations.rotate_authority)
    create_pairing_code = _Method(admin_operations.create_pairing_code)
    pairing_codes = _Method(admin_operations.pairing_codes)
    withdraw_pairing_code = _Method(admin_operations.withdraw_pairing_code)
    pairings = _Method(admin_operations.pairings)
    pairing = _Method(admin_operations.pairing)
    approve_pairing = _Method(admin_operations.approve_pairing)
    reject_pairing = _Method(admin_operations.reject_pairing)
    install_skill = _Method(admin_operations.install_skill)
    audit_skill = _Method(admin_operations.audit_skill)
    skills = _Method(admin_operations.skills)
    skill = _Method(admin_operations.skill)
    approve_skill = _Method(admin_operations.approve_skill)
    change_skill = _Method(admin_operations.change_skill)
    remove_skill = _Method(admin_operations.remove_skill)
    purge_skill = _Method(admin_operations.purge_skill)
    configure_skill = _Method(admin_operations.configure_skill)
    publishers = _Method(admin_operations.publishers)
    add_publisher = _Method(admin_operations.add_publisher)
    remove_publisher = _Method(admin_operations.remove_publisher)
    rotate_publisher = _Method(admin_operations.rotate_publisher)
    revoke_key = _Method(admin_operations.revoke_key)
    nodes = _Method(admin_operations.nodes)
    node = _Method(admin_operations.node)
    revoke_node = _Method(admin_operations.revoke_node)
    withhold_capability = _Method(admin_operations.withhold_capability)
    allow_capability = _Method(admin_operations.allow_capability)
    mcp_servers = _Method(admin_operations.mcp_servers)
    mcp_server = _Method(admin_operations.mcp_server)
    look_at_mcp_server = _Method(admin_operations.look_at_mcp_server)
    approve_mcp_tools = _Method(admin_operations.approve_mcp_tools)
    workers = _Method(admin_operations.workers)
    worker = _Method(admin_operations.worker)
    change_worker = _Method(admin_operations.change_worker)
    leases = _Method(admin_operations.leases)
    lease = _Method(admin_operations.lease)
    browser_sessions = _Method(admin_operations.browser_sessions)
    browser_session = _Method(admin_operations.browser_session)
    change_browser_session = _Method(admin_operations.change_browser_session)
    browser_downloads = _Method(admin_operations.browser_downloads)
    decide_browser_download = _Method(admin_operations.decide_browser_download)
    browser_profiles = _Method(admin_operations.browser_profiles)
    create_browser_profile = _Method(admin_operations.create_browser_profile)
    change_browser_profile = _Method(admin_operations.change_browser_profile)
    accept_browser_profiles = _Method(admin_operations.accept_browser_profiles)
    status = _Method(operations.status)
    health = _Method(operations.health)
    ready = _Method(operations.ready)
    metrics = _Method(operations.metrics)

    @staticmethod
    @abstractmethod
    def _method_of(operation: Callable[..., Operation[Any]]) -> Callable[..., Any]: ...

    async def _exchange(self, operation: Operation[T]) -> T:
        try:
            request = next(operation)
            while True:
                request = operation.send(await self._transport.exchange(request.with_token(self._token)))
        except StopIteration as finished:
            result: T = finished.value
            return result

    async def _follow(self, call_id: str, after: str | None) -> AsyncGenerator[CallEvent, None]:
        import asyncio

        script = follow_call(call_id, after=after, limits=self._limits)
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


class AsyncClient(_Operations):
    """Belongs to one event loop. Close it, or use it as an asynchronous context manager."""

    def events(self, call_id: str, *, after: str | None = None) -> AsyncIterator[CallEvent]:
        """Follow a call's events to the last, over lost connections too. ``after`` is the id of one already seen."""
        return self._follow(call_id, after)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @staticmethod
    def _method_of(operation: Callable[..., Operation[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(operation)
        async def method(self: "AsyncClient", /, *args: Any, **kwargs: Any) -> T:
            return await self._exchange(operation(*args, **kwargs))

        return method


class Client(_Operations):
    """Threads may share one. Close it, or use it as a context manager."""

    def _start(self) -> None:
        from palyra.client.blocking import LoopThread

        self._loop = LoopThread()
        try:
            self._loop.run(self._transport.open())
        except BaseException:
            self.close()
            raise

    def events(self, call_id: str, *, after: str | None = None) -> Iterator[CallEvent]:
        """Follow a call's events to the last, over lost connections too. ``after`` is the id of one already seen."""
        following = self._follow(call_id, after)

        async def read_next() -> CallEvent | None:
            return await anext(following, None)

        try:
            while (event := self._loop.run(read_next())) is not None:
                yield event
        finally:
            self._loop.run(following.aclose())

    def close(self) -> None:
        self._loop.close(self._transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @staticmethod
    def _method_of(operation: Callable[..., Operation[T]]) -> Callable[..., T]:
        @wraps(operation)
        def method(self: "Client", /, *args: Any, **kwargs: Any) -> T:
            return self._loop.run(self._exchange(operation(*args, **kwargs)))

        return method
