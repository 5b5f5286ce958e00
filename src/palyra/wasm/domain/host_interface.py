"""The interface between guests and host: one table, two forms of it.

A core module imports from ``IMPORT_MODULE`` and passes places in its memory; a component imports ``HOST_INTERFACE`` and
passes values. Each row names the function once, with its type in both forms, so that neither can have what the other
lacks by accident.

In the core form a negative result is a status. A function that brings data answers with its length and the guest copies
it with ``result-read``; the data stays until the next such call. ``http-send`` brings a line of JSON (``status``,
``headers``), a line feed, then the body.
"""

from enum import IntEnum
from typing import Final, Protocol

import msgspec

from palyra.wasm.domain.grants import Capability, Grant
from palyra.wasm.domain.outcome import LogLine

IMPORT_MODULE: Final = "palyra:plugins/host-capabilities@0.1.0"
HOST_INTERFACE: Final = "palyra:skill/host@0.1.0"
WASI_PREVIEW1: Final = "wasi_snapshot_preview1"
WASI_PREFIX: Final = "wasi:"

RUN: Final = "run"
ALLOC: Final = "palyra_alloc"
MEMORY: Final = "memory"
INITIALIZE: Final = "_initialize"

# The three forms of an entry point.
CORE_RUN: Final = "(i32 i32 i32 i32) -> (i64)"
CORE_ALLOC: Final = "(i32) -> (i32)"
MINIMAL_RUN: Final = "() -> (i32)"
COMPONENT_RUN: Final = "(string, string) -> result<string, string>"


class Status(IntEnum):
    """The answer of a host function that refused or failed. In WIT: the enum ``error-code``."""

    OK = 0
    BAD_HANDLE = -1
    BAD_POINTER = -2
    BAD_UTF8 = -3
    BAD_REQUEST = -4
    TOO_LARGE = -5
    DENIED = -6
    QUOTA = -7
    TIMED_OUT = -8
    NOT_FOUND = -9
    UNAVAILABLE = -10
    FAILED = -11

    @property
    def wit_name(self) -> str:
        return self.name.lower().replace("_", "-")


ERROR_NAMES: Final = tuple(status.wit_name for status in Status if status is not Status.OK)
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_ERROR: Final = f"enum{{{', '.join(ERROR_NAMES)}}}"
_HEADERS: Final = "list<record{name: string, value: string}>"
_ATTACHMENT: Final = "record{secret: u32, header: string, prefix: string}"
_REQUEST: Final = (
    f"record{{method: string, path: string, headers: {_HEADERS}, body: string, secrets: list<{_ATTACHMENT}>}}"
)
_RESPONSE: Final = f"record{{status: u16, headers: {_HEADERS}, body: string, base64: bool}}"


class HostFunction(msgspec.Struct, frozen=True, kw_only=True):
    """``core`` and ``wit`` are the function's types; empty where a form has no use for it."""

    name: str
    core: str = ""
    wit: str = ""


def _counted(kind: Capability) -> tuple[HostFunction, HostFunction]:
    return (
        HostFunction(name=f"{kind}-count", core="() -> (i32)", wit="() -> u32"),
        HostFunction(name=f"{kind}-handle", core="(i32) -> (i32)", wit=f"(u32) -> result<u32, {_ERROR}>"),
    )


HOST_FUNCTIONS: Final = (
    *_counted(Capability.HTTP),
    *_counted(Capability.SECRET),
    *_counted(Capability.STORAGE),
    *_counted(Capability.CHANNEL),
    # handle, the request's head as JSON, the body.
    HostFunction(
        name="http-send",
        core="(i32 i32 i32 i32 i32) -> (i32)",
        wit=f"(u32, {_REQUEST}) -> result<{_RESPONSE}, {_ERROR}>",
    ),
    # secret's handle, http handle, header name, prefix: goes with the next request to that host. A component names the
    # secrets in the request itself.
    HostFunction(name="secret-attach", core="(i32 i32 i32 i32 i32 i32) -> (i32)"),
    HostFunction(name="secret-reveal", core="(i32) -> (i32)", wit=f"(u32) -> result<string, {_ERROR}>"),
    HostFunction(name="storage-get", core="(i32 i32 i32) -> (i32)", wit=f"(u32, string) -> result<string, {_ERROR}>"),
    HostFunction(
        name="storage-put",
        core="(i32 i32 i32 i32 i32) -> (i32)",
        wit=f"(u32, string, string) -> result<_, {_ERROR}>",
    ),
    HostFunction(name="storage-delete", core="(i32 i32 i32) -> (i32)", wit=f"(u32, string) -> result<_, {_ERROR}>"),
    HostFunction(
        name="storage-list", core="(i32 i32 i32) -> (i32)", wit=f"(u32, string) -> result<list<string>, {_ERROR}>"
    ),
    HostFunction(name="channel-send", core="(i32 i32 i32) -> (i32)", wit=f"(u32, string) -> result<_, {_ERROR}>"),
    HostFunction(name="log", core="(i32 i32 i32) -> (i32)", wit=f"(enum{{{', '.join(LOG_LEVELS)}}}, string)"),
    # offset, place, length: copies from the last result.
    HostFunction(name="result-read", core="(i32 i32 i32) -> (i32)"),
    # The guest's own word that its work failed; a component returns the error of its result instead.
    HostFunction(name="fail", core="(i32 i32) -> (i32)"),
)

CORE_TYPES: Final = {function.name: function.core for function in HOST_FUNCTIONS if function.core}
WIT_TYPES: Final = {function.name: function.wit for function in HOST_FUNCTIONS if function.wit}


def core_types(signature: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``(i32 i32) -> (i64)`` as parameters and results."""
    parameters, _, results = signature.partition(" -> ")
    return tuple(parameters.strip("()").split()), tuple(results.strip("()").split())


# What guests ask of the outside, answered in the daemon's loop. One object serves one call.
#
# The runtime has resolved the handle, checked sizes and counted the use before a method is called; each call runs
# under ``host_call_timeout_ms``. A method answers with a value or raises ``HostRefusal`` with the status the guest
# shall see; any other ``PalyraError`` becomes a status by its branch, and its text never reaches the guest.


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
        """Redact the line. If the text was cut, its end may be the beginning of a secret."""
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
