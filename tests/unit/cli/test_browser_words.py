from typing import Any

import click
import pytest

from palyra.cli.commands.browser import spoken_action, spoken_element
from palyra.executors.browser.arguments import steps_of


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("click e12", {"action": "click", "target": "e12"}),
        ("double-click css=#a", {"action": "double_click", "target": {"css": "#a"}}),
        (
            "type role=textbox:Name anna",
            {"action": "type", "target": {"role": "textbox", "name": "Name"}, "text": "anna"},
        ),
        ("press Enter", {"action": "press", "key": "Enter"}),
        ("select e3 a b", {"action": "select", "target": "e3", "values": ["a", "b"]}),
        ("upload e3 a.txt", {"action": "upload", "target": "e3", "paths": ["a.txt"]}),
        ("wait Thank you", {"action": "wait_for", "text": "Thank you"}),
        ("dialog accept bob", {"action": "dialog", "accept": True, "text": "bob"}),
        ("dialog dismiss", {"action": "dialog", "accept": False}),
        ("back", {"action": "back"}),
        ("drag e1 text=There", {"action": "drag", "target": "e1", "to": {"text": "There"}}),
        ("switch_tab t2", {"action": "switch_tab", "tab": "t2"}),
    ],
)
def test_a_few_words_are_an_action_that_the_tool_takes(words: str, action: dict[str, Any]) -> None:
    assert spoken_action(words.split()) == action
    steps_of({"actions": [action]})


def test_a_secret_takes_the_place_of_the_text() -> None:
    spoken = spoken_action(["type", "e2"], secret="global/pw", submit=True, tab="t1")
    assert spoken == {"action": "type", "target": "e2", "secret": "global/pw", "submit": True, "tab": "t1"}


@pytest.mark.parametrize("words", ["fly e1", "click", "click e1 e2", "type e1", "select e1", "dialog", "dialog maybe"])
def test_what_is_no_action_is_a_usage_mistake(words: str) -> None:
    with pytest.raises(click.UsageError):
        spoken_action(words.split())


def test_only_type_takes_a_secret() -> None:
    with pytest.raises(click.UsageError):
        spoken_action(["click", "e1"], secret="global/pw")


def test_an_element_with_an_equals_sign_that_is_none_of_ours_is_a_ref() -> None:
    assert spoken_element("a=b") == "a=b"
    assert spoken_element("role=button") == {"role": "button"}
