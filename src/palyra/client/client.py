"""``Client``: the operations of the API as methods, over a transport.

    with Client.local(state_dir) as client:
        print(client.call("echo", {"text": "hi"}).result)

``AsyncClient`` has the same operations; what an operation does is written once, in ``operations``.
"""

import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

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
from palyra.client.protocol import DEFAULT_LIMITS, DEFAULT_TIMEOUT_SECONDS, AsyncTransportPort, ClientLimits, Operation
from palyra.client.views import CallEvent
from palyra.errors import PalyraError
from palyra.secret import Secret

if TYPE_CHECKING:
    import ssl

    from palyra.client.asgi import App
    from palyra.client.blocking import BlockingStream

P = ParamSpec("P")
T = TypeVar("T")


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
        """A client of an ASGI application in this very process."""
        from palyra.client.asgi import AsyncAsgiTransport

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
    identity = _blocking(identity_operations.identity)
    rotate_authority = _blocking(identity_operations.rotate_authority)
    create_pairing_code = _blocking(pairing_operations.create_pairing_code)
    pairing_codes = _blocking(pairing_operations.pairing_codes)
    withdraw_pairing_code = _blocking(pairing_operations.withdraw_pairing_code)
    pairings = _blocking(pairing_operations.pairings)
    pairing = _blocking(pairing_operations.pairing)
    approve_pairing = _blocking(pairing_operations.approve_pairing)
    reject_pairing = _blocking(pairing_operations.reject_pairing)
    install_skill = _blocking(skill_operations.install_skill)
    audit_skill = _blocking(skill_operations.audit_skill)
    skills = _blocking(skill_operations.skills)
    skill = _blocking(skill_operations.skill)
    approve_skill = _blocking(skill_operations.approve_skill)
    change_skill = _blocking(skill_operations.change_skill)
    remove_skill = _blocking(skill_operations.remove_skill)
    purge_skill = _blocking(skill_operations.purge_skill)
    configure_skill = _blocking(skill_operations.configure_skill)
    publishers = _blocking(skill_operations.publishers)
    add_publisher = _blocking(skill_operations.add_publisher)
    remove_publisher = _blocking(skill_operations.remove_publisher)
    rotate_publisher = _blocking(skill_operations.rotate_publisher)
    revoke_key = _blocking(skill_operations.revoke_key)
    nodes = _blocking(node_operations.nodes)
    node = _blocking(node_operations.node)
    revoke_node = _blocking(node_operations.revoke_node)
    withhold_capability = _blocking(node_operations.withhold_capability)
    allow_capability = _blocking(node_operations.allow_capability)
    mcp_servers = _blocking(mcp_operations.mcp_servers)
    mcp_server = _blocking(mcp_operations.mcp_server)
    look_at_mcp_server = _blocking(mcp_operations.look_at_mcp_server)
    approve_mcp_tools = _blocking(mcp_operations.approve_mcp_tools)
    workers = _blocking(worker_operations.workers)
    worker = _blocking(worker_operations.worker)
    change_worker = _blocking(worker_operations.change_worker)
    leases = _blocking(worker_operations.leases)
    lease = _blocking(worker_operations.lease)
    browser_sessions = _blocking(browser_operations.browser_sessions)
    browser_session = _blocking(browser_operations.browser_session)
    change_browser_session = _blocking(browser_operations.change_browser_session)
    browser_downloads = _blocking(browser_operations.browser_downloads)
    decide_browser_download = _blocking(browser_operations.decide_browser_download)
    browser_profiles = _blocking(browser_operations.browser_profiles)
    create_browser_profile = _blocking(browser_operations.create_browser_profile)
    change_browser_profile = _blocking(browser_operations.change_browser_profile)
    accept_browser_profiles = _blocking(browser_operations.accept_browser_profiles)
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
