import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.journal.redaction import FEW, PatternSet

FILLER = [f"filler-{number:04d}" for number in range(FEW + 1)]


def patterns(*texts: str, many: bool) -> PatternSet:
    found = PatternSet()
    found.add(texts)
    if many:
        found.add(FILLER)
    return found


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("texts", "text", "clean"),
    [
        (("secret",), "a secret b", "a * b"),
        (("secret",), "secretsecret", "**"),
        (("abcd", "abcdefgh"), "abcdefgh abcd", "* *"),
        (("abcd", "cdefgh"), "xabcdefghx", "x*x"),
        (("aaaa",), "aaaaaa", "*"),
        (("secret",), "SECRET secre t", "SECRET secre t"),
        (("secret",), "", ""),
        ((), "secret", "secret"),
    ],
)
def test_every_stretch_is_replaced(texts: tuple[str, ...], text: str, clean: str, many: bool) -> None:
    found = patterns(*texts, many=many)
    assert found.replace_in(text, "*") == clean
    assert found.match(text) == (clean != text)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("texts", "text", "clean"),
    [
        (("secret-value",), "a secret-v", "a *"),
        (("secret-value",), "a secret-value", "a *"),
        (("secret-value",), "a secret-v b", "a secret-v b"),
        (("secret-value",), "a sec", "a sec"),
        (("first line", "first line\nsecond"), "first line\nse", "*"),
        (("line of", "a line of\ntwo"), "this is a line of\nt", "this is *"),
        ((), "secret", "secret"),
    ],
)
def test_the_end_of_a_broken_off_text_may_be_a_beginning(
    texts: tuple[str, ...], text: str, clean: str, many: bool
) -> None:
    assert patterns(*texts, many=many).replace_in(text, "*", broken_off=True) == clean


TEXT = st.text(alphabet="abc", min_size=4, max_size=7)


@given(st.lists(TEXT, max_size=5), st.text(alphabet="abc", max_size=60))
def test_few_and_many_find_the_same_and_leave_nothing(texts: list[str], text: str) -> None:
    few, many = patterns(*texts, many=False), patterns(*texts, many=True)
    assert few.match(text) == many.match(text) == any(one in text for one in texts)
    clean = many.replace_in(text, "*")
    assert clean == few.replace_in(text, "*") and not any(one in clean for one in texts)


def test_the_same_one_counts_once() -> None:
    found = PatternSet()
    found.add(["secret", "secret"])
    found.add(["secret"])
    assert len(found) == 1
