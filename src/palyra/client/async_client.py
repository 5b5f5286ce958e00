"""``AsyncClient``: the operations of the API as coroutines. ``Client`` has the same, and blocks."""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from palyra.client import (
    browser_operations,
    identity_operations,
    mcp_operations,
    node_operations,
    operations,
    pairing_operations,
    skill_operations,
    worker_operations,
)
from palyra.client.address import DEFAULT_BASE_URL, ServerAddress, usable_token
from palyra.client.following import Emit, Head, OpenStream, Pause, ReadChunk, Script, follow_call
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

    from palyra.client.asgi import App

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
        from palyra.client.local import find_daemon

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
        from palyra.client.asgi import AsyncAsgiTransport

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
    identity = _async(identity_operations.identity)
    rotate_authority = _async(identity_operations.rotate_authority)
    create_pairing_code = _async(pairing_operations.create_pairing_code)
    pairing_codes = _async(pairing_operations.pairing_codes)
    withdraw_pairing_code = _async(pairing_operations.withdraw_pairing_code)
    pairings = _async(pairing_operations.pairings)
    pairing = _async(pairing_operations.pairing)
    approve_pairing = _async(pairing_operations.approve_pairing)
    reject_pairing = _async(pairing_operations.reject_pairing)
    install_skill = _async(skill_operations.install_skill)
    audit_skill = _async(skill_operations.audit_skill)
    skills = _async(skill_operations.skills)
    skill = _async(skill_operations.skill)
    approve_skill = _async(skill_operations.approve_skill)
    change_skill = _async(skill_operations.change_skill)
    remove_skill = _async(skill_operations.remove_skill)
    purge_skill = _async(skill_operations.purge_skill)
    configure_skill = _async(skill_operations.configure_skill)
    publishers = _async(skill_operations.publishers)
    add_publisher = _async(skill_operations.add_publisher)
    remove_publisher = _async(skill_operations.remove_publisher)
    rotate_publisher = _async(skill_operations.rotate_publisher)
    revoke_key = _async(skill_operations.revoke_key)
    nodes = _async(node_operations.nodes)
    node = _async(node_operations.node)
    revoke_node = _async(node_operations.revoke_node)
    withhold_capability = _async(node_operations.withhold_capability)
    allow_capability = _async(node_operations.allow_capability)
    mcp_servers = _async(mcp_operations.mcp_servers)
    mcp_server = _async(mcp_operations.mcp_server)
    look_at_mcp_server = _async(mcp_operations.look_at_mcp_server)
    approve_mcp_tools = _async(mcp_operations.approve_mcp_tools)
    workers = _async(worker_operations.workers)
    worker = _async(worker_operations.worker)
    change_worker = _async(worker_operations.change_worker)
    leases = _async(worker_operations.leases)
    lease = _async(worker_operations.lease)
    browser_sessions = _async(browser_operations.browser_sessions)
    browser_session = _async(browser_operations.browser_session)
    change_browser_session = _async(browser_operations.change_browser_session)
    browser_downloads = _async(browser_operations.browser_downloads)
    decide_browser_download = _async(browser_operations.decide_browser_download)
    browser_profiles = _async(browser_operations.browser_profiles)
    create_browser_profile = _async(browser_operations.create_browser_profile)
    change_browser_profile = _async(browser_operations.change_browser_profile)
    accept_browser_profiles = _async(browser_operations.accept_browser_profiles)
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
