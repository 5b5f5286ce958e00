from hypothesis import given
from hypothesis import strategies as st

from palyra.wasm.domain.outcome import render_text
from palyra.wasm.host.wasi import GuestClock, RandomStream


@given(st.text(max_size=300), st.integers(1, 200))
def test_shown_text_is_printable_and_bounded(text, limit):
    made = render_text(text, limit)
    assert len(made) <= limit
    assert all(character.isprintable() or character == "\t" or character.isspace() for character in made)
    assert not set(made) & set("\n\r\x0b\x0c\x1b\x85\u2028\u2029\u202e")


def test_ordinary_text_stays_as_it_is():
    assert render_text("Grüße, 世界 👋\tok", 100) == "Grüße, 世界 👋\tok"
    assert render_text("abcdef", 4) == "abc…"
    assert render_text("a\x1b[0m", 100) == "a\\u{1b}[0m"


def test_the_wall_clock_stands_still_and_the_other_moves():
    clock = GuestClock(1_700_000_000_123)
    assert clock.wall_ns == 1_700_000_000_123_000_000 == clock.wall_ns
    first, second = clock.monotonic_ns(), clock.monotonic_ns()
    assert second > first
    assert GuestClock(-5).wall_ns == 0
    assert GuestClock(10**30).wall_ns < 2**64


def test_random_bytes_are_those_of_the_seed():
    one, same, other = RandomStream(b"seed"), RandomStream(b"seed"), RandomStream(b"another")
    first = one.take(32)
    assert first == same.take(32) != other.take(32)
    assert one.take(32) != first
    assert len(one.take(1000)) == 1000
