"""Answers a guest's questions in the daemon: resolves handles, checks, counts, asks the services, bounds the time.

The worker is not trusted: a question is judged by its shape before a service sees it.
"""

import asyncio
import logging
import re
from typing import Final

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, NeedsApproval, PalyraError, Unavailable
from palyra.wasm.domain.frames import Answer, Ask
from palyra.wasm.domain.grants import Capability, CapabilityGrantSet, Grant
from palyra.wasm.domain.host_interface import AttachedSecret, GuestRequest, HostRefusal, HostServices, Status
from palyra.wasm.domain.limits import (
    MAX_ATTACHED_SECRETS,
    MAX_HEADER_BYTES,
    MAX_HEADER_COUNT,
    MAX_STORAGE_KEY_BYTES,
    RuntimeLimits,
)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
# Visible ASCII, with spaces and tabs. A header value with anything else is read differently by different programs.
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*\Z")
_PATH: Final = re.compile(r"/[\x21-\x7e]*\Z")
# The connection, the length and the host are the requester's to say.
_RESERVED: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"),
        *("keep-alive", "proxy-authorization", "proxy-connection", "proxy-authenticate"),
    }
)
_KEY: Final = re.compile(r"[^\x00-\x1f\x7f\\]+\Z")

KIND_OF: Final = {
    "http": Capability.HTTP,
    "secret-reveal": Capability.SECRET,
    "storage-get": Capability.STORAGE,
    "storage-put": Capability.STORAGE,
    "storage-delete": Capability.STORAGE,
    "storage-list": Capability.STORAGE,
    "channel-send": Capability.CHANNEL,
}


def check_key(key: str, *, may_be_empty: bool = False) -> Status:
    """Check that a key is a relative path of ordinary names. The prefix of a listing ``may_be_empty``."""
    if may_be_empty and not key:
        return Status.OK
    if len(key.encode("utf-8", "surrogatepass")) > MAX_STORAGE_KEY_BYTES:
        return Status.TOO_LARGE
    if not _KEY.match(key) or any("\ud800" <= character <= "\udfff" for character in key):
        return Status.BAD_REQUEST
    names = key.split("/")
    if may_be_empty and names[-1] == "":
        names.pop()
    return Status.BAD_REQUEST if any(name in ("", ".", "..") for name in names) else Status.OK


def _good_header(name: str, value: str) -> bool:
    return bool(_TOKEN.match(name) and _VALUE.match(value)) and name.lower() not in _RESERVED


def guest_request(ask: Ask, grants: CapabilityGrantSet, limits: RuntimeLimits) -> GuestRequest | Status:
    size = len(ask.key) + sum(len(name) + len(value) for name, value in ask.headers)
    size += sum(len(attached.header) + len(attached.prefix) for attached in ask.attachments)
    if (
        size > MAX_HEADER_BYTES
        or len(ask.headers) > MAX_HEADER_COUNT
        or len(ask.attachments) > MAX_ATTACHED_SECRETS
        or len(ask.body) > limits.max_request_bytes
    ):
        return Status.TOO_LARGE
    if ask.method not in _METHODS or not _PATH.match(ask.key):
        return Status.BAD_REQUEST
    secrets = []
    for attached in ask.attachments:
        grant = grants.resolve(Capability.SECRET, attached.secret)
        if grant is None:
            return Status.BAD_HANDLE
        secrets.append(AttachedSecret(secret=grant, header=attached.header, prefix=attached.prefix))
    if not all(_good_header(name, value) for name, value in ask.headers):
        return Status.BAD_REQUEST
    # A header that carries a secret is there once: a guest's own of the same name could make a server echo either.
    names = [secret.header.lower() for secret in secrets]
    taken = {name.lower() for name, _ in ask.headers}
    if len(set(names)) != len(names) or taken & set(names):
        return Status.BAD_REQUEST
    if not all(_good_header(secret.header, secret.prefix) for secret in secrets):
        return Status.BAD_REQUEST
    return GuestRequest(
        method=ask.method,
        path=ask.key,
        headers=ask.headers,
        body=ask.body,
        secrets=tuple(secrets),
        max_response_bytes=limits.max_response_bytes,
    )


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
