import subprocess
import sys
from pathlib import Path

import palyra
from palyra.sandbox import launch_wire

ROOT = str(Path(palyra.__file__).parents[1])


def test_packets_of_different_kinds_cannot_be_confused() -> None:
    tags = [value for name, value in vars(launch_wire).items() if name.endswith("_TAG")]
    assert len(set(tags)) == len(tags)
    numbers = launch_wire.DONE.unpack(bytes(launch_wire.DONE.size))[1:]
    # Its status before, orphans and survivors behind.
    assert len(numbers) == launch_wire.DONE_NUMBERS == 1 + launch_wire.USAGE_NUMBERS + 2
    assert max(launch_wire.RUSAGE_COUNTERS.values()) < launch_wire.USAGE_NUMBERS


def test_what_the_zygote_loads_is_the_standard_library_only() -> None:
    """It must start fast and fork small: one import of a package would cost every launch."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); import palyra.sandbox.keeper_main; "
        "print(sorted({n.partition('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code, ROOT], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['__main__', 'palyra']"
