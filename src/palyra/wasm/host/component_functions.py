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
        fallible: dict[str, Function] = {
            "http-send": _http_send,
            "secret-reveal": lambda calls, handle: _text(calls.secret_reveal(handle)),
            "storage-get": lambda calls, handle, key: _text(calls.storage_get(handle, key)),
            "storage-put": lambda calls, handle, key, value: _result(calls.storage_put(handle, key, value.encode())),
            "storage-delete": lambda calls, handle, key: _result(calls.storage_delete(handle, key)),
            "storage-list": lambda calls, handle, prefix: _names(calls.storage_list(handle, prefix)),
            "channel-send": lambda calls, handle, text: _result(calls.channel_send(handle, text)),
        }
        functions = {name: self._guard(function, _error) for name, function in fallible.items()}
        functions["log"] = self._guard(_log, lambda _status: None)
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


def _http_send(calls: HostCalls, handle: int, request: Any) -> wit.Variant:
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


def _log(calls: HostCalls, level: str, text: str) -> None:
    calls.log(LOG_LEVELS.index(level), text)


def _names(names: tuple[str, ...] | Status) -> wit.Variant:
    return _error(names) if isinstance(names, Status) else wit.Variant("ok", list(names))


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
