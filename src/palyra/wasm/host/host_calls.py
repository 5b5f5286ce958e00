"""The host functions themselves, on values, for both forms of guest. They return a status and never raise.

One object serves one call. What needs the outside goes through ``ask``, a function that sends a question to the daemon
and waits for the answer; handles are resolved there, where the grants are.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from palyra.wasm.domain.frames import Answer, Ask, Attachment, Call
from palyra.wasm.domain.grants import HANDLE_BASE, Capability
from palyra.wasm.domain.host_interface import LOG_LEVELS, GuestResponse, Status
from palyra.wasm.domain.limits import MAX_ATTACHED_SECRETS, MAX_HEADER_BYTES, MAX_HEADER_COUNT, MAX_STORAGE_KEY_BYTES

Asker = Callable[[Ask], Answer]
KINDS: Final = tuple(Capability)
_RESPONSE: Final = msgspec.msgpack.Decoder(GuestResponse)
_NAMES: Final = msgspec.msgpack.Decoder(tuple[str, ...])
_LINE_OVERHEAD: Final = 16
_MOST_BYTES_OF_CHARACTER: Final = 4
# The levels at which printed output is kept.
INFO, WARNING = 1, 2


class HostCalls:
    def __init__(self, call: Call, ask: Asker) -> None:
        self._call = call
        self._ask = ask
        self._number = 0
        self._log_left = call.max_log_bytes
        # One character too many tells the daemon that a text was cut: a secret in it may be, too.
        self._kept_chars = call.max_log_line_chars + 1
        self.count = 0
        self.logs: list[tuple[int, str]] = []
        self.logs_dropped = 0
        # The guest's own word that its work failed.
        self.failure: str | None = None
        # What was printed since the last line feed, by stream.
        self._printed = {INFO: b"", WARNING: b""}

    def enter(self) -> bool:
        """Count a host function. Returns False when the guest has called too many."""
        self.count += 1
        return self.count <= self._call.max_host_calls

    def count_of_kind(self, kind: int) -> int:
        return self._call.counts[kind]

    def handle(self, kind: int, index: int) -> int:
        """Return the handle at a place, or a status."""
        return HANDLE_BASE[KINDS[kind]] + index if 0 <= index < self._call.counts[kind] else Status.BAD_HANDLE

    def _question(
        self,
        operation: str,
        handle: int,
        *,
        key: str = "",
        body: bytes = b"",
        method: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        attachments: tuple[Attachment, ...] = (),
    ) -> Answer:
        if len(body) > self._call.max_request_bytes:
            return Answer(number=0, status=Status.TOO_LARGE)
        self._number += 1
        return self._ask(
            Ask(
                number=self._number,
                operation=operation,
                handle=handle,
                key=key,
                body=body,
                method=method,
                headers=headers,
                attachments=attachments,
            )
        )

    def http_send(
        self,
        handle: int,
        method: str,
        path: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        attachments: tuple[Attachment, ...],
    ) -> GuestResponse | Status:
        size = len(path) + sum(len(name) + len(value) for name, value in headers)
        size += sum(len(attached.header) + len(attached.prefix) for attached in attachments)
        if len(headers) > MAX_HEADER_COUNT or len(attachments) > MAX_ATTACHED_SECRETS or size > MAX_HEADER_BYTES:
            return Status.TOO_LARGE
        answer = self._question(
            "http", handle, key=path, body=body, method=method, headers=headers, attachments=attachments
        )
        if answer.status:
            return Status(answer.status)
        return _RESPONSE.decode(answer.result)

    def secret_reveal(self, handle: int) -> bytes | Status:
        return _bytes(self._question("secret-reveal", handle))

    def storage_get(self, handle: int, key: str) -> bytes | Status:
        return _bytes(self._on_key("storage-get", handle, key))

    def storage_put(self, handle: int, key: str, value: bytes) -> Status:
        return Status(self._on_key("storage-put", handle, key, value).status)

    def storage_delete(self, handle: int, key: str) -> Status:
        return Status(self._on_key("storage-delete", handle, key).status)

    def storage_list(self, handle: int, prefix: str) -> tuple[str, ...] | Status:
        answer = self._on_key("storage-list", handle, prefix)
        return Status(answer.status) if answer.status else _NAMES.decode(answer.result)

    def _on_key(self, operation: str, handle: int, key: str, value: bytes = b"") -> Answer:
        if len(key) > MAX_STORAGE_KEY_BYTES:
            return Answer(number=0, status=Status.TOO_LARGE)
        return self._question(operation, handle, key=key, body=value)

    def channel_send(self, handle: int, text: str) -> Status:
        return Status(self._question("channel-send", handle, body=text.encode()).status)

    def log(self, level: int, text: str) -> Status:
        """Keep a line within the call's limits. The daemon makes its text printable."""
        if not 0 <= level < len(LOG_LEVELS):
            return Status.BAD_REQUEST
        text = text[: self._kept_chars]
        size = len(text) + _LINE_OVERHEAD
        if len(self.logs) >= self._call.max_log_lines or size > self._log_left:
            self.logs_dropped += 1
            return Status.QUOTA
        self._log_left -= size
        self.logs.append((level, text))
        return Status.OK

    def print(self, level: int, piece: bytes) -> None:
        """Turn standard output and error of a guest into log lines.

        The rest of a line that is too long is dropped. As a line of its own it would be the end of a text whose
        beginning nobody sees, which redaction could not recognize.
        """
        *lines, rest = (self._printed[level] + piece).split(b"\n")
        for line in lines:
            self.log(level, line.decode("utf-8", "replace"))
        self._printed[level] = rest[: self._kept_chars * _MOST_BYTES_OF_CHARACTER]

    def finish_printing(self) -> None:
        for level, rest in self._printed.items():
            if rest:
                self.log(level, rest.decode("utf-8", "replace"))

    def fail(self, text: str) -> Status:
        self.failure = text[: self._kept_chars]
        return Status.OK


def _bytes(answer: Answer) -> bytes | Status:
    return Status(answer.status) if answer.status else answer.result
