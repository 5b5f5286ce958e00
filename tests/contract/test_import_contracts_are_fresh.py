"""The import rules are kept by lint-imports; this keeps the rules themselves up to date with the modules there are."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def test_every_module_is_core_adapter_or_outer() -> None:
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "write_import_contracts.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
