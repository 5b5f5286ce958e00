"""Gives Python functions to core modules, in a way that cannot raise and cannot mix up two calls.

The callback that wasmtime calls is made here once for each function. It reads the raw arguments, hands them to the
implementation and writes the raw result. An exception in an implementation is a fault of ours: the guest gets a result
that says so, ``ActiveCall`` keeps the exception for the worker's report, and no global has it.
"""

import ctypes
import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import wasmtime

from palyra.wasm.domain.frames import Attachment
from palyra.wasm.domain.host_interface import CORE_TYPES, IMPORT_MODULE, Status, core_types
from palyra.wasm.domain.limits import MAX_ATTACHED_SECRETS, MAX_HEADER_BYTES, MAX_STORAGE_KEY_BYTES
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.store import U32, GuestMemory
from palyra.wasm.host.host_calls import KINDS, HostCalls

_TYPES: Final = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64}


class ActiveCall:
    """The call that runs now. A process runs one guest at a time, so it has one of these."""

    def __init__(self) -> None:
        self.calls: HostCalls | None = None
        self.memory = GuestMemory()
        self.result = b""
        self.fault: BaseException | None = None
        # Set by a function that ends the guest, with the reason.
        self.ended: str | None = None

    def begin(self, calls: HostCalls | None) -> None:
        """Forget the last call. Call it before a guest, and after it with None."""
        self.calls = calls
        self.result = b""
        if calls is not None:
            self.fault = self.ended = None


Implementation = Callable[..., int | None]


class CoreLinker:
    def __init__(self, engine: wasmtime.Engine, active: ActiveCall) -> None:
        self._active = active
        self.linker = wasmtime.Linker(engine)
        self._address = libwasmtime.address_of(self.linker)
        # Callbacks must outlive the linker.
        self._kept: list[object] = []

    def define(
        self,
        module: str,
        types: Mapping[str, str],
        functions: Mapping[str, Implementation],
        *,
        too_often: int,
        faulty: int,
    ) -> None:
        """Define the functions of a module, each with its signature in ``types``.

        An implementation takes unsigned integers, one per parameter. ``too_often`` is the result when the guest has
        called too many functions, ``faulty`` when one raises.
        """
        for name, signature in types.items():
            self._define(module, name, signature, functions[name], (too_often, faulty))

    def _define(
        self, module: str, name: str, signature: str, function: Implementation, fallback: tuple[int, int]
    ) -> None:
        parameters, results = core_types(signature)
        type_ = wasmtime.FuncType([_TYPES[kind]() for kind in parameters], [_TYPES[kind]() for kind in results])
        callback = libwasmtime.UncheckedCallback(self._callback(parameters, results, function, fallback))
        self._kept += [callback, type_]
        raw_module, raw_name = module.encode(), name.encode()
        error = libwasmtime.linker_define_func_unchecked(
            *(self._address, raw_module, len(raw_module), raw_name, len(raw_name)),
            *(libwasmtime.address_of(type_), ctypes.cast(callback, ctypes.c_void_p), None, None),
        )
        if error:
            raise wasmtime.WasmtimeError(libwasmtime.take_error(error))

    def _callback(
        self, parameters: tuple[str, ...], results: tuple[str, ...], function: Implementation, fallback: tuple[int, int]
    ) -> Callable[[int, int, int, int], int]:
        active = self._active
        too_often, faulty = fallback
        array = libwasmtime.RawValue * max(len(parameters), 1)
        wide = tuple(kind == "i64" for kind in parameters)
        takes_any, gives = bool(parameters), bool(results)

        def callback(_environment: int, caller: int, values: int, _length: int) -> int:
            answer: int | None = too_often
            raw = array.from_address(values) if takes_any or gives else None
            try:
                calls = active.calls
                if calls is not None and calls.enter():
                    if takes_any and raw is not None:
                        active.memory.of_caller(caller)
                        given = [value.u64 if long else value.u32 for value, long in zip(raw, wide, strict=True)]
                        answer = function(*given)
                    else:
                        answer = function()
            except BaseException as problem:
                active.fault = problem
                answer = faulty
            if active.ended is not None:
                reason = active.ended.encode()
                return int(libwasmtime.trap_new(reason, len(reason)))
            if gives and raw is not None:
                raw[0].i32 = answer if answer is not None else faulty
            return 0

        return callback


_I32_MOST: Final = 0x7FFFFFFF
# A guest says at most this much when it fails or logs; what is kept is bounded by its limits.
_MAX_TEXT_BYTES: Final = 64 * 1024


class RequestHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()


_HEAD: Final = msgspec.json.Decoder(RequestHead)


class CoreHostFunctions:
    """The host functions of core modules: places in memory on one side, ``HostCalls`` on the other."""

    def __init__(self, active: ActiveCall, max_request_bytes: Callable[[], int]) -> None:
        self._active = active
        self._memory = active.memory
        self._most = max_request_bytes
        self._pending: dict[int, list[Attachment]] = {}

    def begin(self) -> None:
        """Forget the secrets that the last guest attached and did not send."""
        self._pending = {}

    def define(self, linker: CoreLinker) -> None:
        linker.define(IMPORT_MODULE, CORE_TYPES, self._table(), too_often=Status.QUOTA, faulty=Status.FAILED)

    def _table(self) -> Mapping[str, Implementation]:
        table: dict[str, Implementation] = {
            "http-send": self._http_send,
            "secret-attach": self._secret_attach,
            "secret-reveal": self._secret_reveal,
            "storage-get": self._storage_get,
            "storage-put": self._storage_put,
            "storage-delete": self._storage_delete,
            "storage-list": self._storage_list,
            "channel-send": self._channel_send,
            "log": self._log,
            "result-read": self._result_read,
            "fail": self._fail,
        }
        for place, kind in enumerate(KINDS):
            table[f"{kind}-count"] = lambda place=place: self._calls.count_of_kind(place)
            table[f"{kind}-handle"] = lambda index, place=place: self._calls.handle(place, index)
        return table

    @property
    def _calls(self) -> HostCalls:
        if self._active.calls is None:
            raise RuntimeError("a host function was called while no guest runs")
        return self._active.calls

    def _brings(self, result: bytes | Status) -> int:
        """Keep a result for ``result-read`` and return its length."""
        if isinstance(result, Status):
            self._active.result = b""
            return result
        self._active.result = result
        return len(result)

    def _http_send(self, handle: int, head_at: int, head_length: int, body_at: int, body_length: int) -> int:
        attachments = tuple(self._pending.pop(handle, ()))
        self._active.result = b""
        text = self._memory.read_text(head_at, head_length, 2 * MAX_HEADER_BYTES)
        if isinstance(text, Status):
            return text
        body = self._memory.read(body_at, body_length, self._most())
        if isinstance(body, Status):
            return body
        try:
            head = _HEAD.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return Status.BAD_REQUEST
        response = self._calls.http_send(handle, head.method, head.path, head.headers, body, attachments)
        if isinstance(response, Status):
            return response
        line = json.dumps({"status": response.status, "headers": response.headers}, separators=(",", ":"))
        return self._brings(line.encode() + b"\n" + response.body)

    def _secret_attach(
        self, secret: int, http: int, name_at: int, name_length: int, prefix_at: int, prefix_length: int
    ) -> int:
        header = self._memory.read_text(name_at, name_length, MAX_HEADER_BYTES)
        prefix = self._memory.read_text(prefix_at, prefix_length, MAX_HEADER_BYTES)
        if isinstance(header, Status):
            return header
        if isinstance(prefix, Status):
            return prefix
        waiting = self._pending.setdefault(http, [])
        if len(waiting) >= MAX_ATTACHED_SECRETS or len(self._pending) > MAX_ATTACHED_SECRETS:
            return Status.QUOTA
        waiting.append(Attachment(secret=secret, header=header, prefix=prefix))
        return Status.OK

    def _secret_reveal(self, handle: int) -> int:
        return self._brings(self._calls.secret_reveal(handle))

    def _key(self, at: int, length: int) -> str | Status:
        return self._memory.read_text(at, length, MAX_STORAGE_KEY_BYTES)

    def _storage_get(self, handle: int, at: int, length: int) -> int:
        key = self._key(at, length)
        return key if isinstance(key, Status) else self._brings(self._calls.storage_get(handle, key))

    def _storage_put(self, handle: int, at: int, length: int, value_at: int, value_length: int) -> int:
        key = self._key(at, length)
        if isinstance(key, Status):
            return key
        value = self._memory.read(value_at, value_length, self._most())
        return value if isinstance(value, Status) else self._calls.storage_put(handle, key, value)

    def _storage_delete(self, handle: int, at: int, length: int) -> int:
        key = self._key(at, length)
        return key if isinstance(key, Status) else self._calls.storage_delete(handle, key)

    def _storage_list(self, handle: int, at: int, length: int) -> int:
        prefix = self._key(at, length)
        if isinstance(prefix, Status):
            return prefix
        names = self._calls.storage_list(handle, prefix)
        return self._brings(names if isinstance(names, Status) else msgspec.json.encode(names))

    def _channel_send(self, handle: int, at: int, length: int) -> int:
        text = self._memory.read_text(at, length, self._most())
        return text if isinstance(text, Status) else self._calls.channel_send(handle, text)

    def _log(self, level: int, at: int, length: int) -> int:
        text = self._memory.read_text(at, length, _MAX_TEXT_BYTES)
        return text if isinstance(text, Status) else self._calls.log(level, text)

    def _fail(self, at: int, length: int) -> int:
        text = self._memory.read_text(at, length, _MAX_TEXT_BYTES)
        return text if isinstance(text, Status) else self._calls.fail(text)

    def _result_read(self, offset: int, at: int, length: int) -> int:
        """Return how many bytes were copied: fewer than requested at the end of the result."""
        piece = self._active.result[offset : offset + length] if offset <= U32 else b""
        status = self._memory.write(at, piece[:_I32_MOST])
        return len(piece) if status is Status.OK else status
