import itertools
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, Refused, cut_anyhow, each_byte, mutated, pieces_of, silence, transcript
from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_CLIENT_HELLO_BYTES, MAX_HELLO_RECORDS, MAX_RECORD_BYTES
from palyra.egress.protocols.state_machine import MachineMisused, step
from palyra.egress.protocols.tls_hello import (
    TRANSITIONS,
    ClientHello,
    ClientHelloPeek,
    HelloEvent,
    HelloState,
    parse_client_hello,
)


def openssl_hello(name: str | None, *protocols: str) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = name is not None
    if name is None:
        context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def counted(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + counted(2, data)


def names(*entries: tuple[int, bytes]) -> bytes:
    return extension(0, counted(2, b"".join(bytes((kind,)) + counted(2, name) for kind, name in entries)))


def protocols(*names: bytes) -> bytes:
    return extension(16, counted(2, b"".join(counted(1, name) for name in names)))


def body(*extensions: bytes, version: bytes = b"\x03\x03", session: bytes = b"", ciphers: bytes = b"\x13\x01") -> bytes:
    return (
        version + bytes(32) + counted(1, session) + counted(2, ciphers) + b"\x01\x00" + counted(2, b"".join(extensions))
    )


def message(hello: bytes) -> bytes:
    return b"\x01" + counted(3, hello)


def records(data: bytes, size: int = MAX_RECORD_BYTES) -> bytes:
    return b"".join(b"\x16\x03\x01" + counted(2, data[at : at + size]) for at in range(0, len(data), size))


NAME = names((0, b"example.com"))
GREASE = extension(0x0A0A, b"") + extension(0x1A1A, b"\x00")
PLAIN = records(message(body(NAME, protocols(b"h2", b"http/1.1"))))
KNOWN = ClientHello(server_name="example.com", alpn=("h2", "http/1.1"))


@pytest.mark.parametrize(("state", "event"), list(itertools.product(HelloState, HelloEvent)))
def test_every_pair_is_handled_or_refused(state: HelloState, event: HelloEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert step(TRANSITIONS, state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(MachineMisused):
            step(TRANSITIONS, state, event)


@pytest.mark.parametrize("first", [PLAIN, b"\x15"])
def test_a_hello_that_was_read_or_refused_is_not_read_again(first: bytes) -> None:
    peek = ClientHelloPeek()
    transcript(peek, [first])
    with pytest.raises(MachineMisused):
        peek.receive(PLAIN)


def test_openssls_own_hello_is_read() -> None:
    for name in ("example.com", None):
        hello = openssl_hello(name, "h2", "http/1.1")
        expected = ClientHello(server_name=name, alpn=("h2", "http/1.1"))
        Playbook(ClientHelloPeek()) >> hello << expected >> silence
        peek = ClientHelloPeek()
        assert transcript(peek, each_byte(hello)) == [expected] and peek.seen == hello


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100])
def test_a_hello_in_several_records_is_read(size: int) -> None:
    hello = message(body(names((0, b"a.b"))))
    if len(hello) / size > MAX_HELLO_RECORDS:
        assert transcript(ClientHelloPeek(), [records(hello, size)]) == [
            Refused("a ClientHello in too many records", "egress.malformed_traffic")
        ]
    else:
        assert transcript(ClientHelloPeek(), [records(hello, size)]) == [ClientHello(server_name="a.b")]


def test_what_follows_the_hello_is_not_looked_at() -> None:
    peek = ClientHelloPeek()
    Playbook(peek) >> PLAIN + b"\x14\x03\x03\x00\x01\x01" << KNOWN >> silence
    assert peek.seen == PLAIN + b"\x14\x03\x03\x00\x01\x01"


@pytest.mark.parametrize(
    ("hello", "expected"),
    [
        (body(GREASE, NAME, extension(0xFFFF, b"?")), ClientHello(server_name="example.com")),
        (body(names((0, b"EXAMPLE.com"))), ClientHello(server_name="example.com")),
        (body(names((0, b"127.0.0.1"))), ClientHello(server_name="127.0.0.1")),
        (body(NAME, extension(0xFE0D, b"inner")), ClientHello(server_name="example.com", encrypted=True)),
        (body(protocols(b"\x0a\x0a", b"h2")), ClientHello(alpn=("\n\n", "h2"))),
        (body(version=b"\x03\x01", session=bytes(32)), ClientHello()),
        (body()[:-2], ClientHello()),
    ],
)
def test_what_hellos_may_have(hello: bytes, expected: ClientHello) -> None:
    assert parse_client_hello(hello) == expected


@pytest.mark.parametrize(
    "hello",
    [
        body(names((0, b"a.example"), (0, b"b.example"))),
        body(names((0, b"a.example"), (1, b"x"))),
        body(names((1, b"a.example"))),
        body(names()),
        body(extension(0, b"")),
        body(NAME, NAME),
        body(NAME, names((0, b"evil.example"))),
        body(GREASE, GREASE),
        body(names((0, b""))),
        body(names((0, b"example.com."))),
        body(names((0, b".example.com"))),
        body(names((0, b"a..b"))),
        body(names((0, b"example.com\x00.evil.example"))),
        body(names((0, b"exa mple.com"))),
        body(names((0, "éxample.com".encode()))),
        body(names((0, b"[::1]"))),
        body(names((0, b"a" * 64 + b".com"))),
        body(names((0, b".".join([b"a" * 63] * 4)))),
        body(extension(0, counted(2, b"\x00" + counted(2, b"a.b")) + b"x")),
        body(extension(0, b"\x00\xff\x00\x00\x03a.b")),
        body(extension(16, b"")),
        body(extension(16, b"\x00\x00")),
        body(protocols(b"")),
        body(extension(16, b"\x00\x03\x02h")),
        body(NAME) + b"x",
        body(NAME)[:-1],
        body(version=b"\x02\x00"),
        body(session=bytes(33)),
        body(ciphers=b""),
        body(ciphers=b"\x13"),
        b"\x03\x03" + bytes(32) + b"\x00\x00\x02\x13\x01\x00",
        b"",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(hello: bytes) -> None:
    with pytest.raises(MalformedTraffic):
        parse_client_hello(hello)
    assert isinstance(transcript(ClientHelloPeek(), [records(message(hello))])[-1], Refused)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x80\x2e\x01\x03\x01", "SSLv2"),
        (b"\x17\x03\x03\x00\x05hello", "not a handshake"),
        (b"GET / HTTP/1.1", "not a handshake"),
        (b"\x16\x02\x00\x00\x05", "unknown version"),
        (b"\x16\xfe\xfd\x00\x05", "unknown version"),
        (b"\x16\x03\x01\x00\x00", "empty"),
        (b"\x16\x03\x01\x40\x01", "too long"),
        (records(b"\x02\x00\x00\x00"), "begin with a ClientHello"),
        (records(b"\x00"), "begin with a ClientHello"),
        (records(b"\x01" + (MAX_CLIENT_HELLO_BYTES).to_bytes(3, "big")), "longer than"),
        (records(message(body(NAME)) + b"\x01"), "more than a ClientHello"),
        (records(message(body(NAME))[:9]) + b"\x17\x03\x03\x00\x05hello", "not a handshake"),
        (records(message(body(NAME))[:9]) + b"\x15\x03\x03\x00\x02\x01\x00", "not a handshake"),
    ],
)
def test_what_is_no_hello_is_refused_however_it_comes(raw: bytes, why: str) -> None:
    Playbook(ClientHelloPeek()) >> raw << Refused(why) >> silence
    assert transcript(ClientHelloPeek(), each_byte(raw)) == transcript(ClientHelloPeek(), [raw])


def test_a_hello_is_as_long_as_the_limit_at_most() -> None:
    padding = MAX_CLIENT_HELLO_BYTES - len(message(body(NAME))) - 4
    longest = body(NAME, extension(21, bytes(padding)))
    assert transcript(ClientHelloPeek(), [records(message(longest))]) == [ClientHello(server_name="example.com")]
    longer = records(message(body(NAME, extension(21, bytes(padding + 1)))))
    Playbook(ClientHelloPeek()) >> longer << Refused("") >> silence


SAMPLES = (PLAIN, records(message(body(GREASE, NAME)), 30), openssl_hello("example.com", "h2"))


@given(mutated(SAMPLES), cut_anyhow())
def test_any_pieces_give_the_same_hello(data: bytes, cuts: list[int]) -> None:
    assert transcript(_Once(), pieces_of(data, cuts)) == transcript(_Once(), [data])


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hello_no_hello_yet_or_refused(data: bytes) -> None:
    transcript(ClientHelloPeek(), [b"\x16\x03\x01" + counted(2, data)])
    transcript(ClientHelloPeek(), [records(message(data))])
    transcript(ClientHelloPeek(), [data])


class _Once:
    """A peek that is asked no more once it knows."""

    def __init__(self) -> None:
        self._peek = ClientHelloPeek()

    def receive(self, data: bytes) -> ClientHello | None:
        return self._peek.receive(data) if self._peek.state is HelloState.READING else None
