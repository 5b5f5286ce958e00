"""Answers a guest's questions in the daemon: resolves handles, checks, counts, asks the services, bounds the time."""

import asyncio
import logging
from typing import Final

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, NeedsApproval, PalyraError, Unavailable
from palyra.wasm.abi import Status
from palyra.wasm.grants import CapabilityGrantSet, Grant
from palyra.wasm.guest_request import KIND_OF, check_key, guest_request
from palyra.wasm.limits import RuntimeLimits
from palyra.wasm.ports import HostRefusal, HostServices
from palyra.wasm.wire import Answer, Ask

_LOG = logging.getLogger("palyra.wasm")
_ENCODER: Final = msgspec.msgpack.Encoder()
_MS_PER_SECOND: Final = 1_000
_BY_BRANCH: Final = (
    (Denied, Status.DENIED),
    (NeedsApproval, Status.DENIED),
    (LimitExceeded, Status.QUOTA),
    (Unavailable, Status.UNAVAILABLE),
    (InvalidInput, Status.BAD_REQUEST),
)


class HostAnswers:
    """One object serves one call of a guest."""

    def __init__(self, grants: CapabilityGrantSet, services: HostServices, limits: RuntimeLimits) -> None:
        self._grants = grants
        self._services = services
        self._limits = limits
        self.count = 0

    async def answer(self, ask: Ask) -> Answer:
        self.count += 1
        if self.count > self._limits.max_outside_calls:
            return Answer(number=ask.number, status=Status.QUOTA)
        try:
            async with asyncio.timeout(self._limits.host_call_timeout_ms / _MS_PER_SECOND):
                result = await self._serve(ask)
        except TimeoutError:
            result = Status.TIMED_OUT
        except HostRefusal as refusal:
            result = refusal.status
        except PalyraError as problem:
            result = next((status for branch, status in _BY_BRANCH if isinstance(problem, branch)), Status.FAILED)
        except Exception:
            # The guest learns that it failed; what failed is ours to know.
            _LOG.exception("a host service for a guest failed: %s", ask.operation)
            result = Status.FAILED
        if isinstance(result, Status):
            return Answer(number=ask.number, status=result)
        if len(result) > self._limits.max_response_bytes:
            return Answer(number=ask.number, status=Status.TOO_LARGE)
        return Answer(number=ask.number, status=Status.OK, result=result)

    async def _serve(self, ask: Ask) -> bytes | Status:
        kind = KIND_OF.get(ask.operation)
        if kind is None:
            return Status.BAD_REQUEST
        grant = self._grants.resolve(kind, ask.handle)
        if grant is None:
            return Status.BAD_HANDLE
        if len(ask.body) > self._limits.max_request_bytes:
            return Status.TOO_LARGE
        match ask.operation:
            case "http":
                return await self._http(grant, ask)
            case "secret-reveal":
                if grant.name not in self._grants.revealable_secrets:
                    return Status.DENIED
                return (await self._services.secret_reveal(grant)).encode()
            case "channel-send":
                try:
                    text = ask.body.decode()
                except UnicodeDecodeError:
                    return Status.BAD_UTF8
                await self._services.channel_send(grant, text)
                return b""
            case _:
                return await self._storage(grant, ask)

    async def _http(self, grant: Grant, ask: Ask) -> bytes | Status:
        request = guest_request(ask, self._grants, self._limits)
        if isinstance(request, Status):
            return request
        response = await self._services.http(grant, request)
        if len(response.body) > self._limits.max_response_bytes:
            return Status.TOO_LARGE
        return _ENCODER.encode(response)

    async def _storage(self, grant: Grant, ask: Ask) -> bytes | Status:
        wrong = check_key(ask.key, may_be_empty=ask.operation == "storage-list")
        if wrong is not Status.OK:
            return wrong
        match ask.operation:
            case "storage-get":
                return await self._services.storage_get(grant, ask.key)
            case "storage-put":
                await self._services.storage_put(grant, ask.key, ask.body)
            case "storage-delete":
                await self._services.storage_delete(grant, ask.key)
            case _:
                return _ENCODER.encode(await self._services.storage_list(grant, ask.key))
        return b""
