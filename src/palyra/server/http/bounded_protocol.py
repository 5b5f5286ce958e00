"""Uvicorn's fast HTTP parser with a bound on what a client may send before its request is understood."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palyra.limits import MAX_HTTP_HEAD_BYTES


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers grow beyond the limit: the parser itself would go on
    collecting them without end, before any token is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._messages = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HTTP_HEAD_BYTES:
            self._refuse()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._messages += 1
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        began_in_head, messages = self._in_head, self._messages
        super().data_received(data)
        # Data that ended a message was not all head: what follows in it is bounded by what one read brings.
        if began_in_head and self._in_head and self._messages == messages:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HTTP_HEAD_BYTES:
                self._refuse()

    def _refuse(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()
