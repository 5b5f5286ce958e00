import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, Refused, cut_anyhow, mutated, pieces_of, silence, transcript
from palyra.egress.limits import DNS_TTL_SECONDS, MAX_DNS_QUERY_BYTES, MAX_SYNTHETIC_NAMES
from palyra.egress.protocols.dns import DnsAnswer, DnsStream, Rcode, SyntheticNames, answer, frame

A, NS, PTR, TXT, AAAA, SRV, OPT, HTTPS, AXFR, ANY = 1, 2, 12, 16, 28, 33, 41, 65, 252, 255
ALLOWED = frozenset({"example.com", "api.example.com"})
EXFILTRATED = ".".join(["a" * 63, "b" * 63, "c" * 63, "evil.example"])
EDNS = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"


def name(text: str) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in text.encode().split(b".") if label) + b"\x00"


def question(asked: bytes, kind: int = A, family: int = 1) -> bytes:
    return asked + struct.pack(">HH", kind, family)


def query(*parts: bytes, flags: int = 0x0100, counts: tuple[int, int, int, int] = (1, 0, 0, 0)) -> bytes:
    return struct.pack(">HHHHHH", 0xBEEF, flags, *counts) + b"".join(parts)


def ask(raw: bytes, names: SyntheticNames | None = None) -> DnsAnswer:
    return answer(raw, SyntheticNames(["example.com"]) if names is None else names, ALLOWED.__contains__)


def code(reply: bytes) -> int:
    return reply[3] & 0xF


def counts(reply: bytes) -> tuple[int, ...]:
    return struct.unpack(">HHHH", reply[4:12])


def test_an_allowed_name_has_its_synthetic_address() -> None:
    asked = question(name("example.com"))
    said = ask(query(asked))
    assert said.refused_name is None
    assert said.reply == (
        b"\xbe\xef\x85\x80\x00\x01\x00\x01\x00\x00\x00\x00"
        + asked
        + b"\xc0\x0c\x00\x01\x00\x01"
        + DNS_TTL_SECONDS.to_bytes(4, "big")
        + b"\x00\x04\x7f\x80\x00\x01"
    )


def test_the_question_comes_back_as_it_was_spelled() -> None:
    asked = question(name("eXaMpLe.CoM"))
    said = ask(query(asked))
    assert said.reply[12 : 12 + len(asked)] == asked and said.reply.endswith(b"\x7f\x80\x00\x01")


def test_a_name_of_a_wildcard_gets_an_address_when_it_is_asked_for() -> None:
    names = SyntheticNames(["example.com"])
    assert ask(query(question(name("api.example.com"))), names).reply.endswith(b"\x7f\x80\x00\x02")
    assert names.name_at("127.128.0.2") == "api.example.com"


@pytest.mark.parametrize("kind", [AAAA, HTTPS, TXT, SRV, NS])
def test_an_allowed_name_has_no_other_data(kind: int) -> None:
    said = ask(query(question(name("example.com"), kind)))
    assert code(said.reply) == Rcode.NO_ERROR and counts(said.reply) == (1, 0, 0, 0) and said.refused_name is None


@pytest.mark.parametrize("kind", [A, AAAA, TXT, PTR])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (name("evil.example"), "evil.example"),
        (name("example.com.evil.example"), "example.com.evil.example"),
        (name("com"), "com"),
        (b"\x00", "."),
        (b"\x0bexample.com\x00", "example\\046com"),
        (b"\x07example\x04com\x00\x00", "example.com\\000"),
        (b"\x07exampl\xe9\x03com\x00", "exampl\\233.com"),
        (b"\x08example\n\x03com\x00", "example\\010.com"),
        (b"\x08example-\x03com\x00", "example-.com"),
        (name(EXFILTRATED), EXFILTRATED),
    ],
)
def test_every_other_name_does_not_exist_and_is_reported(kind: int, asked: bytes, shown: str) -> None:
    said = ask(query(question(asked, kind)))
    assert code(said.reply) == Rcode.NO_SUCH_NAME and counts(said.reply) == (1, 0, 0, 0)
    assert said.refused_name == shown


@pytest.mark.parametrize(
    ("kind", "family"), [(A, 3), (TXT, 3), (A, 255), (A, 0), (ANY, 1), (AXFR, 1), (OPT, 1), (0, 1)]
)
def test_other_classes_and_instructions_are_refused(kind: int, family: int) -> None:
    said = ask(query(question(name("example.com"), kind, family)))
    assert code(said.reply) == Rcode.REFUSED and said.refused_name == "example.com"


@pytest.mark.parametrize("opcode", range(1, 16))
def test_other_operations_are_not_implemented(opcode: int) -> None:
    said = ask(query(question(name("example.com")), flags=opcode << 11))
    assert code(said.reply) == Rcode.NOT_IMPLEMENTED and said.reply[2] == 0x80 | opcode << 3
    assert counts(said.reply) == (0, 0, 0, 0)


GOOD = question(name("example.com"))


@pytest.mark.parametrize(
    "raw",
    [
        query(GOOD, counts=(0, 0, 0, 0)),
        query(GOOD, GOOD, counts=(2, 0, 0, 0)),
        query(GOOD, counts=(1, 1, 0, 0)),
        query(GOOD, counts=(1, 0, 1, 0)),
        query(GOOD, counts=(1, 0, 0, 1)),
        query(GOOD, EDNS, EDNS, counts=(1, 0, 0, 2)),
        query(GOOD, EDNS, b"x", counts=(1, 0, 0, 1)),
        query(GOOD, EDNS[:-1], counts=(1, 0, 0, 1)),
        query(GOOD, EDNS[:-1] + b"\x05", counts=(1, 0, 0, 1)),
        query(GOOD, b"\x01" + EDNS[1:], counts=(1, 0, 0, 1)),
        query(GOOD, b"\x00\x00\xfa" + EDNS[3:], counts=(1, 0, 0, 1)),
        query(GOOD, EDNS),
        query(GOOD, b"x"),
        query(GOOD, flags=0x0300),
        query(b"\xc0\x0c\x00\x01\x00\x01"),
        query(b"\xc0\x0e\xc0\x0c\x00\x01\x00\x01"),
        query(b"\x07example\xc0\x0c\x00\x01\x00\x01"),
        query(b"\x40" + b"a" * 64 + b"\x00\x00\x01\x00\x01"),
        query(b"\x80\x00\x00\x01\x00\x01"),
        query(question((b"\x3f" + b"a" * 63) * 4 + b"\x00")),
        query(b"\x07examp"),
        query(GOOD[:-1]),
        query(name("example.com")),
        query(),
        query(GOOD, EDNS[:-2] + b"\x04\x00" + bytes(MAX_DNS_QUERY_BYTES), counts=(1, 0, 0, 1)),
    ],
    ids=range(25),
)
def test_what_is_not_one_plain_question_is_refused(raw: bytes) -> None:
    said = ask(raw)
    assert code(said.reply) == Rcode.FORMAT_ERROR and said.refused_name is None


@pytest.mark.parametrize(
    "raw", [b"", b"\xbe\xef", query(GOOD)[:11], query(GOOD, flags=0x8000), query(GOOD, flags=0xFFFF)]
)
def test_no_answer_to_what_is_no_query(raw: bytes) -> None:
    assert ask(raw) == DnsAnswer(reply=b"")


def test_edns_is_answered_with_edns() -> None:
    said = ask(query(GOOD, EDNS, counts=(1, 0, 0, 1)))
    assert counts(said.reply) == (1, 1, 0, 1) and said.reply.endswith(b"\x00\x00\x29\x04\xd0" + bytes(6))
    cookie = EDNS[:-2] + b"\x00\x0c\x00\x0a\x00\x08" + bytes(8)
    assert counts(ask(query(GOOD, cookie, counts=(1, 0, 0, 1))).reply) == (1, 1, 0, 1)
    newer = EDNS[:6] + b"\x01" + EDNS[7:]
    said = ask(query(GOOD, newer, counts=(1, 0, 0, 1)))
    assert code(said.reply) == 0 and said.reply[-6] == Rcode.BAD_VERSION >> 4 and counts(said.reply) == (1, 0, 0, 1)


def test_too_many_names_are_refused() -> None:
    names = SyntheticNames(f"n{at}" for at in range(MAX_SYNTHETIC_NAMES))
    said = ask(query(GOOD), names)
    assert code(said.reply) == Rcode.REFUSED and said.refused_name == "example.com"


def test_queries_over_tcp_come_after_their_length() -> None:
    one, two = query(GOOD), query(question(name("evil.example")))
    book = Playbook(DnsStream()) >> frame(one) + frame(two)[:5] << one >> frame(two)[5:] << two >> silence
    book >> b"\x00" >> silence
    for length in (0, 11, MAX_DNS_QUERY_BYTES + 1, 65535):
        Playbook(DnsStream()) >> length.to_bytes(2, "big") << Refused("impossible length") >> silence


@given(st.lists(st.binary(min_size=12, max_size=60), max_size=4), cut_anyhow())
def test_any_pieces_give_the_same_queries(queries: list[bytes], cuts: list[int]) -> None:
    assert transcript(DnsStream(), pieces_of(b"".join(map(frame, queries)), cuts)) == queries


SAMPLES = (query(GOOD), query(GOOD, EDNS, counts=(1, 0, 0, 1)), query(question(name("evil.example"), AAAA)))


@given(mutated(SAMPLES) | st.binary(max_size=100))
def test_any_query_is_answered_or_dropped(raw: bytes) -> None:
    said = ask(raw)
    if not said.reply:
        return
    assert said.reply[:2] == raw[:2] and said.reply[2] & 0x80 and len(said.reply) <= 512
    if counts(said.reply)[1]:
        assert raw[12:25].lower() == name("example.com") and said.refused_name is None
