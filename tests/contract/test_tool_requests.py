"""Every builder of a question to policy fills every attribute of its context, or is listed with what it omits.

The schema has many attributes as optional. So a rule about one that a builder forgets never matches there, silently.
"""

import ast
import importlib
import inspect
import re
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
    # A file that a browser call reads or writes: the file tool itself would act in no browser session.
    ("tool_request", "executors/browser/policy_questions.py"): {"approved", "hosts", "skill", "browser_session"},
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


# Each function that makes a ``PolicyRequest``: an action that it asks about, and attributes that it cannot know.
QUESTIONS: dict[tuple[str, str], tuple[str, set[str]]] = {
    ("policy/request.py", "tool_request"): ("tool.execute", set()),
    ("pipeline/authorize.py", "build_skill_request"): ("skill.execute", set()),
    ("pipeline/authorize.py", "build_device_request"): ("node.invoke", set()),
    ("pipeline/authorize.py", "build_worker_request"): ("worker.lease", set()),
    ("egress/policy_judge.py", "connect_request"): ("egress.connect", set()),
    ("vault/access.py", "use_request"): ("vault.use", set()),
    # What the other ``browser.*`` actions have beyond this one comes from the callers of ``_question``.
    ("executors/browser/policy_questions.py", "_question"): ("browser.evaluate", set()),
    # A person's own action. The caller adds what approval.decide and device.pair have beyond it.
    ("server/context.py", "_decide"): ("status.read", set()),
    # An expectation of an operator, which sets other attributes under ``context``.
    ("policy/dry_run.py", "request_of"): ("status.read", set()),
}
# It restores a question as it was recorded.
RESTORED = ("policy/request.py", "policy_request_from_json")
SCHEMA = (SOURCE / "policy" / "defaults" / "palyra.cedarschema").read_text(encoding="utf-8")


def attributes_of(action: str) -> set[str]:
    """Return the attributes of an action's context, as the schema declares them."""
    found = re.search(rf'^action [^{{]*"{re.escape(action)}".*?context: \{{(.*?)\}}', SCHEMA, re.MULTILINE | re.DOTALL)
    assert found is not None, action
    return set(re.findall(r"^ +(\w+)\??:", found[1], re.MULTILINE))


def makers() -> Iterator[tuple[tuple[str, str], set[str]]]:
    """Yield each function that makes a question, with the keys of the dictionaries in it."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "PolicyRequest(" not in text:
            continue
        place = path.relative_to(SOURCE)
        module = importlib.import_module(".".join(("palyra", *place.with_suffix("").parts)))
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                map(makes_request, ast.walk(function))
            ):
                keys = {resolve(key, module) for node in ast.walk(function) for key in keys_in(node)}
                yield (str(place), function.name), keys


def makes_request(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PolicyRequest"


def keys_in(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield node.slice


def resolve(key: ast.expr, module: object) -> str:
    return str(key.value) if isinstance(key, ast.Constant) else str(getattr(module, ast.unparse(key), ""))


MAKERS = [made for made in makers() if made[0] != RESTORED]


@pytest.mark.parametrize(("maker", "filled"), MAKERS, ids=[" ".join(maker) for maker, _ in MAKERS])
def test_a_question_has_every_attribute_of_its_action(maker: tuple[str, str], filled: set[str]) -> None:
    assert maker in QUESTIONS, "a new maker of questions: say which action it asks about"
    action, omitted = QUESTIONS[maker]
    assert attributes_of(action) - filled == omitted


def test_no_maker_of_questions_is_listed_that_is_gone() -> None:
    assert {maker for maker, _ in MAKERS} == QUESTIONS.keys()
