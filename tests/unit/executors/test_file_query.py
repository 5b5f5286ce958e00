import pytest

from palyra.executors.files.query import Found, LiteralQuery, check_query, cut_excerpt, is_binary, split_lines
from palyra.workspace.errors import BadPattern
from palyra.workspace.limits import MAX_LINE_CHARS, MAX_MATCH_TEXT_CHARS


def going() -> None:
    """There is always time."""


def test_finds_the_first_match_of_each_line() -> None:
    lines = ["no", "a needle, a needle", "NEEDLE"]
    assert LiteralQuery("needle", case_sensitive=True).find(lines, 9, going) == [Found(1, 2)]
    assert LiteralQuery("needle", case_sensitive=False).find(lines, 9, going) == [Found(1, 2), Found(2, 0)]
    assert LiteralQuery("needle", case_sensitive=False).find(lines, 1, going) == [Found(1, 2)]


def test_a_literal_has_no_special_characters() -> None:
    assert LiteralQuery("a.*(", case_sensitive=False).find(["aXX(", "A.*("], 9, going) == [Found(1, 0)]


def test_the_quick_look_never_hides_a_match() -> None:
    for text, data in (("é", "é".encode()), ("\ufffd", b"\xff"), ("x", b"axb")):
        query = LiteralQuery(text, case_sensitive=True)
        assert query.may_match(data)
        assert query.find(split_lines(data), 1, going)
    assert not LiteralQuery("x", case_sensitive=True).may_match(b"abc")
    assert LiteralQuery("x", case_sensitive=False).may_match(b"X")


def test_asks_whether_to_go_on_at_every_line() -> None:
    asked = []
    LiteralQuery("x", case_sensitive=True).find(["a"] * 5, 9, lambda: asked.append(1))
    assert len(asked) == 5


def test_lines_are_cut_and_decoded() -> None:
    assert split_lines(b"a\r\nb\xff\nc") == ["a", "b\ufffd", "c"]
    assert len(split_lines(b"x" * (MAX_LINE_CHARS + 5))[0]) == MAX_LINE_CHARS


@pytest.mark.parametrize("query", ["", "a\nb", "a\0b", "x" * 1001])
def test_refuses_queries(query: str) -> None:
    with pytest.raises(BadPattern):
        check_query(query)


def test_an_excerpt_holds_the_match() -> None:
    line = "x" * 1000 + "needle" + "y" * 1000
    part = cut_excerpt(line, 1000)
    assert "needle" in part
    assert len(part) == MAX_MATCH_TEXT_CHARS
    assert cut_excerpt("short", 2) == "short"
    assert cut_excerpt("a" * 998 + "zz", 998).endswith("zz")


def test_binary_files_have_a_nul_in_their_head() -> None:
    assert is_binary(b"a\0b")
    assert not is_binary(b"\xff\xfe")
