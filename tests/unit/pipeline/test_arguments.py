import msgspec
import pytest

from palyra.errors import PalyraError
from palyra.executors.builtin import ECHO, SLEEP
from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.spec import ToolSpec
from palyra.pipeline.intake import accept_arguments, is_large


def accept(raw: object, spec: ToolSpec = ECHO) -> object:
    return accept_arguments(spec, SchemaCheck(spec.input_schema), raw)  # type: ignore[arg-type]


@pytest.mark.promise("P-one-meaning")
def test_key_order_and_white_space_are_one_call() -> None:
    spec = msgspec.structs.replace(ECHO, input_schema={"type": "object"})
    assert accept('{"b":1,"a":"é"}', spec) == accept(' { "a" : "\\u00e9", "b": 1 } ', spec)


@pytest.mark.promise("P-limits", "P-one-meaning")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("[]", "arguments.not_an_object"),
        ("null", "arguments.not_an_object"),
        ('"x"', "arguments.not_an_object"),
        ("{}", "arguments.schema_mismatch"),
        ('{"text":1}', "arguments.schema_mismatch"),
        ('{"text":"a","more":1}', "arguments.schema_mismatch"),
        ('{"text":"' + "x" * 65536 + '"}', "arguments.too_large"),
        ('{"text":"a","text":"a"}', "json.duplicate_key"),
    ],
)
def test_refusals_have_codes(raw: str, code: str) -> None:
    with pytest.raises(PalyraError) as refused:
        accept(raw)
    assert refused.value.code == code
    assert refused.value.hint


def test_a_number_has_one_spelling() -> None:
    accept('{"seconds":1}', SLEEP)
    accept('{"seconds":0.5}', SLEEP)
    with pytest.raises(PalyraError) as refused:
        accept('{"seconds":1.0}', SLEEP)
    assert refused.value.code == "json.ambiguous_number"


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize(
    ("raw", "long"),
    [
        ({}, False),
        ({"text": "x" * 100_000}, False),
        ({"list": [1, 2]}, False),
        ({"list": [[]] * 20_000}, True),
        ({str(number): number for number in range(9_000)}, True),
        ({"deep": {"er": {"list": [0.5] * 20_000}}}, True),
        ({"half": ["\ud800"]}, True),
        ("x" * 10, False),
        (b"[" * 40_000, True),
    ],
)
def test_what_may_take_long_is_known_before_it_is_taken_in(raw, long):
    assert is_large(raw) is long
