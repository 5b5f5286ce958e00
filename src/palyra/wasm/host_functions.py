"""The host functions of core modules: places in memory on one side, ``HostCalls`` on the other."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from palyra.wasm.abi import CORE_TYPES, IMPORT_MODULE, Status
from palyra.wasm.core_linker import CoreLinker, Desk, Implementation
from palyra.wasm.guest_memory import U32
from palyra.wasm.host_calls import KINDS, HostCalls
from palyra.wasm.limits import MAX_ATTACHED_SECRETS, MAX_HEADER_BYTES, MAX_STORAGE_KEY_BYTES
from palyra.wasm.wire import Attachment

_I32_MOST: Final = 0x7FFFFFFF
# A guest says at most this much when it fails or logs; what is kept is bounded by its limits.
_MAX_TEXT_BYTES: Final = 64 * 1024


class RequestHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()


_HEAD: Final = msgspec.json.Decoder(RequestHead)


class CoreHostFunctions:
    def __init__(self, desk: Desk, max_request_bytes: Callable[[], int]) -> None:
        self._desk = desk
        self._memory = desk.memory
        self._most = max_request_bytes
        self._pending: dict[int, list[Attachment]] = {}

    def begin(self) -> None:
        """Before each guest: what the last one attached goes with nobody's request."""
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
            table[f"{kind}-count"] = partial(self._count, place)
            table[f"{kind}-handle"] = partial(self._handle, place)
        return table

    @property
    def _calls(self) -> HostCalls:
        if self._desk.calls is None:
            raise RuntimeError("a host function was called while no guest runs")
        return self._desk.calls

    def _count(self, kind: int) -> int:
        return self._calls.counted(kind)

    def _handle(self, kind: int, index: int) -> int:
        return self._calls.handle(kind, index)

    def _brings(self, result: bytes | Status) -> int:
        """Keeps a result for ``result-read`` and answers with its length."""
        if isinstance(result, Status):
            self._desk.result = b""
            return result
        self._desk.result = result
        return len(result)

    def _http_send(self, handle: int, head_at: int, head_length: int, body_at: int, body_length: int) -> int:
        attachments = tuple(self._pending.pop(handle, ()))
        self._desk.result = b""
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
        """How many bytes were copied: fewer than asked for at the end of the result."""
        piece = self._desk.result[offset : offset + length] if offset <= U32 else b""
        status = self._memory.write(at, piece[:_I32_MOST])
        return len(piece) if status is Status.OK else status
