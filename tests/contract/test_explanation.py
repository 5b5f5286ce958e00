"""docs/explanation: the attacks of the threat model exist, every dependency has its reason, modules are there."""

import ast
import importlib
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPLANATION = ROOT / "docs" / "explanation"
CLASSES = [
    "Files",
    "Kernel",
    "Resources",
    "Interpreters and environment",
    "Egress",
    "WASM",
    "Skills",
    "Identity",
    "Workers",
    "Approvals and budgets",
    "Policy",
    "Journal",
    "Browser",
    "Console and API",
]
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| attack"))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.promise("P-documented")
def test_every_class_of_threats_names_tests_that_attack_it() -> None:
    text = (EXPLANATION / "threat-model.md").read_text(encoding="utf-8")
    sections = dict(part.partition("\n")[::2] for part in re.split(r"^#{2,3} ", text, flags=re.MULTILINE))
    for name in CLASSES:
        attacks = rows(sections[name])
        assert len(attacks) > 1, name
        for attack in attacks:
            named = NAMED_TEST.findall(attack[-1])
            assert named, attack
            for path, function in named:
                assert function in functions_of(path), f"{path} has no {function}"


def test_every_file_of_attacks_has_its_class() -> None:
    """A new file of attacks is entered in the threat model, or belongs to one that is there."""
    text = (EXPLANATION / "threat-model.md").read_text(encoding="utf-8")
    named = {path for path, _ in NAMED_TEST.findall(text)}
    others = {f"tests/security/{path.name}" for path in (ROOT / "tests/security").glob("test_*.py")} - named
    listed = set(re.findall(r"`(tests/security/test_\w+\.py)`", text.partition("### More attacks")[2]))
    assert others == listed


@pytest.mark.promise("P-documented")
def test_every_dependency_has_its_reason_and_nothing_else_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "What runs": project["dependencies"],
        "Extras": [each for name, list_ in extras.items() if name != "dev" for each in list_],
        "What tests and builds need": extras["dev"],
    }
    text = (EXPLANATION / "dependencies.md").read_text(encoding="utf-8")
    sections = dict(part.partition("\n")[::2] for part in re.split(r"^## ", text, flags=re.MULTILINE))
    for section, requirements in wanted.items():
        listed = re.findall(r"^\| `([^`]+)` \| \S", sections[section], re.MULTILINE)
        assert listed == sorted(re.match(r"[\w-]+", each)[0] for each in requirements), section  # type: ignore[index]


def test_what_the_architecture_names_is_there() -> None:
    text = (EXPLANATION / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(palyra\.[\w.]+)`", text))
    assert len(names) > 30
    for name in names:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            try:
                value = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[length:]:
                value = getattr(value, attribute)
            break
    folders = {path.parent.name for path in (ROOT / "src/palyra").glob("*/__init__.py")} - {"wire"}
    listed = set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
    assert listed == folders
