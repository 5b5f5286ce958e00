"""Starts a daemon in the folder given, then tries to read its memory as another program of the same user."""

import json
import os
import subprocess
import sys
from pathlib import Path

from fakes.eventually import eventually_sync
from fakes.started_warm import PALYRA


def attempt(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.read(1) if path.endswith("environ") else file.seek(0)
    except OSError as error:
        return type(error).__name__
    return "read"


def started_something(pid: int) -> bool:
    return any(task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())


def main() -> None:
    base = Path(sys.argv[1])
    environment = {**os.environ, "HOME": str(base), "PALYRA_STATE_DIR": str(base / "state")}
    environment["PALYRA_CONFIG"] = str(base / "config.toml")
    (base / "config.toml").write_text('[tools]\npreapproved = ["process.*"]\n')
    run = [*PALYRA, "call", "process.run", "--json", "--input"]
    with subprocess.Popen(
        [*run, '{"command": "sleep", "args": ["2"]}'], env=environment, stdout=subprocess.DEVNULL
    ) as alone:
        # Without a daemon the command line has the keys. It has opened them when its sandbox starts.
        eventually_sync(lambda: started_something(alone.pid))
        embedded = attempt(f"/proc/{alone.pid}/mem")
    command = [*PALYRA, "up", "--port", "0", "--json", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            started = json.loads(daemon.stdout.readline())
            assert started["ok"], started
            call = subprocess.run(
                [*run, '{"command": "true"}'],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            found = {name: attempt(f"/proc/{daemon.pid}/{name}") for name in ("mem", "environ", "auxv")}
            own = attempt("/proc/self/mem")
            print(json.dumps({"found": found, "embedded": embedded, "own": own, "call": json.loads(call.stdout)["ok"]}))
        finally:
            daemon.terminate()


if __name__ == "__main__":
    main()
