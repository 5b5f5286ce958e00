"""Logs of a page: bounded by number and size, without secrets, without headers."""

from typing import Any

from palyra.browser.domain.action import LogEntry
from palyra.browser.domain.page_logs import MAX_TEXT_CHARS, LogRing, PageLogs

SECRET = "s3cret-value"


def logs(entries: int = 256, size: int = 65_536) -> PageLogs:
    return PageLogs(entries, size, lambda text: text.replace(SECRET, "[redacted]"))


def said(*words: Any, kind: str = "log") -> dict[str, Any]:
    return {"type": kind, "args": [{"type": "string", "value": word} for word in words]}


def test_only_the_newest_entries_are_kept_and_marks_still_hold() -> None:
    ring = LogRing(3, 10_000)
    for number in range(5):
        ring.add(LogEntry(at_ms=number, kind="log", text=str(number)))
    assert [entry.text for entry in ring.entries()] == ["2", "3", "4"]
    assert [entry.text for entry in ring.entries(since=4)] == ["4"]
    assert [entry.text for entry in ring.entries(since=1)] == ["2", "3", "4"]
    assert (ring.total, ring.entries(since=5)) == (5, ())


def test_entries_are_bounded_by_their_size_too() -> None:
    ring = LogRing(1_000, 1_000)
    for _ in range(100):
        ring.add(LogEntry(at_ms=0, kind="log", text="x" * 100))
    assert len(ring.entries()) == 1_000 // 148
    ring.add(LogEntry(at_ms=0, kind="log", text="x" * 2_000))
    assert ring.entries() == ()


def test_a_secret_is_in_no_log_also_not_at_the_edge_where_it_is_cut() -> None:
    log = logs()
    log.add_console_call(said("token", SECRET), "t1", 1)
    log.add_console_call(said("x" * (MAX_TEXT_CHARS - 4) + SECRET), "t1", 1)
    log.add_exception({"exceptionDetails": {"exception": {"description": f"Error: {SECRET}\n  at x"}}}, "t1", 1)
    log.add_log_entry({"entry": {"level": "error", "text": "bad", "url": f"http://a.test/?k={SECRET}"}}, "t1", 1)
    log.add_request({"requestId": "1", "request": {"method": "GET", "url": f"http://me:pw@a.test/{SECRET}"}}, "t1", 1)
    log.add_failure({"requestId": "1", "errorText": f"net::{SECRET}"}, "t1", 1)
    everything = repr(log.console.entries()) + repr(log.network.entries())
    assert SECRET[:4] not in everything and "pw@" not in everything
    assert log.errors(0) == ("Error: [redacted]", "bad")


def test_a_request_its_redirect_and_its_answer() -> None:
    log = logs()
    asked = {"requestId": "1", "type": "Document", "request": {"method": "POST", "url": "http://a.test/in"}}
    log.add_request(asked, "t1", 1)
    redirect = {"url": "http://a.test/in", "status": 302, "mimeType": ""}
    again = {**asked, "request": {"method": "GET", "url": "http://a.test/out"}, "redirectResponse": redirect}
    log.add_request(again, "t1", 2)
    headers = {"Set-Cookie": "a=b", "Authorization": "x"}
    answer = {"url": "http://a.test/out", "status": 200, "mimeType": "text/html", "headers": headers}
    log.add_response({"requestId": "1", "response": answer}, "t1", 3)
    log.add_failure({"requestId": "1", "errorText": "net::ERR_ABORTED"}, "t1", 4)
    shown = [(entry.method, entry.url, entry.status, entry.kind) for entry in log.network.entries()]
    assert shown == [
        ("POST", "http://a.test/in", 302, "document"),
        ("GET", "http://a.test/out", 200, "document"),
    ]
    assert "a=b" not in repr(log.network.entries())


def test_values_that_are_no_text_are_told_by_their_description() -> None:
    log = logs()
    args = [{"type": "object", "description": "HTMLElement"}, {"unserializableValue": "NaN"}, {"type": "undefined"}]
    log.add_console_call({"type": "assert", "args": args}, "t1", 1)
    (entry,) = log.console.entries()
    assert (entry.kind, entry.text) == ("error", "HTMLElement NaN undefined")
    log.add_socket("ws://a.test/", "opened", "t1", 1)
    assert log.network.entries()[0].kind == "websocket"
