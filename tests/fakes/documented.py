"""What pages of the documentation give and name: commands, and names of the code."""

import ast
import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def commands_under(page: str, heading: str) -> list[list[str]]:
    """The words of each command in the first block of shell commands under a heading."""
    block = re.search(r"```sh\n(.*?)```", _section(page, heading), re.DOTALL)
    assert block, f"{page} has no commands under {heading}"
    return [shlex.split(line) for line in block.group(1).splitlines()]


def commands_typed_under(page: str, heading: str) -> list[list[str]]:
    """The words of each command in the transcripts under a heading."""
    found = re.findall(r"^\$ (.*)$", _section(page, heading), re.MULTILINE)
    assert found, f"{page} has no transcript under {heading}"
    return [shlex.split(line) for line in found]


def _section(page: str, heading: str) -> str:
    return (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def names_defined_in(path: Path) -> set[str]:
    """The classes, functions and variables at the top of a module, and the members of its classes as CLASS.MEMBER."""
    return _names_in(ast.parse(path.read_text(encoding="utf-8")).body)


def _names_in(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member}" for member in _names_in(node.body)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
