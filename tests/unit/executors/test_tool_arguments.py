"""Arguments of the browser tools: actions as agents write them, and what a session may reach."""

from typing import Any

import pytest

from palyra.browser.domain.action import BadAction, BadTarget, Click, ElementTarget, HandleDialog, SetFileInput, Type
from palyra.egress.domain.refusal import EgressRefused
from palyra.egress.domain.target import Target
from palyra.errors import InvalidInput
from palyra.executors.browser import arguments
from palyra.executors.browser.arguments import HostBeyondSettings, HostNotAllowed, NoHosts, Reach

CEILING = Reach(hosts=("shop.test", "*.shop.test", "dev.test:8080"), private_targets=("dev.test:8080", "shop.test"))


def steps(*actions: dict[str, Any]) -> tuple[arguments.Step, ...]:
    return arguments.steps_of({"actions": list(actions)})


def test_actions_are_read_as_agents_write_them() -> None:
    click, typed, upload, dialog = steps(
        {"action": "click", "target": "e1"},
        {"action": "type", "target": {"role": "textbox", "name": "Password"}, "secret": "global/x", "submit": True},
        {"action": "upload", "target": {"css": "input"}, "paths": ["a.txt", "b.txt"]},
        {"action": "dialog", "accept": False},
    )
    assert click.action == Click(target=ElementTarget(ref="e1"))
    assert isinstance(typed.action, Type) and typed.action.secret is None and typed.secret_ref == "global/x"
    assert isinstance(upload.action, SetFileInput) and upload.paths == ("a.txt", "b.txt")
    assert dialog.action == HandleDialog(accept=False)
    every = (click, typed, upload, dialog)
    assert arguments.secrets_of(every) == ("global/x",) and arguments.paths_of(every) == ("a.txt", "b.txt")
    assert not arguments.evaluates(every)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"action": "click"}, r"action 1 \(click\): .*target"),
        ({"action": "click", "target": "e1", "key": "x"}, "unknown field `key`"),
        ({"action": "type", "target": "e1", "text": "a", "secret": "global/x"}, "without a text beside it"),
        ({"action": "press", "key": "a", "secret": "global/x"}, "typed by the action type"),
        ({"action": "upload", "target": "e1"}, "needs the paths"),
        ({"action": "click", "target": "e1", "paths": ["a"]}, "paths go with upload"),
        ({"action": "fly"}, "fly"),
        ({"action": "type", "target": "e1", "origins": ["https://evil.test"], "secret": "nonsense"}, "secret"),
    ],
)
def test_what_an_action_lacks_or_has_too_much_is_told(action: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        steps(action)


def test_an_element_is_named_in_one_way() -> None:
    assert arguments.element("e1") == ElementTarget(ref="e1")
    assert arguments.element(None) is None
    with pytest.raises(BadTarget):
        arguments.element({"ref": "e1", "css": "a"})


def test_the_addresses_that_actions_name_are_found() -> None:
    found = arguments.addresses_of(
        steps(
            {"action": "navigate", "url": "https://a.test/"},
            {"action": "open_tab"},
            {"action": "open_tab", "url": "about:blank"},
            {"action": "open_tab", "url": "https://b.test/"},
        )
    )
    assert found == ("https://a.test/", "https://b.test/")
    for odd in ("file:///etc/passwd", "javascript:alert(1)", "https://a@b/", "chrome://version"):
        with pytest.raises(EgressRefused):
            arguments.target_of(odd)


@pytest.mark.promise("P-limits")
def test_the_host_of_the_first_address_is_one_of_the_hosts() -> None:
    assert arguments.add_hosts({"url": "https://shop.test/x"})["hosts"] == ["shop.test"]
    assert arguments.add_hosts({"url": "http://dev.test:8080/"})["hosts"] == ["dev.test:8080"]
    beneath = arguments.add_hosts({"url": "https://a.shop.test/", "hosts": ["*.shop.test"]})
    assert beneath["hosts"] == ["*.shop.test"]
    with pytest.raises(NoHosts):
        arguments.add_hosts({})
    with pytest.raises(NoHosts, match="32 are the most"):
        arguments.add_hosts({"hosts": [f"h{number}.test" for number in range(33)]})


def test_a_session_reaches_what_was_asked_within_the_settings() -> None:
    reach = arguments.reach_of({"hosts": ["a.shop.test", "dev.test:8080"]}, CEILING)
    assert reach.hosts == ("a.shop.test", "dev.test:8080") and reach.private_targets == ("dev.test:8080",)
    for beyond in ("evil.test", "shop.test:8443", "*.test.example", "dev.test"):
        with pytest.raises(HostBeyondSettings, match=r"shop\.test"):
            arguments.reach_of({"hosts": [beyond]}, CEILING)
    with pytest.raises(HostBeyondSettings):
        arguments.reach_of({"hosts": [], "any_public_host": True}, CEILING)
    # A rule that is wider than a private target opens just that one.
    wide = Reach(hosts=("*.shop.test",), private_targets=("a.shop.test",))
    assert arguments.reach_of({"hosts": ["*.shop.test"]}, wide).private_targets == ("a.shop.test",)


def test_any_public_host_is_the_web_and_no_private_address() -> None:
    everywhere = Reach(any_public_host=True)
    reach = arguments.reach_of({"hosts": ["x.test"], "any_public_host": True}, everywhere)
    assert reach.words() == ("x.test", "any public host") and reach.private_targets == ()
    reach.require(Target.from_url("https://anything.test/"))
    with pytest.raises(HostNotAllowed, match="any public host"):
        reach.require(Target.from_url("https://anything.test:8443/"))
    with pytest.raises(HostBeyondSettings):
        arguments.reach_of({"hosts": ["x.test:8443"]}, everywhere)


def test_navigating_goes_one_way_and_saving_needs_both_words() -> None:
    arguments.require_one_way({"url": "https://a.test/"})
    for wrong in ({}, {"url": "https://a.test/", "to": "back"}):
        with pytest.raises(BadAction):
            arguments.require_one_way(wrong)
    arguments.require_save({})
    with pytest.raises(BadAction):
        arguments.require_save({"save": "x"})
