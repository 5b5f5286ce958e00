"""What a page said and what it loaded, as bounded logs. Pure.

Texts are a page's: they are cut, and pass through the session's redaction before they are kept. No header is ever
looked at, so no cookie and no credential of one can be here.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from palyra.browser.domain.action import LogEntry
from palyra.browser.domain.page_address import render_address
from palyra.browser.domain.ports import Redact

MAX_TEXT_CHARS: Final = 1_024
# So much of a text is looked at: far more than is shown, so that no secret is cut in two within that.
_READ_CHARS: Final = 16_384
_MAX_ARGUMENTS: Final = 16
# What is counted for an entry besides its texts.
_ENTRY_BYTES: Final = 48
# Requests whose answer is awaited; older ones are forgotten, and their answers are logged without a method.
_MAX_OPEN_REQUESTS: Final = 512
_ERRORS: Final = frozenset(("error", "assert"))


class LogRing:
    """The newest entries, within a number and a size."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: deque[tuple[LogEntry, int]] = deque()
        self._bytes = 0
        # How many there ever were: what is older than the first kept one was dropped.
        self.total = 0

    def add(self, entry: LogEntry) -> None:
        size = _ENTRY_BYTES + len(entry.text.encode()) + len(entry.url.encode())
        self.total += 1
        self._entries.append((entry, size))
        self._bytes += size
        while self._entries and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
            self._bytes -= self._entries.popleft()[1]

    def entries(self, since: int = 0) -> tuple[LogEntry, ...]:
        """Those that are left of everything after the first ``since``."""
        skipped = max(0, since - (self.total - len(self._entries)))
        return tuple(entry for entry, _ in list(self._entries)[skipped:])

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0


class PageLogs:
    """The console's and the network's log of one session, fed with CDP events."""

    def __init__(self, max_entries: int, max_bytes: int, redact: Redact) -> None:
        self.console = LogRing(max_entries, max_bytes)
        self.network = LogRing(max_entries, max_bytes)
        self._redact = redact
        self._open: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def on_event(self, method: str, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """An event of CDP; most are none of ours."""
        keep = _KEPT.get(method)
        if keep is not None:
            keep(self, params, tab, now_ms)

    def add_console_call(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """`Runtime.consoleAPICalled`."""
        words = [_plain(each) for each in params.get("args", ())[:_MAX_ARGUMENTS]]
        frames = params.get("stackTrace", {}).get("callFrames", ())
        url = str(frames[0].get("url", "")) if frames else ""
        kind = str(params.get("type", "log"))
        self._console("error" if kind in _ERRORS else kind, " ".join(words), url, tab, now_ms)

    def add_exception(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """`Runtime.exceptionThrown`."""
        self._console("error", exception_text(params["exceptionDetails"]), "", tab, now_ms)

    def add_log_entry(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """`Log.entryAdded`: what the browser itself says of a page."""
        entry = params["entry"]
        level, text = str(entry.get("level", "info")), str(entry.get("text", ""))
        self._console(level, text, str(entry.get("url", "")), tab, now_ms)

    def add_request(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """`Network.requestWillBeSent`: remembered until it is answered; a redirect is an answer of its own."""
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
        """`Network.responseReceived`."""
        response = params["response"]
        method, _, kind = self._open.pop(str(params["requestId"]), ("", "", str(params.get("type", "other")).lower()))
        text = str(response.get("mimeType", ""))
        self._network(kind, text, str(response.get("url", "")), int(response.get("status", 0)), method, tab, now_ms)

    def add_failure(self, params: dict[str, Any], tab: str, now_ms: int) -> None:
        """`Network.loadingFailed`: of what was answered already, the answer is all that is kept."""
        known = self._open.pop(str(params["requestId"]), None)
        if known is not None:
            method, url, kind = known
            self._network(kind, str(params.get("errorText", "failed")), url, 0, method, tab, now_ms)

    def add_socket(self, url: str, text: str, tab: str, now_ms: int) -> None:
        self._network("websocket", text, url, 0, "", tab, now_ms)

    def errors(self, since: int) -> tuple[str, ...]:
        """Errors of the console after the first ``since`` entries."""
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
        # Redacted before it is cut to size: half a secret would not be found any more.
        return self._redact(text[:_READ_CHARS])[:MAX_TEXT_CHARS]


def exception_text(details: dict[str, Any]) -> str:
    """What went wrong in a script, on one line."""
    exception = details.get("exception", {})
    text = str(exception.get("description") or exception.get("value") or details.get("text", "an error"))
    return text.split("\n", 1)[0]


def _plain(argument: dict[str, Any]) -> str:
    """A value that was logged, as text; of an object only what Chromium calls it."""
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
