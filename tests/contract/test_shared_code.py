"""What tests share stands in tests/fakes: no test module is needed by another one."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = {"unit", "contract", "security", "e2e"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def is_of_tests(name: str) -> bool:
    parts = name.split(".")
    return not parts[0] or parts[0] in {*FOLDERS, "tests"} or any(part.startswith("test_") for part in parts[:-1])


def test_no_test_module_imports_another() -> None:
    found = [f"{path.relative_to(TESTS)}: {name}" for path in TESTS.rglob("*.py") for name in imported(path)]
    assert [each for each in found if is_of_tests(each.partition(": ")[2])] == []


def test_folders_of_tests_hold_nothing_else() -> None:
    found = [path for folder in FOLDERS for path in (TESTS / folder).rglob("*.py")]
    assert {path.name for path in found if not path.name.startswith("test_")} <= {"conftest.py"}


def sleeps(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    value = value.value if isinstance(value, ast.Await) else value
    return isinstance(value, ast.Call) and ast.unparse(value.func) in {"asyncio.sleep", "anyio.sleep", "time.sleep"}


def test_tests_wait_with_eventually() -> None:
    """A loop of one's own has no bound, or another one, and another pace."""
    own = [TESTS / "fakes" / "eventually.py", *(TESTS / "perf").glob("*.py"), *(TESTS / "soak").glob("*.py")]
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in sorted(set(TESTS.rglob("*.py")) - set(own))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.While) and len(node.body) == 1 and sleeps(node.body[0])
    ]
    assert found == []
