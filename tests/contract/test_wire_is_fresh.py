"""The generated messages are those of proto/."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def test_the_wire_modules_are_as_generated() -> None:
    done = subprocess.run(
        [sys.executable, TOP / "scripts" / "generate_wire.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
