"""Runs this tree's programs as an ordinary user when the tests themselves run as root.

The interpreter, the environment or the checkout may lie in a private home. Inside a mount namespace of its own every
such home is covered by an empty folder in which only the needed parts show, at their own paths.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

NOBODY = 65534
_DROP = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--inh-caps=-all")


def needed_paths() -> list[Path]:
    checkout = Path(__file__).resolve().parents[2]
    wanted = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), Path(sys.prefix), checkout}
    wanted |= {Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()}
    return sorted(path for path in wanted if not any(path != other and path.is_relative_to(other) for other in wanted))


def _private_ancestor(path: Path) -> Path | None:
    """The outermost folder on the way that other users cannot pass."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)


def as_ordinary_user(stage: Path) -> tuple[str, ...]:
    """The words to put before a command. ``stage`` is an empty folder of the test's."""
    if os.geteuid() != 0:
        return ()
    hidden: dict[Path, list[Path]] = {}
    for path in needed_paths():
        if (ancestor := _private_ancestor(path)) is not None:
            hidden.setdefault(ancestor, []).append(path)
    lines = ["mount --make-rprivate /"]
    for number, (ancestor, paths) in enumerate(sorted(hidden.items())):
        kept = stage / str(number)
        kept.mkdir()
        lines.append(f"mount --bind {_word(ancestor)} {_word(kept)}")
        lines.append(f"mount -t tmpfs -o mode=0755 tmpfs {_word(ancestor)}")
        for path in paths:
            lines.append(f"mkdir -p {_word(path)}")
            lines.append(f"mount --bind {_word(kept / path.relative_to(ancestor))} {_word(path)}")
        lines.append(f"umount {_word(kept)}")
    return ("unshare", "--mount", "sh", "-ec", "; ".join([*lines, 'exec "$@"']), "sh", *_DROP)


def run_as_ordinary_user(script: str, stage: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The script as a program of an ordinary user. Its first word is a folder of that user's, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="palyra-test-") as base:
        os.chmod(base, 0o755)
        if os.geteuid() == 0:
            os.chown(base, NOBODY, NOBODY)
        paths = (str(Path(__file__).parents[1]), *filter(None, sys.path))
        return subprocess.run(
            [*as_ordinary_user(stage), sys.executable, script, base, *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )


def _word(path: Path) -> str:
    return shlex.quote(str(path))
