"""Secrets: every way a value gets printed by accident shows the redaction instead."""

import copy
import json
import logging
import pickle
import traceback

import msgspec
import pytest

from palyra.secret import REDACTED, Secret

VALUE = "hunter2-correct-horse"


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(VALUE)),
        str(Secret(VALUE)),
        f"{Secret(VALUE)}",
        f"{Secret(VALUE)!r:>40}",
        f"{Secret(VALUE):s}",
        "{}".format(Secret(VALUE)),  # noqa: UP032  the method is what is tested
        f"{ {'token': Secret(VALUE)} }",
        repr([Secret(VALUE)]),
    ],
)
def test_no_spelling_shows_the_value(shown: str) -> None:
    assert VALUE not in shown
    assert REDACTED in shown


def test_reveal_is_the_way_to_the_value() -> None:
    assert Secret(VALUE).reveal() == VALUE


def test_logs_and_tracebacks_do_not_show_the_value(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(VALUE)
    logging.getLogger("palyra.test").warning("using %s and %r", secret, secret)
    try:
        raise ValueError(secret)
    except ValueError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert VALUE not in caplog.text
    assert VALUE not in text.replace(f'"{VALUE}"', "")


def test_it_has_no_attribute_dictionary_to_dump() -> None:
    with pytest.raises(TypeError):
        vars(Secret(VALUE))
    with pytest.raises(TypeError):
        json.dumps(Secret(VALUE))
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret(VALUE))


def test_it_is_neither_pickled_nor_copied() -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(Secret(VALUE))


def test_its_truth_cannot_be_tested() -> None:
    with pytest.raises(TypeError, match="is None"):
        bool(Secret(""))


def test_equality_compares_values_of_secrets_only() -> None:
    assert Secret(VALUE) == Secret(VALUE)
    assert Secret(VALUE) != Secret(VALUE + "x")
    assert Secret(VALUE) != VALUE
    assert len({Secret(VALUE), Secret(VALUE), Secret("other")}) == 2


def test_matches_takes_text_beyond_ascii() -> None:
    assert Secret("schlüssel").matches("schlüssel")
    assert not Secret("schlüssel").matches("schlussel")
    assert Secret("a").matches(Secret("a"))


def test_its_json_form_is_the_redaction() -> None:
    assert Secret(VALUE).__json__() == REDACTED
