"""The bounded console and network logs of a session. Headers are never read, so no credential of one is here."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from palyra.browser.domain.action import LogEntry
from palyra.browser.domain.page_address import Redact, render_address

MAX_TEXT_CHARS: Final = 1_024
# This much of a text is redacted: far more than is shown, so that no secret is cut in two within the shown part.
_READ_CHARS: Final = 16_384
_MAX_ARGUMENTS: Final = 16
# The size of an entry besides its texts.
_ENTRY_BYTES: Final = 48
# Requests that wait for an answer. Older ones are dropped, and their answers are logged without a method.
_MAX_OPEN_REQUESTS: Final = 512
_ERRORS: Final = frozenset(("error", "assert"))


class LogRing:
    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: deque[tuple[LogEntry, int]] = deque()
        self._bytes = 0
        # How many entries there ever were, kept and dropped.
        self.total = 0

    def add(self, entry: LogEntry) -> None:
        size = _ENTRY_BYTES + len(entry.text.encode()) + len(entry.url.encode())
        self.total += 1
        self._entries.append((entry, size))
        self._bytes += size
        while self._entries and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
            self._bytes -= self._entries.popleft()[1]

    def entries(self, since: int = 0) -> tuple[LogEntry, ...]:
        skipped = max(0, since - (self.total - len(self._entries)))
        return tuple(entry for entry, _ in list(self._entries)[skipped:])


class PageLogs:
    """The logs of one session, fed with CDP events."""

    def __init__(self, max_entries: int, max_bytes: int, redact: Redact) -> None:
        self.console = LogRing(max_entries, max_bytes)
        self.network = LogRing(max_entries, max_bytes)
        self._redact = redact
        self._open: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def on_event(self, method: str, params: dict[str, Any], tab: str, now_ms: int) -> None:
        keep = _KEPT.get(method)
        if keep is not None:
            keep(self, params, tab, now_ms)

    def add_console_call(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        words = [_plain(each) for each in params.get("args", ())[:_MAX_ARGUMENTS]]
        frames = params.get("stackTrace", {}).get("callFrames", ())
        url = str(frames[0].get("url", "")) if frames else ""
        kind = str(params.get("type", "log"))
        self._console("error" if kind in _ERRORS else kind, " ".join(words), url, tab, now_ms)

    def add_exception(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        self._console("error", exception_text(params["exceptionDetails"]), "", tab, now_ms)

    def add_log_entry(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        entry = params["entry"]
        level, text = str(entry.get("level", "info")), str(entry.get("text", ""))
        self._console(level, text, str(entry.get("url", "")), tab, now_ms)

    def add_request(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """Remember `Network.requestWillBeSent` until it is answered. A redirect is an answer of its own."""
        id_, request = str(params["requestId"]), params["request"]
        before = params.get("redirectResponse")
        if before is not None:
            self.add_response({**params, "response": before}, tab, now_ms)
        self._open[id_] = (
            str(request.get("method", "")),
            str(request.get("url", "")),
            str(params.get("type", "other")).lower(),
        )
        while len(self._open) > _MAX_OPEN_REQUESTS:
            self._open.popitem(last=False)

    def add_response(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        response = params["response"]
        method, _, kind = self._open.pop(str(params["requestId"]), ("", "", str(params.get("type", "other")).lower()))
        text = str(response.get("mimeType", ""))
        self._network(kind, text, str(response.get("url", "")), int(response.get("status", 0)), method, tab, now_ms)

    def add_failure(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        known = self._open.pop(str(params["requestId"]), None)
        if known is not None:
            method, url, kind = known
            self._network(kind, str(params.get("errorText", "failed")), url, 0, method, tab, now_ms)

    def add_socket(self, url: str, text: str, tab: str, now_ms: int) -> None:
        self._network("websocket", text, url, 0, "", tab, now_ms)

    def errors(self, since: int) -> tuple[str, ...]:
        return tuple(entry.text for entry in self.console.entries(since) if entry.kind == "error")

    def _console(self, kind: str, text: str, url: str, tab: str, now_ms: int) -> None:
        self.console.add(
            LogEntry(at_ms=now_ms, kind=kind, text=self._clean(text), url=render_address(self._clean(url)), tab=tab)
        )

    def _network(self, kind: str, text: str, url: str, status: int, method: str, tab: str, now_ms: int) -> None:
        self.network.add(
            LogEntry(
                at_ms=now_ms,
                kind=kind,
                text=self._clean(text),
                url=render_address(self._clean(url)),
                status=status,
                method=method[:16],
                tab=tab,
            )
        )

    def _clean(self, text: str) -> str:
        # Redaction comes before the cut: half a secret would not be found any more.
        return self._redact(text[:_READ_CHARS])[:MAX_TEXT_CHARS]


def exception_text(details: dict[str, Any]) -> str:
    exception = details.get("exception", {})
    text = str(exception.get("description") or exception.get("value") or details.get("text", "an error"))
    return text.split("\n", 1)[0]


def _plain(argument: dict[str, Any]) -> str:
    if "value" in argument:
        return str(argument["value"])
    return str(argument.get("unserializableValue") or argument.get("description") or argument.get("type", ""))


_KEPT: Final[dict[str, Callable[[PageLogs, dict[str, Any], str, int], None]]] = {
    "Runtime.consoleAPICalled": PageLogs.add_console_call,
    "Runtime.exceptionThrown": PageLogs.add_exception,
    "Log.entryAdded": PageLogs.add_log_entry,
    "Network.requestWillBeSent": PageLogs.add_request,
    "Network.responseReceived": PageLogs.add_response,
    "Network.loadingFailed": PageLogs.add_failure,
}
