"""Operators' tests fail precisely."""

import json
from collections.abc import Callable

import pytest

from palyra.policy.cedar import CedarEngine
from palyra.policy.dry_run import BadExpectation, Failure, ToolFacts, parse_expectations, run_expectations
from palyra.policy.request import EntityDirectory

EngineOf = Callable[..., CedarEngine]
KNOWN = {"echo": ToolFacts(), "fs.write": ToolFacts(capabilities=frozenset({"filesystem_write"}), sensitive=True)}

GOOD = """
version = 1

[[expect]]
name = "talk"
principal = "agent:bot"
tool = "echo"
outcome = "allow"
policies = ["baseline.allowed-tools"]

[[expect]]
principal = "agent:bot"
tool = "fs.write"
outcome = "needs_approval"

[[expect]]
principal = "agent:bot"
tool = "fs.write"
approved = true
outcome = "allow"
context = { paths = ["a"], run = "r" }

[[expect]]
principal = "user:operator"
action = "journal.read"
outcome = "allow"

[[expect]]
principal = "agent:bot"
action = "node.invoke"
resource = { type = "Node", id = "n", attrs = { capabilities = [] } }
context = { run = "r", capability = "c" }
outcome = "deny"
policies = []

[[expect]]
principal = "agent:bot"
tool = "mine"
tool_facts = { sensitive = true }
outcome = "deny"
"""


@pytest.fixture
def failures(engine_of: EngineOf, directory: EntityDirectory) -> Callable[..., list[Failure]]:
    def run(text: str, name: str = "x.toml") -> list[Failure]:
        return list(run_expectations(parse_expectations(name, text), engine_of(), directory, KNOWN.get))

    return run


Failures = Callable[..., list[Failure]]


def test_expectations_that_hold(failures: Failures) -> None:
    assert failures(GOOD) == []


def test_json_means_the_same(failures: Failures) -> None:
    document = {"version": 1, "expect": [{"principal": "agent:bot", "tool": "echo", "outcome": "deny"}]}
    (failure,) = failures(json.dumps(document), "x.json")
    assert str(failure) == "x.json:1: agent:bot tool.execute echo: expected deny, got allow by baseline.allowed-tools"


def test_a_failure_names_its_place_and_both_answers(failures: Failures) -> None:
    (failure,) = failures(GOOD.replace('outcome = "needs_approval"', 'outcome = "deny"'))
    assert (failure.file, failure.line) == ("x.toml", 11)
    assert failure.expected == "deny"
    assert failure.actual == "needs_approval by baseline.sensitive-needs-approval"
    assert failure.reasons == ("policy.approval_required",)


def test_the_right_outcome_for_the_wrong_reason_fails(failures: Failures) -> None:
    (failure,) = failures(GOOD.replace('["baseline.allowed-tools"]', '["mine"]'))
    assert str(failure) == "x.toml:4: talk: expected allow by mine, got allow by baseline.allowed-tools"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version = 2\nexpect = []", "version 2"),
        ("expect = []", "version"),
        ("version = 1\n[[expect]]\nprincipal = 'agent:x'\noutcome = 'maybe'", "maybe"),
        ("version = 1\n[[expect]]\nprincipal = 'agent:x'\ntol = 'echo'\noutcome = 'deny'", "tol"),
        ("version = = 1", "line 1"),
        ("version = 1\n[[expect]]\nprincipal = 'agent:x'\ntool = 'ehco'\noutcome = 'deny'", "x.toml:2: 'ehco'"),
    ],
)
def test_a_malformed_file_is_refused(failures: Failures, text: str, complaint: str) -> None:
    with pytest.raises(BadExpectation) as caught:
        failures(text)
    assert complaint in caught.value.message
    assert "x.toml" in caught.value.message
