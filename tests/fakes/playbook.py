"""Conversations with a protocol machine, written down: what it hears (``>>``) and what it says (``<<``).

    Playbook(Socks5Server()) >> b"\\x05\\x01\\x00" << Reply(b"\\x05\\x00") >> silence

What is heard are bytes for ``receive``, or a function of the machine. What is said is compared with a value, a type, or
``Refused`` for a refusal that the machine raises. Everything said must be expected before the next thing is heard.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from hypothesis import strategies as st

from palyra.egress.domain.refusal import EgressRefused


class Refused(NamedTuple):
    """``words`` are in the refusal's message."""

    words: str
    code: str = "egress.malformed_traffic"


class Silence:
    """Heard last: nothing more was said."""


silence = Silence()


class Playbook:
    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self._said: list[object] = []

    def __rshift__(self, heard: bytes | Callable[[Any], object] | Silence) -> Self:
        assert not self._said, f"not expected: {self._said}"
        if not isinstance(heard, Silence):
            self._said = _receive(self.machine, heard)
        return self

    def __lshift__(self, expected: object) -> Self:
        assert self._said, f"nothing was said, expected {expected}"
        said = self._said.pop(0)
        if isinstance(expected, Refused) and isinstance(said, Refused):
            assert expected.words in said.words and expected.code == said.code, f"{said} is not {expected}"
        elif isinstance(expected, type):
            assert isinstance(said, expected), f"{said} is not a {expected.__name__}"
        else:
            assert said == expected, f"{said} is not {expected}"
        return self


def _receive(machine: Any, heard: bytes | Callable[[Any], object]) -> list[object]:
    try:
        said = machine.receive(heard) if isinstance(heard, bytes) else heard(machine)
    except EgressRefused as refused:
        return [Refused(refused.message, refused.code)]
    if said is None:
        return []
    return list(said) if isinstance(said, list) else [said]


def transcript(machine: Any, pieces: Iterable[bytes]) -> list[object]:
    """All that a machine says to these pieces, until it refuses. Neighbouring bytes are joined: where the network cut
    them is not the machine's doing."""
    said: list[object] = []
    for piece in pieces:
        for one in _receive(machine, piece):
            before = said[-1] if said else None
            if hasattr(one, "data") and type(before) is type(one) and hasattr(before, "data"):
                said[-1] = type(one)(before.data + one.data)
            else:
                said.append(one)
        if said and isinstance(said[-1], Refused):
            break
    return said


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({cut for cut in cuts if 0 < cut < len(data)})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def each_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def cut_anyhow() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(min_value=0, max_value=2_000), max_size=12)


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """One of the samples with a few bytes changed, put in, taken out or said twice."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(min_value=0, max_value=4))):
        at = draw(st.integers(min_value=0, max_value=len(data)))
        match draw(st.integers(min_value=0, max_value=3)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                data[at:at] = draw(st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"\0", b":", b",", b"\xff", b"0"]))
            case 2:
                del data[at : at + draw(st.integers(min_value=1, max_value=8))]
            case _:
                data[at:at] = data[at : at + draw(st.integers(min_value=1, max_value=32))]
    return bytes(data)
