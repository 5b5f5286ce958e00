import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, cut_anyhow, mutated, pieces_of, silence, transcript
from palyra.egress.domain.refusal import (
    HostHeaderMismatch,
    HostNotAllowed,
    MalformedTraffic,
    OddTarget,
    SchemeNotAllowed,
)
from palyra.egress.limits import MAX_EARLY_BYTES
from palyra.egress.protocols.http1_head import parse_request_head
from palyra.egress.protocols.http1_proxy import (
    ESTABLISHED,
    TRANSITIONS,
    Forward,
    HttpProxyServer,
    ProxyEvent,
    ProxyState,
    Reject,
    RequestBody,
    RequestEnded,
    Tunnel,
)
from palyra.egress.protocols.state_machine import MachineMisused, step

CONNECT = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"
GET = b"GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"
POST = b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\n"
ORIGIN = b"GET /a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"
WEBSOCKET = (
    b"GET http://example.com/ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


def forward(raw: bytes, url: str, *, keep_alive: bool = True, upgrade: bool = False) -> Forward:
    return Forward(head=parse_request_head(raw), target_url=url, keep_alive=keep_alive, upgrade=upgrade)


def at(state: ProxyState) -> HttpProxyServer:
    machine = HttpProxyServer()
    received = {
        ProxyState.HEAD: b"",
        ProxyState.BODY: POST,
        ProxyState.ANSWERING: GET,
        ProxyState.TUNNEL: CONNECT,
        ProxyState.REFUSED: b"\n",
    }
    machine.receive(received[state])
    assert machine.state is state
    return machine


def only(raw: bytes, machine: HttpProxyServer | None = None) -> object:
    said = (machine or HttpProxyServer()).receive(raw)
    return said[0]


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ProxyState, ProxyEvent)))
def test_every_pair_is_handled_or_refused(state: ProxyState, event: ProxyEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert step(TRANSITIONS, state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(MachineMisused):
            step(TRANSITIONS, state, event)


@pytest.mark.parametrize("state", list(ProxyState))
def test_every_state_takes_bytes_and_a_refusal(state: ProxyState) -> None:
    for data in (b"", b"x", b"\n", GET, CONNECT, b"\x00" * 100, bytes(MAX_EARLY_BYTES + 1)):
        at(state).receive(data)
    reply = at(state).refused(403, HostNotAllowed("evil.example is not allowed"))
    assert reply.startswith(b"HTTP/1.1 403 Forbidden by Palyra\r\n")
    assert reply.endswith(b"\r\n\r\negress.host_not_allowed: evil.example is not allowed\n")


@pytest.mark.parametrize("state", list(ProxyState))
def test_the_next_request_comes_after_an_answer_and_at_no_other_time(state: ProxyState) -> None:
    if state is ProxyState.ANSWERING:
        assert at(state).next_request() == []
    else:
        with pytest.raises(MachineMisused):
            at(state).next_request()
    with pytest.raises(MachineMisused):
        at(state).upgraded()


def test_a_tunnel_with_its_first_bytes() -> None:
    book = Playbook(HttpProxyServer()) >> CONNECT + b"\x16\x03" << Tunnel("example.com:443") >> b"\x01" >> silence
    assert book.machine.rest == b"\x16\x03\x01"
    assert ESTABLISHED.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT example.com:443 HTTP/1.0\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: EXAMPLE.com\r\n\r\n",
        b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\nProxy-Authorization: Basic x\r\n\r\n",
    ],
)
def test_other_ways_to_ask_for_a_tunnel(raw: bytes) -> None:
    assert isinstance(only(raw), Tunnel)


def connect(authority: bytes, host: bytes = b"example.com", more: bytes = b"") -> bytes:
    return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, host, more)


@pytest.mark.parametrize(
    ("raw", "leaf"),
    [
        (connect(b"example.com"), OddTarget),
        (connect(b"example.com:"), OddTarget),
        (connect(b"example.com:0"), OddTarget),
        (connect(b"example.com:0443"), OddTarget),
        (connect(b"example.com:99999"), OddTarget),
        (connect(b"example.com:443/"), OddTarget),
        (connect(b"example.com:443/path"), OddTarget),
        (connect(b"http://example.com:443"), OddTarget),
        (connect(b"user@example.com:443"), OddTarget),
        (connect(b"user:pw@example.com:443"), OddTarget),
        (connect(b"example.com%00:443"), OddTarget),
        (connect(b"::1:443"), OddTarget),
        (connect(b":443"), OddTarget),
        (connect(b"*"), OddTarget),
        (connect(b"/"), OddTarget),
        (connect(b"example.com:443", b"evil.example"), HostHeaderMismatch),
        (connect(b"example.com:443", b"example.com:80"), HostHeaderMismatch),
        (connect(b"example.com:443", b""), OddTarget),
        (connect(b"example.com:443", more=b"Content-Length: 0\r\n"), MalformedTraffic),
        (connect(b"example.com:443", more=b"Content-Length: 5\r\n"), MalformedTraffic),
        (connect(b"example.com:443", more=b"Transfer-Encoding: chunked\r\n"), MalformedTraffic),
    ],
)
def test_an_odd_tunnel_is_rejected(raw: bytes, leaf: type) -> None:
    said = only(raw)
    assert isinstance(said, Reject) and (said.leaf, said.status) == (leaf, 400)


def test_a_request_goes_on_in_origin_form_without_what_was_for_us() -> None:
    raw = (
        b"GET HTTP://example.com:80/a?b HTTP/1.1\r\nProxy-Connection: keep-alive\r\nhost: EXAMPLE.com\r\nX: y\r\n"
        b"Connection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\n\r\n"
    )
    onward = b"GET /a?b HTTP/1.1\r\nHost: example.com:80\r\nX: y\r\n\r\n"
    book = Playbook(HttpProxyServer()) >> raw
    book << forward(onward, "http://example.com:80/a?b") << RequestEnded() >> silence


@pytest.mark.parametrize(
    ("target", "path", "method"),
    [
        (b"http://a", "/", b"GET"),
        (b"http://a?x", "/?x", b"GET"),
        (b"http://a", "*", b"OPTIONS"),
        (b"http://a/", "/", b"PUT"),
    ],
)
def test_the_path_of_a_url(target: bytes, path: str, method: bytes) -> None:
    said = only(b"%b %b HTTP/1.1\r\nHost: a\r\n\r\n" % (method, target))
    assert isinstance(said, Forward) and said.head.target == path


@pytest.mark.parametrize(
    ("target", "host", "leaf"),
    [
        (b"http://example.com/", b"evil.example", HostHeaderMismatch),
        (b"http://example.com/", b"example.com:8080", HostHeaderMismatch),
        (b"http://example.com:8080/", b"example.com", HostHeaderMismatch),
        (b"http://example.com/", b"example.com.", HostHeaderMismatch),
        (b"http://example.com/", b"example.com, evil.example", OddTarget),
        (b"http://example.com/", b"", OddTarget),
        (b"http://user@example.com/", b"example.com", OddTarget),
        (b"http://example.com:80:90/", b"example.com", OddTarget),
        (b"http://exa%6dple.com/", b"example.com", OddTarget),
        (b"http:///path", b"example.com", OddTarget),
        (b"http://", b"example.com", OddTarget),
        (b"https://example.com/", b"example.com", SchemeNotAllowed),
        (b"ftp://example.com/", b"example.com", SchemeNotAllowed),
        (b"ws://example.com/", b"example.com", SchemeNotAllowed),
        (b"/path", b"example.com", MalformedTraffic),
        (b"//example.com/path", b"example.com", MalformedTraffic),
        (b"*", b"example.com", MalformedTraffic),
        (b"example.com:80", b"example.com", MalformedTraffic),
        (b"http:example.com", b"example.com", MalformedTraffic),
        (b"http:/example.com", b"example.com", MalformedTraffic),
    ],
)
def test_an_odd_request_is_rejected(target: bytes, host: bytes, leaf: type) -> None:
    book = Playbook(HttpProxyServer()) >> b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, host)
    book << Reject >> GET >> silence
    said = only(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, host))
    assert isinstance(said, Reject) and said.leaf is leaf
    assert said.reply.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"Connection: close" in said.reply


def test_a_refusal_does_not_repeat_what_it_refuses() -> None:
    said = only(b"GET http://<script>/ HTTP/1.1\r\nHost: a\r\n\r\n")
    assert isinstance(said, Reject) and b"<script>" not in said.reply


@pytest.mark.parametrize("method", [b"TRACE", b"TRACK"])
def test_requests_are_not_mirrored(method: bytes) -> None:
    said = only(b"%b http://a/ HTTP/1.1\r\nHost: a\r\n\r\n" % method)
    assert isinstance(said, Reject) and said.status == 405


def test_other_expectations_are_rejected() -> None:
    said = only(b"PUT http://a/ HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n")
    assert isinstance(said, Forward) and said.head.values("expect") == ("100-Continue",)
    assert isinstance(only(b"PUT http://a/ HTTP/1.1\r\nHost: a\r\nExpect: a, b\r\n\r\n"), Reject)


def test_a_body_goes_on_as_it_came() -> None:
    machine = HttpProxyServer()
    book = Playbook(machine) >> POST + b"hel" << Forward << RequestBody(b"hel")
    assert machine.state is ProxyState.BODY
    book >> b"lo" << RequestBody(b"lo") << RequestEnded() >> silence
    assert machine.state is ProxyState.ANSWERING
    chunked = POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")
    body = b"5\r\nhello\r\n0\r\n\r\n"
    Playbook(HttpProxyServer()) >> chunked + body << Forward << RequestBody(body) << RequestEnded() >> silence
    Playbook(HttpProxyServer()) >> chunked << Forward >> b"5\r\nhellox" << Reject >> silence


def test_a_second_request_waits_for_the_first_answer_and_is_reported_anew() -> None:
    other = GET.replace(b"example.com", b"evil.example")
    book = Playbook(HttpProxyServer()) >> GET + other + POST << Forward << RequestEnded() >> b"hello" >> silence
    (
        book
        >> HttpProxyServer.next_request
        << forward(b"GET /a?b HTTP/1.1\r\nHost: evil.example\r\n\r\n", "http://evil.example/a?b")
        << RequestEnded()
    )
    book >> HttpProxyServer.next_request << Forward << RequestBody(b"hello") << RequestEnded() >> silence


def test_a_tunnel_may_follow_a_request() -> None:
    book = Playbook(HttpProxyServer()) >> GET + CONNECT << Forward << RequestEnded()
    book >> HttpProxyServer.next_request << Tunnel("example.com:443") >> silence


def test_what_hides_behind_a_body_is_a_request_of_its_own() -> None:
    book = Playbook(HttpProxyServer()) >> POST + b"helloGET /evil" << Forward << RequestBody(b"hello") << RequestEnded()
    book >> HttpProxyServer.next_request >> b" HTTP/1.1\r\nHost: evil.example\r\n\r\n" << Reject >> silence


@pytest.mark.parametrize(
    ("raw", "keep_alive"),
    [
        (GET, True),
        (GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
        (GET.replace(b"\r\n\r\n", b"\r\nProxy-Connection: close\r\n\r\n"), False),
        (GET.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (GET.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"), False),
    ],
)
def test_who_keeps_the_connection(raw: bytes, keep_alive: bool) -> None:
    said = only(raw)
    assert isinstance(said, Forward) and said.keep_alive is keep_alive


def test_http_1_0_without_a_host_gets_the_one_of_its_url() -> None:
    said = only(b"GET http://example.com/ HTTP/1.0\r\n\r\n")
    assert isinstance(said, Forward) and said.head.raw == b"GET / HTTP/1.0\r\nHost: example.com\r\n\r\n"


def test_a_websocket_becomes_a_tunnel_when_the_server_agrees() -> None:
    book = (
        Playbook(HttpProxyServer())
        >> WEBSOCKET + b"\x81"
        << forward(
            b"GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "http://example.com/ws",
            upgrade=True,
        )
        << RequestEnded()
    )
    book >> HttpProxyServer.upgraded << b"\x81" >> silence
    declined = Playbook(HttpProxyServer()) >> WEBSOCKET + GET << Forward << RequestEnded()
    declined >> HttpProxyServer.next_request << Forward << RequestEnded() >> silence
    with pytest.raises(MachineMisused):
        declined.machine.upgraded()


def test_behind_a_synthetic_address_requests_are_in_origin_form() -> None:
    for scheme in ("http", "https"):
        machine = HttpProxyServer(origin=scheme)  # type: ignore[arg-type]
        Playbook(machine) >> ORIGIN << forward(ORIGIN, f"{scheme}://example.com/a?b") << RequestEnded() >> silence
    options = b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
    Playbook(HttpProxyServer(origin="http")) >> options << forward(options, "http://a/") << RequestEnded() >> silence


@pytest.mark.parametrize(
    "raw",
    [
        GET,
        CONNECT,
        b"GET /a HTTP/1.0\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    ],
)
def test_an_odd_request_to_an_origin_is_rejected(raw: bytes) -> None:
    assert isinstance(only(raw, HttpProxyServer(origin="http")), Reject)


def test_early_bytes_are_bounded() -> None:
    for raw, received in ((CONNECT, 1), (GET, 2)):
        machine = HttpProxyServer()
        assert len(machine.receive(raw + bytes(MAX_EARLY_BYTES))) == received
        (said,) = machine.receive(b"x")
        assert isinstance(said, Reject) and machine.state is ProxyState.REFUSED


def converse(machine: HttpProxyServer, pieces: list[bytes]) -> list[object]:
    """All commands of a connection whose every request is answered at once."""

    class Answering:
        def receive(self, piece: bytes) -> list[object]:
            said: list[object] = list(machine.receive(piece))
            while machine.state is ProxyState.ANSWERING and machine.rest:
                said += machine.next_request()
            return said

    return transcript(Answering(), pieces)


CHUNKED = POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
SAMPLES = (CONNECT + b"\x16\x03", GET + POST + b"hello" + GET, CHUNKED + GET, WEBSOCKET, ORIGIN + ORIGIN)
MAKERS: list[Callable[[], HttpProxyServer]] = [HttpProxyServer, lambda: HttpProxyServer(origin="http")]


@pytest.mark.parametrize("make", MAKERS)
@given(data=st.sampled_from(SAMPLES), cuts=cut_anyhow())
def test_any_pieces_give_the_same_commands(make: Callable[[], HttpProxyServer], data: bytes, cuts: list[int]) -> None:
    machine, other = make(), make()
    assert converse(machine, pieces_of(data, cuts)) == converse(other, [data])
    assert (machine.rest, other.state) == (other.rest, machine.state)


@pytest.mark.parametrize("make", MAKERS)
@given(data=mutated(SAMPLES), cuts=cut_anyhow())
def test_mutated_requests_end_the_same_way(make: Callable[[], HttpProxyServer], data: bytes, cuts: list[int]) -> None:
    machine, other = make(), make()
    said, whole = converse(machine, pieces_of(data, cuts)), converse(other, [data])
    assert machine.state is other.state and said[-1:] == whole[-1:]
    assert [one for one in said if not isinstance(one, RequestBody)] == [
        one for one in whole if not isinstance(one, RequestBody)
    ]


@given(st.binary(max_size=300))
def test_any_bytes_are_answered_with_commands(data: bytes) -> None:
    for make in MAKERS:
        converse(make(), [data])
