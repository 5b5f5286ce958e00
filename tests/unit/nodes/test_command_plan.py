"""Commands that a device's owner names: what of a request becomes a word of theirs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.nodes import limits
from palyra.nodes.agent.messages import BadCapabilityInput, BadCommandPlan
from palyra.nodes.agent.settings import CommandPlan, ParameterPlan, check_commands

PLAN = CommandPlan(
    argv=("convert", "--", "{file}", "{size}"), parameters={"file": ParameterPlan(), "size": ParameterPlan()}
)


def test_each_parameter_is_one_word_whatever_it_holds() -> None:
    hostile = "a b; rm -rf $HOME `id` \"'*{size}"
    assert PLAN.words({"file": hostile, "size": "9"}) == ("convert", "--", hostile, "9")


@pytest.mark.promise("P-device-consent")
@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_a_request_never_changes_how_many_words_there_are_or_which_program_runs(file: str, size: str) -> None:
    try:
        words = PLAN.words({"file": file, "size": size})
    except BadCapabilityInput:
        return
    assert words == ("convert", "--", file, size) and "\0" not in file + size


@pytest.mark.parametrize(
    "given_input",
    [
        {},
        {"file": "a"},
        {"file": "a", "size": "1", "more": "x"},
        {"file": "-rf", "size": "1"},
        {"file": "a\nb", "size": "1"},
        {"file": "a\0b", "size": "1"},
        {"file": "", "size": "1"},
        {"file": 7, "size": "1"},
        {"file": ["a"], "size": "1"},
        {"file": "x" * (limits.DEFAULT_PARAMETER_CHARS + 1), "size": "1"},
    ],
)
def test_what_does_not_fit_is_refused(given_input: dict[str, Any]) -> None:
    with pytest.raises(BadCapabilityInput):
        PLAN.words(given_input)


def test_a_pattern_of_the_owner_is_for_the_whole_value() -> None:
    plan = CommandPlan(argv=("lamp", "{state}"), parameters={"state": ParameterPlan(pattern="on|off|-q")})
    plan.check("lamp")
    assert plan.words({"state": "on"}) == ("lamp", "on") and plan.words({"state": "-q"}) == ("lamp", "-q")
    for wrong in ("on\n", "on off", "xon", "ON"):
        with pytest.raises(BadCapabilityInput):
            plan.words({"state": wrong})


@pytest.mark.parametrize(
    ("name", "plan", "words"),
    [
        ("Up", CommandPlan(argv=("a",)), "not a name"),
        ("a.b", CommandPlan(argv=("a",)), "not a name"),
        ("a", CommandPlan(argv=("{x}",), parameters={"x": ParameterPlan()}), "must not depend on a parameter"),
        ("a", CommandPlan(argv=("",)), "must not depend on a parameter"),
        ("a", CommandPlan(argv=("b", "--to={x}"), parameters={"x": ParameterPlan()}), "a word of its own"),
        ("a", CommandPlan(argv=("b", "{x}")), "not both described and used"),
        ("a", CommandPlan(argv=("b",), parameters={"x": ParameterPlan()}), "not both described and used"),
        ("a", CommandPlan(argv=("b", "{x}"), parameters={"x": ParameterPlan(pattern="(")}), "not a regular expression"),
        ("a", CommandPlan(argv=("b", "c\0")), "NUL"),
        ("a", CommandPlan(argv=("b",), workspace="here"), "absolute"),
    ],
)
def test_plans_that_cannot_work_or_would_not_mean_what_they_say_are_refused(
    name: str, plan: CommandPlan, words: str
) -> None:
    with pytest.raises(BadCommandPlan, match=words):
        plan.check(name)


def test_the_daemon_is_told_what_it_takes_and_that_the_person_is_asked() -> None:
    offer = PLAN.offer("convert")
    assert offer.name == "command.convert" and offer.local_mediation and not offer.idempotent
    assert offer.input_schema["required"] == ["file", "size"] and offer.input_schema["additionalProperties"] is False


def test_there_are_only_so_many() -> None:
    check_commands({f"c{number}": CommandPlan(argv=("a",)) for number in range(limits.MAX_COMMANDS)})
    with pytest.raises(BadCommandPlan):
        check_commands({f"c{number}": CommandPlan(argv=("a",)) for number in range(limits.MAX_COMMANDS + 1)})


def test_misspelled_keys_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"argv": ["a"], "asks": False}, CommandPlan)
