"""The host functions of components: values of WIT on one side, ``HostCalls`` on the other.

None raises: an exception would be kept in a global of the process. Results are given as ``Variant``, of which
``wit_types.shaped`` makes what the package wants.
"""

import base64
from collections.abc import Callable
from typing import Any

from wasmtime import component as wit

from palyra.wasm.domain.frames import Attachment
from palyra.wasm.domain.host_interface import LOG_LEVELS, GuestResponse, Status
from palyra.wasm.host.core_functions import ActiveCall
from palyra.wasm.host.host_calls import KINDS, HostCalls

Function = Callable[..., Any]


class ComponentFunctions:
    def __init__(self, active: ActiveCall) -> None:
        self._active = active

    def table(self) -> dict[str, Function]:
        functions: dict[str, Function] = {
            "http-send": self._guard(self._http_send, _error),
            "secret-reveal": self._guard(self._secret_reveal, _error),
            "storage-get": self._guard(self._storage_get, _error),
            "storage-put": self._guard(self._storage_put, _error),
            "storage-delete": self._guard(self._storage_delete, _error),
            "storage-list": self._guard(self._storage_list, _error),
            "channel-send": self._guard(self._channel_send, _error),
            "log": self._guard(self._log, lambda _status: None),
        }
        for place, kind in enumerate(KINDS):
            functions[f"{kind}-count"] = self._guard(
                lambda calls, place=place: calls.count_of_kind(place), lambda _status: 0
            )
            functions[f"{kind}-handle"] = self._guard(
                lambda calls, index, place=place: _number(calls.handle(place, index)), _error
            )
        return functions

    def _guard(self, function: Function, refuse: Callable[[Status], Any]) -> Function:
        def guarded(_store: Any, *arguments: Any) -> Any:
            try:
                calls = self._active.calls
                if calls is None or not calls.enter():
                    return refuse(Status.QUOTA)
                return function(calls, *arguments)
            except BaseException as problem:
                self._active.fault = problem
                return refuse(Status.FAILED)

        return guarded

    def _http_send(self, calls: HostCalls, handle: int, request: Any) -> wit.Variant:
        response = calls.http_send(
            handle,
            request.method,
            request.path,
            tuple((header.name, header.value) for header in request.headers),
            request.body.encode(),
            tuple(
                Attachment(secret=attached.secret, header=attached.header, prefix=attached.prefix)
                for attached in request.secrets
            ),
        )
        return _error(response) if isinstance(response, Status) else wit.Variant("ok", _response(response))

    def _secret_reveal(self, calls: HostCalls, handle: int) -> wit.Variant:
        return _text(calls.secret_reveal(handle))

    def _storage_get(self, calls: HostCalls, handle: int, key: str) -> wit.Variant:
        return _text(calls.storage_get(handle, key))

    def _storage_put(self, calls: HostCalls, handle: int, key: str, value: str) -> wit.Variant:
        return _result(calls.storage_put(handle, key, value.encode()))

    def _storage_delete(self, calls: HostCalls, handle: int, key: str) -> wit.Variant:
        return _result(calls.storage_delete(handle, key))

    def _storage_list(self, calls: HostCalls, handle: int, prefix: str) -> wit.Variant:
        names = calls.storage_list(handle, prefix)
        return _error(names) if isinstance(names, Status) else wit.Variant("ok", list(names))

    def _channel_send(self, calls: HostCalls, handle: int, text: str) -> wit.Variant:
        return _result(calls.channel_send(handle, text))

    def _log(self, calls: HostCalls, level: str, text: str) -> None:
        calls.log(LOG_LEVELS.index(level), text)


def _result(status: Status) -> wit.Variant:
    return wit.Variant("ok") if status is Status.OK else _error(status)


def _error(status: Status) -> wit.Variant:
    return wit.Variant("err", status.wit_name)


def _number(value: int) -> wit.Variant:
    return wit.Variant("ok", value) if value >= 0 else _error(Status(value))


def _text(data: bytes | Status) -> wit.Variant:
    if isinstance(data, Status):
        return _error(data)
    try:
        return wit.Variant("ok", data.decode())
    except UnicodeDecodeError:
        return _error(Status.BAD_UTF8)


def _response(response: GuestResponse) -> wit.Record:
    record: Any = wit.Record()
    record.status = response.status
    record.headers = [_header(name, value) for name, value in response.headers]
    try:
        record.body, record.base64 = response.body.decode(), False
    except UnicodeDecodeError:
        record.body, record.base64 = base64.b64encode(response.body).decode(), True
    return record  # type: ignore[no-any-return]


def _header(name: str, value: str) -> wit.Record:
    header: Any = wit.Record()
    header.name, header.value = name, value
    return header  # type: ignore[no-any-return]
