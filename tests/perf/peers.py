"""Where peers are found. `scripts/bench_peers.sh` fetches them; what it could not fetch is missing here, and a row says
so."""

import os
import shutil
from pathlib import Path

import platformdirs

HOME = platformdirs.user_cache_path("palyra-bench")


def from_debian(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")


def from_pypi(package: str, program: str) -> str | None:
    """A program of the environment that the package has to itself."""
    return _there(HOME / package / "bin" / program)


def from_npm(folder: str, program: str) -> str | None:
    return _there(HOME / folder / "node_modules" / ".bin" / program)


def _there(path: Path) -> str | None:
    return str(path) if path.exists() else None
