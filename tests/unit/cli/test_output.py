"""Output: one document or one text, and nothing in it that steers a terminal."""

import io
import json
import os
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.terminal import Output, align, one_line, printable
from palyra.errors import InternalError
from palyra.ids import CallId
from palyra.secret import REDACTED, Secret


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Shown:
    def __init__(self, *, json: bool = False, terminal: bool = False, color: bool = True) -> None:
        kind = Terminal if terminal else io.StringIO
        self.out, self.err = kind(), kind()
        self.output = Output(json, color=color, stdout=self.out, stderr=self.err)

    @property
    def document(self) -> Any:
        return json.loads(self.out.getvalue())


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    call: CallId
    token: Secret
    raw: bytes


def test_json_data_is_one_document_and_the_render_is_not_called() -> None:
    shown = Shown(json=True)
    shown.output.data({"a": (1, 2)}, lambda _: pytest.fail("rendered"))
    shown.output.text("prose")
    shown.output.table(("a",), [("b",)])
    assert shown.document == {"ok": True, "data": {"a": [1, 2]}}
    assert shown.err.getvalue() == ""


def test_structs_bytes_and_secrets_become_json_values_and_secrets_stay_hidden() -> None:
    shown = Shown(json=True)
    call = CallId.new()
    shown.output.data([Row(call=call, token=Secret("s3cret"), raw=b"\x00"), {"token": Secret("s3cret")}])
    assert shown.document["data"] == [{"call": call, "token": REDACTED, "raw": "AA=="}, {"token": REDACTED}]


def test_a_value_without_json_form_is_refused_before_anything_is_printed() -> None:
    shown = Shown(json=True)
    with pytest.raises(TypeError):
        shown.output.data({"x": object()})
    with pytest.raises(ValueError, match="JSON"):
        shown.output.data({"x": float("nan")})
    assert shown.out.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_a_second_answer_is_refused(as_json: bool) -> None:
    shown = Shown(json=as_json)
    shown.output.data({"a": 1})
    with pytest.raises(RuntimeError, match="answers once"):
        shown.output.data({"a": 2})
    assert shown.out.getvalue().count('"a"') == 1


def test_text_data_is_rendered_or_shown_as_json() -> None:
    shown = Shown()
    shown.output.data({"a": 1}, lambda data: f"a is {data['a']}")
    assert shown.out.getvalue() == "a is 1\n"
    shown = Shown()
    shown.output.data({"a": 1})
    assert shown.document == {"a": 1}


def test_errors_go_to_stdout_as_a_document_or_to_stderr_as_prose() -> None:
    error = InternalError("it broke", hint="do that", call_id="C1")
    shown = Shown(json=True)
    shown.output.error(error)
    assert shown.document == {
        "ok": False,
        "error": {"code": "internal.bug", "message": "it broke", "hint": "do that", "details": {"call_id": "C1"}},
    }
    assert shown.err.getvalue() == ""
    shown = Shown()
    shown.output.error(error)
    assert shown.out.getvalue() == ""
    assert shown.err.getvalue() == "error: it broke\n  code: internal.bug\n  hint: do that\n"


def test_an_error_after_the_answer_does_not_add_a_second_document() -> None:
    shown = Shown(json=True)
    shown.output.data({"a": 1})
    shown.output.error(InternalError("late"))
    assert shown.document == {"ok": True, "data": {"a": 1}}
    assert "late" in shown.err.getvalue()


HOSTILE = "ok\x1b[2K\x1b[1A\x9b31m\u202edlrow\u2066\x07\r\x00\u200b\ud800"


@pytest.mark.promise("P-journal-clean")
def test_hostile_text_reaches_no_terminal_raw() -> None:
    for terminal in (True, False):
        shown = Shown(terminal=terminal)
        shown.output.text(HOSTILE)
        shown.output.note(HOSTILE)
        shown.output.warning(HOSTILE)
        shown.output.error(InternalError(HOSTILE))
        shown.output.table((HOSTILE, "b"), [(HOSTILE, "x\ny")])
        for text in (shown.out.getvalue(), shown.err.getvalue()):
            for bad in ("\x1b[2K", "\x1b[1A", "\x9b", "\u202e", "\u2066", "\x07", "\r", "\x00", "\u200b", "\ud800"):
                assert bad not in text
            text.encode()


def test_json_is_ascii_so_hostile_text_is_inert_there_too() -> None:
    shown = Shown(json=True, terminal=True)
    shown.output.data({"text": HOSTILE, HOSTILE: "é"})
    raw = shown.out.getvalue()
    assert raw.isascii()
    assert set(raw) >= {"\n"} and not set(raw) & {chr(code) for code in range(32) if code != 10}
    assert shown.document["data"]["text"] == HOSTILE


@given(st.text())
def test_printable_leaves_nothing_that_steers(text: str) -> None:
    safe = printable(text)
    assert printable(safe) == safe
    assert all(character in "\n\t" or ord(character) >= 32 for character in safe)
    assert "\n" not in one_line(text)
    assert "\t" not in one_line(text)


def test_printable_keeps_ordinary_text_of_every_script() -> None:
    for text in ("plain", "two\nlines\tand tab", "žluťoučký кот 猫 🐈 e\u0301", "עברית"):
        assert printable(text) == text
    assert printable("\x1b\u202e") == "\\x1b\\u202e"


def test_our_styles_show_on_a_terminal_only_and_wrap_safe_text() -> None:
    shown = Shown(terminal=True)
    shown.output.text(shown.output.style("a\x1b[8mb", "red", "bold"))
    assert shown.out.getvalue() == "\x1b[31m\x1b[1ma\\x1b[8mb\x1b[0m\n"
    piped = Shown()
    piped.output.text(piped.output.style("a", "red"))
    assert piped.out.getvalue() == "a\n"


@pytest.mark.parametrize("how", ["NO_COLOR", "TERM", "flag"])
def test_colour_can_be_switched_off(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how != "flag":
        monkeypatch.setenv(how, {"NO_COLOR": "1", "TERM": "dumb"}[how])
    shown = Shown(terminal=True, color=how != "flag")
    shown.output.error(InternalError("x"))
    shown.output.table(("a",), [("b",)])
    assert "\x1b" not in shown.err.getvalue()
    assert "\x1b[3" not in shown.out.getvalue()


def test_an_empty_no_color_means_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    shown = Shown(terminal=True)
    shown.output.warning("x")
    assert "\x1b[33m" in shown.err.getvalue()


def test_a_table_in_a_pipe_is_aligned_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = Shown()
    shown.output.table(("name", "value"), [("a", "x" * 200), ("long name", 7)])
    lines = shown.out.getvalue().splitlines()
    assert lines == ["name       value", "a          " + "x" * 200, "long name  7"]


def test_a_table_on_a_terminal_folds_and_shows_markup_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = Shown(terminal=True)
    shown.output.table(("name", "value"), [("[bold]x[/bold]", "y" * 100)])
    text = shown.out.getvalue()
    assert "[bold]x[/bold]" in text
    assert text.count("y") == 100


def test_an_empty_table_still_shows_its_columns() -> None:
    assert align([["a", "bb"]]) == "a  bb"


def test_working_is_silent_unless_a_person_watches() -> None:
    for shown in (Shown(), Shown(json=True, terminal=True)):
        with shown.output.working("waiting"):
            pass
        assert shown.err.getvalue() == ""
    watched = Shown(terminal=True)
    with watched.output.working("waiting [red]for\x1b[2K you"):
        pass
    assert watched.out.getvalue() == ""
    assert "\x1b[2K you" not in watched.err.getvalue()


def test_the_standard_streams_are_looked_up_when_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output()
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    output.text("here")
    output.flush()
    assert stream.getvalue() == "here\n"
    assert os.environ["TERM"] == "xterm"


def test_an_id_stays_in_one_piece_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = Shown(terminal=True, color=False)
    calls = [CallId.parse("01M7MK41GXQYSFC0GBMT4QY793"), CallId.parse("01M7MK41GXQYSFC0GBMT4QY794")]
    shown.output.table(
        ("call", "who asks", "until", "why"),
        [(call, "agent:ada", "2026-11-17T11:23:52.125Z", "a reason of several words " * 4) for call in calls],
    )
    lines = shown.out.getvalue().splitlines()
    for call in calls:
        assert any(str(call) in line and "2026-11-17T11:23:52Z" in line for line in lines)
    assert sum("reason" in line for line in lines) > len(calls)
    assert max(map(len, lines)) <= 60


def test_long_lines_are_folded_on_a_terminal_and_left_alone_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    line = "7  call.decided  " + '{"digest":"' + "a" * 40 + '","more":"' + "b" * 40 + '"}' + "\n8  forged\x1b[2K"
    shown, piped = Shown(terminal=True, color=False), Shown()
    shown.output.lines([line, "9  short"])
    piped.output.lines([line, "9  short"])
    lines = shown.out.getvalue().splitlines()
    assert [text for text in lines if not text.startswith("  ")] == ['7  call.decided  {"digest":', "9  short"]
    assert max(map(len, lines)) <= 60 and any("a" * 40 in text for text in lines)
    assert piped.out.getvalue() == f"{one_line(line)}\n9  short\n"
    silent = Shown(json=True)
    silent.output.lines([line])
    assert silent.out.getvalue() == ""
