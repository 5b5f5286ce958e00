import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, cut_anyhow, each_byte, mutated, pieces_of, silence, transcript
from palyra.egress.limits import MAX_EARLY_BYTES
from palyra.egress.protocols.socks5 import (
    TRANSITIONS,
    Connect,
    Reject,
    Reply,
    ReplyCode,
    Socks5Event,
    Socks5Server,
    Socks5State,
)
from palyra.egress.protocols.state_machine import MachineMisused, step

HELLO = b"\x05\x01\x00"
CHOSEN = Reply(b"\x05\x00")
ASK = b"\x05\x01\x00\x03\x0bexample.com\x01\xbb"
REQUESTED = Connect("example.com", 443)


def at(state: Socks5State) -> Socks5Server:
    """A server brought to a state by a conversation."""
    machine = Socks5Server()
    steps: dict[Socks5State, tuple[Callable[[], object], ...]] = {
        Socks5State.GREETING: (),
        Socks5State.REQUEST: (lambda: machine.receive(HELLO),),
        Socks5State.WAITING: (lambda: machine.receive(HELLO + ASK),),
        Socks5State.OPEN: (lambda: machine.receive(HELLO + ASK), machine.accepted),
        Socks5State.REFUSED: (lambda: machine.receive(b"\x04"),),
    }
    for one in steps[state]:
        one()
    assert machine.state is state
    return machine


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Socks5State, Socks5Event)))
def test_every_pair_is_handled_or_refused(state: Socks5State, event: Socks5Event) -> None:
    if (state, event) in TRANSITIONS:
        assert step(TRANSITIONS, state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(MachineMisused):
            step(TRANSITIONS, state, event)


@pytest.mark.parametrize("state", list(Socks5State))
def test_every_state_takes_any_bytes_and_only_a_waiting_one_an_answer(state: Socks5State) -> None:
    for data in (b"", b"\x00", b"\x05", b"\xff" * 600, HELLO, ASK):
        assert all(isinstance(said, Reply | Connect | Reject) for said in at(state).receive(data))
    for answer in (Socks5Server.accepted, lambda machine: machine.refused(ReplyCode.FAILURE)):
        if state is Socks5State.WAITING:
            assert answer(at(state))
        else:
            with pytest.raises(MachineMisused):
                answer(at(state))


def test_a_connection_to_a_name() -> None:
    book = Playbook(Socks5Server()) >> HELLO << CHOSEN >> ASK << REQUESTED
    book >> Socks5Server.accepted << b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00" >> silence
    assert book.machine.rest == b""


def test_everything_at_once_with_the_first_bytes_of_the_tunnel() -> None:
    book = Playbook(Socks5Server()) >> HELLO + ASK + b"early" << CHOSEN << REQUESTED >> b" data" >> silence
    assert book.machine.rest == b"early data"


def test_addresses_are_reported_as_text() -> None:
    v4 = b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"
    v6 = b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50"
    Playbook(at(Socks5State.REQUEST)) >> v4 << Connect("127.0.0.1", 80) >> silence
    Playbook(at(Socks5State.REQUEST)) >> v6 << Connect("::1", 80) >> silence


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "a\x00b", "EXAMPLE.com.", "user@host", "%2e"])
def test_a_name_is_reported_as_it_was_sent(name: str) -> None:
    ask = b"\x05\x01\x00\x03" + bytes((len(name),)) + name.encode() + b"\x00\x50"
    Playbook(at(Socks5State.REQUEST)) >> ask << Connect(name, 80) >> silence


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", ReplyCode.COMMAND_NOT_SUPPORTED),
        (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", ReplyCode.COMMAND_NOT_SUPPORTED),
        (b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", ReplyCode.COMMAND_NOT_SUPPORTED),
        (b"\x05\x01\x01\x01\x7f\x00\x00\x01\x00\x50", ReplyCode.FAILURE),
        (b"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50", ReplyCode.ADDRESS_NOT_SUPPORTED),
        (b"\x05\x01\x00\x03\x00\x00\x50", ReplyCode.ADDRESS_NOT_SUPPORTED),
        (b"\x05\x01\x00\x03\x03\xc3\xa9a\x00\x50", ReplyCode.ADDRESS_NOT_SUPPORTED),
        (b"\x05\x01\x00\x03\x01a\x00\x00", ReplyCode.FAILURE),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", ReplyCode.FAILURE),
    ],
)
def test_what_is_no_connect_is_rejected(ask: bytes, code: ReplyCode) -> None:
    machine = at(Socks5State.REQUEST)
    (said,) = machine.receive(ask)
    assert isinstance(said, Reject) and (said.code, said.data[:2]) == (code, bytes((5, code)))
    Playbook(machine) >> ASK >> silence
    assert machine.rest == b""


@pytest.mark.parametrize("first", [b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
def test_other_protocols_are_rejected_at_their_first_byte(first: bytes) -> None:
    for received in (first, first[:1]):
        Playbook(Socks5Server()) >> received << Reject(1, b"", "this is not SOCKS5") >> silence


@pytest.mark.parametrize("offer", [b"\x05\x00", b"\x05\x01\x01", b"\x05\x02\x02\x80", b"\x05\x01\xff"])
def test_a_client_that_offers_no_way_in_is_told(offer: bytes) -> None:
    (said,) = Socks5Server().receive(offer)
    assert isinstance(said, Reject) and said.data == b"\x05\xff"


def test_early_bytes_are_bounded() -> None:
    (
        Playbook(Socks5Server())
        >> HELLO + ASK
        << CHOSEN
        << REQUESTED
        >> bytes(MAX_EARLY_BYTES)
        >> b"x"
        << Reject
        >> silence
    )


SAMPLES = (HELLO + ASK + b"early", HELLO + b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50")


@given(data=mutated(SAMPLES), cuts=cut_anyhow())
def test_any_pieces_give_the_same_commands(data: bytes, cuts: list[int]) -> None:
    machine, other = Socks5Server(), Socks5Server()
    assert transcript(machine, pieces_of(data, cuts)) == transcript(other, [data])
    assert (machine.state, machine.rest) == (other.state, other.rest)


@given(st.binary(max_size=600))
def test_any_bytes_are_answered_with_commands(data: bytes) -> None:
    assert transcript(Socks5Server(), each_byte(data)) == transcript(Socks5Server(), [data])
