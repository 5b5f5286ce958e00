"""What guests ask of the outside, answered in the daemon's loop. One object serves one call.

The runtime has resolved the handle, checked sizes and counted the use before a method is called; each call runs under
``host_call_timeout_ms``. A method answers with a value or raises ``HostRefusal`` with the status the guest shall see;
any other ``PalyraError`` becomes a status by its branch, and its text never reaches the guest.
"""

from typing import Protocol

import msgspec

from palyra.wasm.abi import Status
from palyra.wasm.grants import Grant
from palyra.wasm.outcome import LogLine


class AttachedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """``header: prefix + value`` goes with the request; the value is put in where the request leaves."""

    secret: Grant
    header: str
    prefix: str


class GuestRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    secrets: tuple[AttachedSecret, ...] = ()
    max_response_bytes: int


class GuestResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class HostRefusal(Exception):
    """An answer to the guest, not an error of Palyra's."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class HostServices(Protocol):
    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse: ...

    async def secret_reveal(self, grant: Grant) -> str: ...

    async def storage_get(self, grant: Grant, key: str) -> bytes: ...

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None: ...

    async def storage_delete(self, grant: Grant, key: str) -> None: ...

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]: ...

    async def channel_send(self, grant: Grant, text: str) -> None: ...

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        """The line as it may be kept: redacted. Of a text that was cut the end may be the beginning of a secret."""
        ...


class NoServices:
    """For guests without grants: nothing resolves, so nothing is ever asked."""

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        raise HostRefusal(Status.UNAVAILABLE)

    async def secret_reveal(self, grant: Grant) -> str:
        raise HostRefusal(Status.UNAVAILABLE)

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        raise HostRefusal(Status.UNAVAILABLE)

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        raise HostRefusal(Status.UNAVAILABLE)

    async def storage_delete(self, grant: Grant, key: str) -> None:
        raise HostRefusal(Status.UNAVAILABLE)

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        raise HostRefusal(Status.UNAVAILABLE)

    async def channel_send(self, grant: Grant, text: str) -> None:
        raise HostRefusal(Status.UNAVAILABLE)

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        return line
