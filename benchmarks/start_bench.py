"""The time of a command that does nothing, and the memory of the idle embedded stack."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import bars
from benchmarks.bar import Row
from benchmarks.measure import alternately, row
from palyra.client.client import Client

SAMPLES = 60
WEIGHED = 3
MIB = 1024 * 1024


def run() -> list[Row]:
    plain = [sys.executable, "-c", "pass"]
    program = _program()
    ours, theirs = alternately(
        lambda: subprocess.run([*program, "--help"], check=True, stdout=subprocess.DEVNULL),
        lambda: subprocess.run(plain, check=True),
        SAMPLES,
    )
    weights = sorted(_weight() for _ in range(WEIGHED))
    return [
        row("palyra --help", "ms", ours, "python -c pass", theirs, bars.CLI_START),
        {
            "name": "idle embedded stack without Chromium",
            "unit": "MiB",
            "ours_p50": weights[WEIGHED // 2],
            "ours_p99": weights[-1],
            "peer": "-",
            "peer_p50": None,
            "peer_p99": None,
            "ratio": None,
            "samples": WEIGHED,
            "bar": bars.STACK_MEMORY,
        },
    ]


def _program() -> list[str]:
    """Return the command as people call it, if it is installed beside this Python."""
    script = Path(sys.executable).with_name("palyra")
    return [str(script)] if script.exists() else [sys.executable, "-m", "palyra.cli.main"]


def _weight() -> float:
    """MiB of the daemon and all that it started, after its first call."""
    with tempfile.TemporaryDirectory() as folder, _stack(Path(folder)) as (pid, client):
        client.call("echo", {"text": "x"})
        return sum(_proportional_bytes(each) for each in _tree(pid)) / MIB


@contextlib.contextmanager
def _stack(folder: Path) -> Iterator[tuple[int, Client]]:
    settings = folder / "config.toml"
    settings.write_text("[browser]\nenabled = false\n")
    environment = {**os.environ, "PALYRA_CONFIG": str(settings), "PALYRA_STATE_DIR": str(folder / "state")}
    words = [sys.executable, "-m", "palyra.cli.main", "up", "--port", "0", "--json", "--no-browser"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())["data"]
            with Client(base_url=started["url"], token=started["token"]) as client:
                yield process.pid, client
        finally:
            process.terminate()


def _tree(pid: int) -> list[int]:
    """Return the process and all that it started."""
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
