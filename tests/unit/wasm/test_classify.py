import pytest

from palyra.wasm.classify import cause, kind_of_error, kind_of_trap, with_memory

BACKTRACE = """error while executing at wasm backtrace:
    0:    0x137 - m!<wasm function 2>

Caused by:
    wasm trap: all fuel consumed by WebAssembly
"""


def test_codes_and_texts_become_kinds():
    assert [kind_of_trap(code) for code in (10, 11, 9, None)] == ["timed_out", "fuel_exhausted", "trap", "trap"]
    assert kind_of_error(BACKTRACE) == "fuel_exhausted"
    assert kind_of_error("Caused by:\n    wasm trap: interrupt") == "timed_out"
    assert kind_of_error("memory minimum size of 4 pages exceeds memory limits") == "memory_exceeded"
    assert kind_of_error("something new") == "trap"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BACKTRACE, "all fuel consumed by WebAssembly"),
        ("one line", "one line"),
        ("first\n\nCaused by:\n    the reason\n", "the reason"),
        ("", ""),
    ],
)
def test_the_cause_is_told_without_the_backtrace(text, said):
    assert cause(text) == said


def test_a_trap_with_full_memory_counts_as_want_of_memory():
    assert with_memory("trap", 64, 64) == "memory_exceeded"
    assert with_memory("trap", 10, 64) == "trap"
    assert with_memory("fuel_exhausted", 64, 64) == "fuel_exhausted"
