"""Statements are found where Cedar finds them, whatever is in strings and comments."""

from itertools import pairwise

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.policy.bundle_check import complexity_of, statements, tokens
from palyra.policy.limits import MAX_CONDITIONALS_PER_POLICY, MAX_NESTING, MAX_TOKENS_PER_POLICY

ONE = '@id("a;b") permit(principal, action, resource) when { context.x == "\\";//" };'


def test_semicolons_in_strings_and_comments_do_not_end_a_statement() -> None:
    text = f"// one; two\n{ONE} // done;\n forbid(principal, action, resource);"
    found = list(statements(text))
    assert [statement.text[:6] for statement in found] == ['@id("a', "forbid"]
    assert [text[statement.start :][:6] for statement in found] == ['@id("a', "forbid"]


def test_text_after_the_last_semicolon_is_a_statement() -> None:
    assert [statement.text for statement in statements("permit(); left over")] == ["permit();", "left over"]


def test_a_comment_ends_at_a_carriage_return_as_in_cedar() -> None:
    text = "// quiet\rpermit(principal, action, resource);"
    assert len(list(statements(text))) == cedarpy.policies_to_json_str(text).count('"effect"') == 1


def test_an_unterminated_string_takes_the_rest() -> None:
    assert [token.text for token in tokens('a "b\nc; d')] == ["a", '"b\nc; d']


def test_a_prefix_ends_with_its_last_token() -> None:
    (statement,) = statements("  permit ( principal ;")
    assert statement.prefix(2) == "permit ("
    assert statement.prefix(0) == ""


@given(st.text(alphabet='ab"\\/;\n\r\t (){}@:=&|é\u2028'))
def test_tokens_cover_everything_but_blanks_and_comments(text: str) -> None:
    found = list(tokens(text))
    for token in found:
        assert text[token.start : token.end] == token.text
    assert all(first.end <= second.start for first, second in pairwise(found))


@given(
    st.lists(
        st.sampled_from(
            [
                "permit(principal,action,resource);",
                ONE,
                "// a;b\n",
                "//\r",
                "\n",
                '@x("//") forbid(principal,action,resource);',
            ]
        )
    )
)
def test_cedar_counts_the_same_statements(parts: list[str]) -> None:
    text = "".join(parts)
    assert len(list(statements(text))) == cedarpy.policies_to_json_str(text).count('"effect"')


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("(" * (MAX_NESTING + 1), "nested deeper"),
        ("{a: [" * MAX_NESTING, "nested deeper"),
        ("if " * (MAX_CONDITIONALS_PER_POLICY + 1), "conditionals"),
        ("a && " * MAX_TOKENS_PER_POLICY, "longer than"),
    ],
)
def test_shapes_that_would_crash_the_parser_are_found(body: str, complaint: str) -> None:
    (statement,) = statements(body)
    excess = complexity_of(statement)
    assert excess is not None
    assert complaint in excess.message


def test_ordinary_policies_are_not_too_complex() -> None:
    (statement,) = statements(ONE)
    assert complexity_of(statement) is None
