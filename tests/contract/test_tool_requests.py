"""Every builder of a question about a tool fills every attribute of its context, or is listed with what it omits.

The schema has those attributes as optional. So a rule about one that a builder forgets never matches there, silently.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.pipeline.domain.call import ToolRequestContext
from palyra.policy.request import tool_request

SOURCE = Path(__file__).resolve().parents[2] / "src" / "palyra"
# A question without a call has no session, device or browser session.
NO_CALL = {"session", "device", "browser_session"}
OMITTED = {
    # The pipeline: no person has approved yet.
    ("tool_request", "pipeline/domain/call.py"): {"approved"},
    ("ToolRequestContext", "pipeline/authorize.py"): set(),
    # Which tools to list, for a caller that makes no call yet.
    ("ToolRequestContext", "server/mcp/backend.py"): {"session", "device"},
    # A file that a browser call reads or writes, for a requester of whom only ``Asker`` is known.
    ("tool_request", "executors/browser/policy_questions.py"): {"approved", "hosts", "skill", *NO_CALL},
    # Questions of an operator about calls that nobody makes. The command knows no skills.
    ("tool_request", "server/console/pages/policy.py"): NO_CALL,
    ("tool_request", "cli/commands/policy.py"): {"skill", *NO_CALL},
    # Expectations have no arguments. They set other attributes under ``context``.
    ("tool_request", "policy/dry_run.py"): {"paths", "hosts", "skill", *NO_CALL},
}
PARAMETERS = {
    "tool_request": {
        name for name, each in inspect.signature(tool_request).parameters.items() if each.kind is each.KEYWORD_ONLY
    },
    "ToolRequestContext": set(ToolRequestContext.__struct_fields__),
}


def builders() -> Iterator[tuple[tuple[str, str], set[str]]]:
    """Yield each call of a builder by its function and file, with the keywords that it passes."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(f"{name}(" in text for name in PARAMETERS):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PARAMETERS:
                    yield (node.func.id, str(path.relative_to(SOURCE))), {str(each.arg) for each in node.keywords}


BUILDERS = list(builders())


@pytest.mark.parametrize(("builder", "passed"), BUILDERS, ids=[" ".join(builder) for builder, _ in BUILDERS])
def test_a_builder_fills_every_attribute_that_it_is_not_listed_to_omit(
    builder: tuple[str, str], passed: set[str]
) -> None:
    assert PARAMETERS[builder[0]] - passed == OMITTED.get(builder, set())


def test_no_builder_is_listed_that_is_gone() -> None:
    assert {builder for builder, _ in BUILDERS} == OMITTED.keys()
