"""What a command costs before it does anything, and what the embedded stack weighs while nothing happens."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fakes.daemon import PALYRA, Place
from perf.measure import alternately, row

SAMPLES = 40
MIB = 1024 * 1024
MOST_IDLE_MIB = 200


def run() -> list[dict[str, Any]]:
    plain = [sys.executable, "-c", "pass"]
    ours, theirs = alternately(
        lambda: subprocess.run([*PALYRA, "--help"], check=True, stdout=subprocess.DEVNULL),
        lambda: subprocess.run(plain, check=True),
        SAMPLES,
    )
    started = row("palyra --help", "ms", ours, "python -c pass", theirs, "within 4x")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), "[browser]\nenabled = false\n")
        with place.daemon() as daemon:
            daemon.client().call("echo", {"text": "x"})
            weight = sum(_proportional_bytes(pid) for pid in _tree(daemon.process.pid)) / MIB
    idle = {
        "name": "idle embedded stack without Chromium",
        "unit": "MiB",
        "ours_p50": weight,
        "ours_p99": None,
        "peer": "-",
        "peer_p50": None,
        "peer_p99": None,
        "ratio": None,
        "samples": 1,
        "bar": f"below {MOST_IDLE_MIB} MiB",
    }
    return [started, idle]


def _tree(pid: int) -> list[int]:
    """The process and all that it started."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [pid, *(each for child in children for each in _tree(child))]


def _proportional_bytes(pid: int) -> int:
    """Memory that several processes share counts for each in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
