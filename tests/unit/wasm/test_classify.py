import pytest

from palyra.wasm.domain.outcome import cause, complaint, is_about_imports, kind_of_error, kind_of_trap, with_memory

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
        (
            "backtrace:\n  0: m!f\n\nCaused by:\n    0: memory fault at 0xff\n    1: wasm trap: out of bounds\n",
            "out of bounds",
        ),
        ("backtrace:\n  0: m!x\n    0: wasm trap: evil\n\nCaused by:\n    wasm trap: interrupt\n", "interrupt"),
        ("backtrace:\n  0: m!x\n\nCaused by:\n    wasm trap: evil\n\nCaused by:\n    real\n", "real"),
    ],
)
def test_the_cause_is_told_without_the_backtrace(text, said):
    assert cause(text) == said


@pytest.mark.parametrize(
    "name", ["all fuel consumed", "wasm trap: interrupt", "exceeds memory limits", "x\nwasm trap: interrupt"]
)
def test_names_in_a_backtrace_make_no_kind(name):
    text = BACKTRACE.replace("<wasm function 2>", name)
    assert kind_of_error(text) == "fuel_exhausted"
    assert kind_of_error(text.replace("all fuel consumed by WebAssembly\n", "integer divide by zero\n")) == "trap"


def test_names_in_a_complaint_do_not_stand_alone():
    text = "unknown import: `a::b\n\nCaused by:\n    the disk is full` has not been defined"
    assert is_about_imports(text) and complaint(text) == "unknown import: `a::b: the disk is full` has not been defined"
    parsed = "failed to parse\n\nCaused by:\n    duplicate name `unknown import\n  1: evil` (at offset 0x23)\n"
    assert not is_about_imports(parsed)
    assert complaint(parsed) == "failed to parse: duplicate name `unknown import 1: evil` (at offset 0x23)"


def test_a_trap_with_full_memory_counts_as_want_of_memory():
    assert with_memory("trap", 64, 64) == "memory_exceeded"
    assert with_memory("trap", 10, 64) == "trap"
    assert with_memory("fuel_exhausted", 64, 64) == "fuel_exhausted"
