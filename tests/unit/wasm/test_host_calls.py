import msgspec

from palyra.wasm.domain.frames import Answer, Attachment
from palyra.wasm.domain.host_interface import GuestResponse, Status
from palyra.wasm.host.host_calls import INFO, WARNING, HostCalls
from palyra.wasm.process.fork_server_main import _warm_call

CALL = msgspec.structs.replace(
    _warm_call(), counts=(2, 0, 1, 1), max_log_lines=3, max_log_bytes=200, max_log_line_chars=10, max_request_bytes=5
)


class Outside:
    def __init__(self, status=0, result=b""):
        self.asked = []
        self._status, self._result = status, result

    def __call__(self, ask):
        self.asked.append(ask)
        return Answer(number=ask.number, status=self._status, result=self._result)


def test_too_large_requests_do_not_leave_the_worker():
    outside = Outside()
    calls = HostCalls(CALL, outside)
    assert calls.storage_put(30_000, "k", b"123456") is Status.TOO_LARGE
    assert calls.storage_get(30_000, "k" * 1_000) is Status.TOO_LARGE
    assert calls.http_send(10_000, "GET", "/", (("a", "b"),) * 100, b"", ()) is Status.TOO_LARGE
    attached = (Attachment(secret=1, header="a", prefix=""),) * 20
    assert calls.http_send(10_000, "GET", "/", (), b"", attached) is Status.TOO_LARGE
    assert outside.asked == []


def test_questions_are_numbered_and_answers_taken_apart():
    response = GuestResponse(status=204, headers=(("a", "b"),), body=b"x")
    outside = Outside(result=msgspec.msgpack.encode(response))
    calls = HostCalls(CALL, outside)
    assert calls.http_send(10_000, "GET", "/", (), b"", ()) == response
    assert calls.http_send(10_000, "GET", "/", (), b"", ()) == response
    assert [ask.number for ask in outside.asked] == [1, 2]
    listing = HostCalls(CALL, Outside(result=msgspec.msgpack.encode(("a", "b"))))
    assert listing.storage_list(30_000, "") == ("a", "b")
    assert HostCalls(CALL, Outside(status=-6)).secret_reveal(20_000) is Status.DENIED


def test_printed_pieces_become_lines():
    calls = HostCalls(CALL, Outside())
    calls.print(INFO, b"one\ntw")
    calls.print(WARNING, b"other")
    calls.print(INFO, b"o\n")
    calls.finish_printing()
    assert calls.logs == [(1, "one"), (1, "two"), (2, "other")]


def test_of_a_line_without_end_the_beginning_is_kept_and_nothing_becomes_the_next_line():
    calls = HostCalls(CALL, Outside())
    for _ in range(30):
        calls.print(INFO, "ü".encode() * 5)
    calls.print(INFO, b"x\nend")
    calls.finish_printing()
    assert calls.logs == [(1, "ü" * 11), (1, "end")]


def test_lines_beyond_the_limits_are_dropped_and_counted():
    calls = HostCalls(CALL, Outside())
    assert [calls.log(1, "abc") for _ in range(4)] == [Status.OK, Status.OK, Status.OK, Status.QUOTA]
    assert calls.logs_dropped == 1
    assert calls.log(7, "abc") is Status.BAD_REQUEST


def test_handles_are_told_from_counts_alone():
    calls = HostCalls(CALL, Outside())
    assert [calls.count_of_kind(kind) for kind in range(4)] == [2, 0, 1, 1]
    assert calls.handle(0, 1) == 10_001
    assert calls.handle(0, 2) == calls.handle(1, 0) == calls.handle(0, -1) == Status.BAD_HANDLE
