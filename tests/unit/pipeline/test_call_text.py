"""A call as a person is shown it: every character visible, every value apart from every other, nothing cut."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canonical import canonical_json
from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.pipeline.domain.call_text import CallField, describe_approval, list_accessed, render_call
from palyra.visible_text import escape, is_visible, spell, spell_block, spell_json

pytestmark = pytest.mark.promise("P-approval-shown")
# One of each kind that ``str.isprintable`` or a table of control characters lets pass.
HOSTILE = [
    *("\u202e", "\u2066", "\u061c", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164"),
    *("\uffa0", "\ufe0f", "\U000e0041", "\U000e0100", "\U0001d173", "\U0001bca0", "\u17b4", "\u180e", "\u2800"),
    *("\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u00a0", "\u2003", "\u3000", "\ue000", "\U000f0000"),
    *("\u0378", "\ufffe", "\u0301", "\u0338", "\u20dd", "\u212a", "\u037e", "\u2044", "\u2215", "\u2010", "\ufffc"),
    *("\U0001d173", "\U0001d400", "\u01c3", "\r", "\t", "\v", "\f"),
]


def read_back(shown: str) -> Any:
    """The inverse of what a person reads. It knows nothing of the code that wrote it."""
    return json.loads(shown)


def approval(arguments: dict[str, Any], **touches: Any) -> Approval:
    return Approval(
        id="01AP",
        state=ApprovalState.PENDING,
        binding=ApprovalBinding(
            principal="agent:a", tool="fs.write", argument_digest="d", bundle_digest="", workspace="/w"
        ),
        session="s",
        arguments=arguments,
        touches=touches,
        policies=(),
        created_ms=0,
        expires_ms=1,
    )


@pytest.mark.parametrize("hidden", HOSTILE, ids=[f"U+{ord(each):04X}" for each in HOSTILE])
def test_no_character_without_a_shape_of_its_own_is_shown_raw(hidden: str) -> None:
    for text in (hidden, f"a{hidden}", f"{hidden}b", f"a{hidden}b", f"漢{hidden}字", hidden * 3):
        blocks = () if hidden == "\t" else (spell_block(text),)
        for shown in (spell(text), spell_json({text: [text]}), escape(text), *blocks):
            assert hidden not in shown and "\\" in shown
        assert read_back(spell_json({text: [text]})) == {text: [text]} and not is_visible(text)


def test_every_character_that_unicode_ignores_or_that_has_no_shape_is_spelled_out() -> None:
    for code in range(0x110000):
        char = chr(code)
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (category == "Zs" and char != " "):
            assert not is_visible(char), hex(code)


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(-9, 9) | st.booleans(), st.lists)))
def test_what_is_shown_is_exactly_the_canonical_arguments(arguments: dict[str, Any]) -> None:
    shown = spell_json(arguments)
    assert canonical_json(read_back(shown)) == canonical_json(arguments)
    assert all(is_visible(line) for line in shown.split("\n"))


@given(st.text(), st.text())
def test_no_two_values_are_written_alike(one: str, other: str) -> None:
    assert (spell(one) == spell(other)) is (one == other)
    for value in (one, other):
        shown = spell(value)
        assert (read_back(shown) if shown.startswith('"') else shown) == value
        assert "\n" not in shown


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\u202eb", "a\\u202eb"),
        ("caf\u00e9", "cafe\u0301"),
        ("paypal", "p\u0430ypal"),
        ("K", "\u212a"),
        ("a/b", "a\u2044b"),
        ("a;b", "a\u037eb"),
        ("\u05d0/\u05d1 a", "\u05d1/\u05d0 a"),
        ("docs", "docs "),
        ("", " "),
        ("が", "か\u3099"),
    ],
)
def test_look_alikes_are_told_apart(one: str, other: str) -> None:
    assert spell(one) != spell(other)
    assert not (is_visible(one) and is_visible(other)) or one.isascii()


@pytest.mark.parametrize(
    "text", ["naïve", "путь/файл", "漢字かな", "हिन्दी", "ภาษาไทย", "한국어", "ελληνικά", "العربية"]
)
def test_people_read_their_own_languages(text: str) -> None:
    assert spell(text) == text == escape(text)
    assert text in spell_json({"k": [text]}) or text == "العربية"


def test_a_pile_of_marks_covers_no_other_line() -> None:
    assert spell("ก" + "\u0e34" * 50).count("\u0e34") == 4


def test_a_path_writes_no_label_of_its_own() -> None:
    path = "notes.txt\narguments  {}\ndigest     0\nwould touch  nothing outside itself"
    text = render_call(describe_approval(approval({"path": path}, paths=[path, "b: c"], hosts=[])))
    labels = [line.split("  ")[0] for line in text.split("\n") if not line.startswith(" ")]
    assert labels == ["who asks", "session", "tool", "arguments", "digest", "would touch", "workspace"]
    assert 'paths: "b: c"' in text and r"paths: \"notes.txt\narguments" not in text
    assert f"paths: {json.dumps(path)}" in text


def test_all_of_a_long_call_is_shown() -> None:
    arguments = {"content": "x" * 60_000 + "\u200b", "many": list(range(5_000))}
    fields = {
        each.label: each for each in describe_approval(approval(arguments, paths=[f"p{n}" for n in range(3_000)]))
    }
    assert read_back("\n".join(fields["arguments"].lines)) == arguments
    assert len(fields["would touch"].lines) == 3_000


def test_touches_in_any_shape() -> None:
    assert list_accessed({"paths": [], "hosts": []}) == ("nothing outside itself",)
    assert list_accessed({"host": "a.example"}) == ("host: a.example",)
    assert list_accessed(None) == ()
    assert list_accessed(["x"]) == ("[", '  "x"', "]")
    assert render_call((CallField("a", ("b", "c")),)) == "a  b\n   c"
