"""docs/explanation/one-call.md shows the way that a real call takes today."""

import ast
import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "trace_one_call.py"
PAGE = ROOT / "docs" / "explanation" / "one-call.md"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_one_call", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_traced_call_takes_the_way_of_the_page() -> None:
    """Cure: ``python scripts/trace_one_call.py``, and read what changed."""
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_way_stays_short() -> None:
    """A newcomer reads the way. Longer than this nobody does. Three of the crossings read what an approval binds.

    Two more redact and seal the arguments that are kept, between intake and authorization.
    """
    script = load_script()
    page = script.read_page(PAGE.read_text(encoding="utf-8"))
    roots = {name for name in page.modules if name.count(".") == 1}
    assert len(page.modules - roots) <= 80
    assert len(page.packages) - 1 <= 21
    assert max(Counter(page.packages).values()) <= 4
    broker = ROOT / "src" / "palyra" / "pipeline" / "broker.py"
    assert len(broker.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_check_sees_a_module_and_an_order_that_differ() -> None:
    script = load_script()
    text = PAGE.read_text(encoding="utf-8")
    page = script.read_page(text)
    assert script.differences(page, page) == []
    assert len(page.packages) > 10 and page.helpers and page.modules > {"palyra.errors"}
    other = page._replace(modules=page.modules - {"palyra.errors"}, packages=page.packages[::-1], helpers=set())
    assert len(script.differences(page, other)) == 3
    # Another kind of machine builds the sandbox another way; elsewhere the way is the same.
    elsewhere = page._replace(
        machine="riscv64", modules={name for name in page.modules if ".sandbox." not in name}, packages=[]
    )
    assert script.differences(page, elsewhere) == []
    outside = elsewhere._replace(modules=elsewhere.modules - {"palyra.errors"})
    assert script.differences(page, outside) == ["no longer touched: palyra.errors"]


def test_every_function_of_the_page_exists() -> None:
    script = load_script()
    page = script.read_page(PAGE.read_text(encoding="utf-8"))
    for module, functions in page.functions.items():
        path = ROOT / "src" / Path(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        missing = set(functions) - defined_in(ast.parse(path.read_text(encoding="utf-8")))
        assert not missing, (module, missing)


def defined_in(node: ast.AST, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found |= defined_in(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + child.name)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            found |= defined_in(child, prefix)
    return found
