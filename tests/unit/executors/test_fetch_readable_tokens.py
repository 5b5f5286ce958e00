import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.limits import MAX_ATTRIBUTE_CHARS, MAX_ATTRIBUTES
from palyra.executors.fetch.readable import End, Start, Text, Token, tokenize, unescape


def cut(page: str) -> list[Token]:
    return list(tokenize(page))


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("a &lt; b", [Text("a < b")]),
        ("<P Class=x>y</P >", [Start("p", {"class": "x"}), Text("y"), End("p")]),
        ("<a href='1' HREF=\"2\" x>", [Start("a", {"href": "1", "x": ""})]),
        ('<a b = "c>d" / e=f>', [Start("a", {"b": "c>d", "e": "f"})]),
        ("1 < 2", [Text("1 "), Text("<"), Text(" 2")]),
        ("<!-- <b> -->x", [Text("x")]),
        ("<!-->x", [Text("x")]),
        ("<!--a--!>x", [Text("x")]),
        ("<!doctype html>x<?php ?>y</ z>w", [Text("x"), Text("y"), Text("w")]),
        ("<script>a<b></script >x", [Start("script", {}), Text("a<b>"), End("script"), Text("x")]),
        ("<SCRIPT>a</scriptx></ScRiPt>", [Start("script", {}), Text("a</scriptx>"), End("script")]),
        ("<title>a&amp;<b></title>", [Start("title", {}), Text("a&<b>"), End("title")]),
        ("<style>x", [Start("style", {}), Text("x")]),
        ("<plaintext>a<b></plaintext>", [Start("plaintext", {}), Text("a<b></plaintext>")]),
        # What is unfinished at the end of the page is dropped, as in a browser.
        ("x<a href='", [Text("x")]),
        ("x<!-- y", [Text("x")]),
        ("x</b", [Text("x")]),
        ("x<b", [Text("x")]),
        ("x<", [Text("x"), Text("<")]),
    ],
)
def test_cutting(page: str, found: list[Token]) -> None:
    assert cut(page) == found


def test_references() -> None:
    assert unescape("&amp;amp; &#x41;&#65; &eacute; &nosuch; &") == "&amp; AA é &nosuch; &"
    assert unescape("&#" + "9" * 10_000 + ";").startswith("\ufffd9999")
    assert unescape("&#x110000;&#0;") == "\ufffd\ufffd"


def test_attributes_are_bounded() -> None:
    (tag,) = cut("<a " + " ".join(f"x{number}=1" for number in range(1000)) + ">")
    assert isinstance(tag, Start) and len(tag.attributes) == MAX_ATTRIBUTES
    (tag,) = cut(f"<a b='{'x' * 100_000}'>")
    assert isinstance(tag, Start) and len(tag.attributes["b"]) == MAX_ATTRIBUTE_CHARS


@given(st.text(alphabet="<>/!-='\"ab &#x;\n", max_size=200))
def test_any_text_is_cut_and_nothing_is_invented(page: str) -> None:
    for token in tokenize(page):
        if isinstance(token, Start | End):
            assert token.name.lower() in page.lower()
