"""Payloads that are filled in are byte for byte those that would have been written in full."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palyra.canonical import canonical_json
from palyra.journal.event import NewEvent
from palyra.journal.forms import Form, Hole
from palyra.journal.redact import REDACTED, Redactor
from palyra.limits import MAX_EVENT_PAYLOAD_BYTES
from palyra.secret import Secret

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("klmn"), VALUES), VALUES, VALUES)
def test_filled_in_is_what_is_written_in_full(around: dict[str, Any], first: Any, second: Any) -> None:
    redactor = Redactor()
    form = redactor.form({**around, "z": {"first": Hole("first"), "deep": [around]}, "b": Hole("second")})
    assert form is not None
    whole = {**around, "z": {"first": first, "deep": [around]}, "b": second}
    filled = redactor.filled(form, {"first": canonical_json(first), "second": canonical_json(second)})
    assert filled is not None and filled.payload == redactor.payload(whole) == canonical_json(whole)


def test_a_form_without_holes_is_its_payload() -> None:
    assert Form(b'{"a":1}').filled({}) == b'{"a":1}'


def test_what_has_to_be_changed_has_no_form() -> None:
    assert Redactor().form({"password": "p", "x": Hole("x")}) is None
    assert Redactor().form({"f": 1.5, "x": Hole("x")}) is None
    assert Redactor([Secret("hunter2-hunter2")]).form({"text": "a hunter2-hunter2", "x": Hole("x")}) is None
    assert not Redactor().fit({"token": "t"}) and Redactor().fit({"text": "t"})


def test_known_values_are_found_in_what_is_filled_in() -> None:
    redactor = Redactor([Secret("hunter2-hunter2"), Secret("pin")])
    form = redactor.form({"a": "before", "then": Hole("x")})
    assert form is not None
    assert redactor.filled(form, {"x": b'"harmless"'}) is not None
    assert redactor.filled(form, {"x": b'"with hunter2-hunter2"'}) is None
    assert redactor.filled(form, {"x": b'"pin"'}) is None


def test_what_becomes_too_long_is_not_filled_in() -> None:
    redactor = Redactor()
    form = redactor.form({"x": Hole("x")})
    assert form is not None
    assert redactor.filled(form, {"x": canonical_json(["y" * 999] * (MAX_EVENT_PAYLOAD_BYTES // 1000 + 1))}) is None


def test_a_secret_that_is_learned_after_filling_in_is_taken_out() -> None:
    redactor = Redactor()
    form = redactor.form({"x": Hole("x"), "n": 3})
    assert form is not None
    event = NewEvent(kind="a.b", actor="x", redacted=redactor.filled(form, {"x": b'"hunter2-hunter2"'}))
    assert redactor.payload_of(event) == b'{"n":3,"x":"hunter2-hunter2"}'
    redactor.register(Secret("hunter2-hunter2"))
    assert json.loads(redactor.payload_of(event)) == {"n": 3, "x": REDACTED}
