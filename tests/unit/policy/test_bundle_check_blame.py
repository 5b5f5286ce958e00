"""The token that is wrong is found by its effect on the parser, not by its name."""

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.policy.bundle_check import (
    Statement,
    blame_syntax,
    blame_validation,
    find,
    head_of,
    place_of_names,
    statements,
)

GOOD = (
    '@id("x") permit (principal in Group::"g", action, resource is Tool) '
    "when { context.a && [1, 2].contains(context.b) };"
)


def one(text: str) -> Statement:
    return next(iter(statements(text)))


def error_of(text: str) -> str | None:
    try:
        cedarpy.policies_to_json_str(text)
    except ValueError as error:
        return str(error)
    return None


@given(st.integers(min_value=1, max_value=len(one(GOOD).tokens) - 2))
def test_a_foreign_token_anywhere_is_found(position: int) -> None:
    token = one(GOOD).tokens[position]
    broken = f"{GOOD[: token.start]} # {GOOD[token.start :]}"
    blame = blame_syntax(one(broken), error_of)
    assert broken[blame.offset] == "#"


@pytest.mark.parametrize(
    ("word", "wrong"),
    # After `action ==` and after a head that ends early, it is the comma that cannot follow.
    [("permit", "permit"), ("::", "::"), ("==", ", r"), (")", ", r"), ("}", "}"), ("5", "5"), ('"s"', '"s"')],
)
def test_a_token_out_of_place_is_found(word: str, wrong: str) -> None:
    broken = GOOD.replace(", action,", f", action {word},")
    blame = blame_syntax(one(broken), error_of)
    assert broken[blame.offset :].startswith(wrong)


def test_an_unfinished_policy_is_blamed_at_its_end() -> None:
    text = "permit(principal, action, resource)"
    assert blame_syntax(one(text), error_of).offset == len(text) - 1


def test_names_in_annotations_come_last() -> None:
    statement = one('@approved("x") permit(principal, action, resource) when { context.approved };')
    assert place_of_names(statement, "attribute `approved` not found") == statement.text.rindex("approved")
    assert find(statement, "@approved") == 0
    assert find(statement, "absent") is None


def test_the_head_is_not_an_annotation_of_that_name() -> None:
    statement = one('@permit("forbid") forbid(principal, action, resource);')
    assert statement.tokens[head_of(statement)].text == "forbid"


def test_consequences_of_another_error_are_left_out() -> None:
    impossible = "for policy `policy0`, unable to find an applicable action given the policy scope constraints"
    unknown = "for policy `policy0`, unrecognized entity type `Agen`"
    statement = one('permit(principal == Agen::"x", action, resource);')
    (blame,) = blame_validation(statement, [unknown, impossible, unknown], frozenset({"Agent"}))
    assert blame.message == "unrecognized entity type `Agen`; did you mean `Agent`?"
    assert blame.offset == statement.text.index("Agen")
