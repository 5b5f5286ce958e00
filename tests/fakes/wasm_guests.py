"""Guests in text form, a host that answers them, and a runtime for a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import wasmtime

from palyra.secret import Secret
from palyra.wasm.domain.grants import CapabilityGrantSet, Grant
from palyra.wasm.domain.host_interface import IMPORT_MODULE, GuestRequest, GuestResponse, HostRefusal, Status
from palyra.wasm.domain.limits import PoolSettings, RuntimeLimits
from palyra.wasm.domain.outcome import LogLine
from palyra.wasm.runtime import WasmRuntime

GRANTS = CapabilityGrantSet(
    http_hosts=("b.example", "a.example"),
    secret_keys=("token", "password"),
    revealable_secrets=("password",),
    storage_prefixes=("notes",),
    channels=("news",),
)

ALLOC = """
  (global $free (mut i32) (i32.const 4096))
  (func $alloc (export "palyra_alloc") (param $n i32) (result i32) (local $at i32)
    (local.set $at (global.get $free))
    (global.set $free (i32.add (global.get $free) (local.get $n)))
    (local.get $at))
"""
PACK = """
  (func $pack (param $at i32) (param $length i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32)) (i64.extend_i32_u (local.get $length))))
"""
ECHO = f"""(module (memory (export "memory") 2) {ALLOC} {PACK}
  (func (export "run") (param i32 i32 i32 i32) (result i64) (call $pack (local.get 2) (local.get 3))))"""


def wasm(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


def minimal(body: str, *, before: str = "", memory: str = '(memory (export "memory") 1)') -> bytes:
    """A module whose ``run`` has no parameters and returns an exit code."""
    return wasm(f'(module {before} {memory} (func (export "run") (result i32) {body}))')


def imported(name: str, parameters: int, *, alias: str = "") -> str:
    """The import of a host function under ``$name``."""
    types = f"(param {' '.join(['i32'] * parameters)})" if parameters else ""
    return f'(import "{IMPORT_MODULE}" "{name}" (func ${alias or name} {types} (result i32)))'


def text_at(place: int, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    escaped = "".join("\\" + f"{byte:02x}" for byte in data)
    return f'(data (i32.const {place}) "{escaped}")'


class FakeServices:
    """Remembers what it was asked and answers from memory."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.stored: dict[str, bytes] = {}
        self.response = GuestResponse(status=200, headers=(("content-type", "text/plain"),), body=b"hello")
        self.problem: BaseException | None = None
        self.hold: asyncio.Event | None = None
        self.waiting = 0

    async def _note(self, what: str, value: Any) -> None:
        self.asked.append((what, value))
        if self.hold is not None:
            self.waiting += 1
            try:
                await self.hold.wait()
            finally:
                self.waiting -= 1
        if self.problem is not None:
            raise self.problem

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        await self._note("http", (grant, request))
        return self.response

    async def secret_reveal(self, grant: Grant) -> str:
        await self._note("reveal", grant)
        return f"value of {grant.name}"

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        await self._note("get", (grant, key))
        if key not in self.stored:
            raise HostRefusal(Status.NOT_FOUND)
        return self.stored[key]

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        await self._note("put", (grant, key, value))
        self.stored[key] = value

    async def storage_delete(self, grant: Grant, key: str) -> None:
        await self._note("delete", (grant, key))
        self.stored.pop(key, None)

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        await self._note("list", (grant, prefix))
        return tuple(sorted(key for key in self.stored if key.startswith(prefix)))

    async def channel_send(self, grant: Grant, text: str) -> None:
        await self._note("send", (grant, text))

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        return LogLine(level=line.level, text=line.text.replace("hunter2", "[redacted]"))


@contextlib.asynccontextmanager
async def open_runtime(
    folder: Path, *, limits: RuntimeLimits | None = None, key: str = "a key of this test", **pool: Any
) -> AsyncIterator[WasmRuntime]:
    runtime = WasmRuntime(
        cache_directory=folder / "compiled",
        key=Secret(key),
        limits=limits,
        pool=PoolSettings(**({"ready": 1} | pool)),
    )
    try:
        yield runtime
    finally:
        await runtime.close()


# A component: its host functions, a libc with an allocator, and a body for ``run`` that returns its result's place.
_LIBC = """
  (core module $libc
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32) (param $n i32) (result i32) (local $at i32)
      (local.set $at (global.get $free))
      (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get $n)) (i32.const 7)) (i32.const -8)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
"""
_RUN_TYPE = '(param "tool" string) (param "input" string) (result (result string (error string)))'


def component(body: str, *, imports: str = "", lowered: str = "", core: str = "", given: str = "") -> bytes:
    """``imports`` at the component's level, ``lowered`` functions, ``core`` text inside the module, ``given`` to it."""
    return wasm(
        f"""(component {imports} {_LIBC} {lowered}
  (core module $m (import "libc" "memory" (memory 1)) {core}
    (func (export "run") (param $tool i32) (param $tool_length i32) (param $at i32) (param $length i32) (result i32)
      {body}))
  (core instance $i (instantiate $m (with "libc" (instance $libc)) {given}))
  (func (export "run") {_RUN_TYPE}
    (canon lift (core func $i "run") (memory (core memory $libc "memory")) (realloc (core func $libc "realloc")))))"""
    )


# The result at 16: its tag, the place and the length of the text.
RETURN_INPUT = """
  (i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (local.get $at))
  (i32.store (i32.const 24) (local.get $length)) (i32.const 16)"""
RETURN_ERROR = RETURN_INPUT.replace(
    "(i32.store (i32.const 16) (i32.const 0))", "(i32.store (i32.const 16) (i32.const 1))"
)
