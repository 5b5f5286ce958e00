"""Where peers are found. `scripts/bench_peers.sh` fetches them; what it could not fetch is missing here, and a row says
so. Those in Python count only where they run on the very Python that we run on: version, build and place."""

import os
import shutil
import sys
from pathlib import Path

import platformdirs

HOME = platformdirs.user_cache_path("palyra-bench")


def runs_on() -> str:
    """The Python of this process, as it is noted in the environments that were made with it."""
    return " ".join(f"{sys.version} in {sys.base_prefix}".split())


def from_debian(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")


def from_pypi(package: str, program: str) -> str | None:
    """A program of the environment that the package has to itself."""
    noted = _there(HOME / package / "installed")
    if noted is None or Path(noted).read_text().strip() != runs_on():
        return None
    return _there(HOME / package / "bin" / program)


def from_npm(folder: str, program: str) -> str | None:
    return _there(HOME / folder / "node_modules" / ".bin" / program)


def _there(path: Path) -> str | None:
    return str(path) if path.exists() else None


if __name__ == "__main__":
    sys.stdout.write(runs_on() + "\n")
