import subprocess
import sys
from pathlib import Path

import palyra
from palyra.sandbox.launch.supervisor import wire

ROOT = str(Path(palyra.__file__).parents[1])


def test_packets_of_different_kinds_cannot_be_confused() -> None:
    tags = [value for name, value in vars(wire).items() if name.endswith("_TAG")]
    assert len(set(tags)) == len(tags)


def test_what_the_zygote_loads_is_the_standard_library_only() -> None:
    """It must start fast and fork small: one import of a package would cost every launch."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); import palyra.sandbox.launch.supervisor.supervisor_main; "
        "print(sorted({n.partition('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code, ROOT], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['__main__', 'palyra']"
