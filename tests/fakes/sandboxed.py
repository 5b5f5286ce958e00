"""``palyra run`` in a workspace of its own, and programs to run in it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fakes.daemon import PALYRA, Place
from fakes.started_warm import run_palyra

SHOW_ARGUMENTS = r"""
#include <stdio.h>
/* Prints its arguments as a JSON list of hexadecimal strings: no byte is lost and none is interpreted. */
int main(int count, char **words) {
    putchar('[');
    for (int at = 0; at < count; at++) {
        printf(at ? ",\"" : "\"");
        for (unsigned char *byte = (unsigned char *)words[at]; *byte; byte++) printf("%02x", *byte);
        putchar('"');
    }
    puts("]");
    return 0;
}
"""


class Ended:
    """How a run of ``palyra run`` ended, in bytes."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __repr__(self) -> str:
        return f"status {self.status}\n{self.out.decode(errors='replace')}\n{self.err.decode(errors='replace')}"

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def data(self) -> dict[str, Any]:
        assert self.document["ok"], self
        data: dict[str, Any] = self.document["data"]
        return data

    @property
    def error(self) -> dict[str, Any]:
        assert not self.document["ok"], self
        error: dict[str, Any] = self.document["error"]
        return error


class Workshop:
    """A workspace, and a Palyra beside it that has never run before."""

    def __init__(self, base: Path, settings: str = "", *, palyra: Sequence[str] = PALYRA) -> None:
        self.place = Place(base / "home", settings)
        self.workspace = base / "workspace"
        self.workspace.mkdir()
        self._palyra = tuple(palyra)
        self._environment: Mapping[str, str] = self.place.environment

    def run(self, *words: str | bytes, stdin: bytes = b"", json: bool = False, check: bool = False) -> Ended:
        """``words`` are the options, ``--`` and the command."""
        command = self.command(*(("--json",) if json else ()), *words)
        done = Ended(run_palyra(command, cwd=self.workspace, env=self._environment, given=stdin, timeout=100))
        assert not check or done.status == 0, done
        return done

    def palyra(self, *words: str, stdin: bytes = b"") -> Ended:
        """Another command of the same Palyra."""
        return Ended(
            run_palyra([*self._palyra, *words], cwd=self.workspace, env=self._environment, given=stdin, timeout=100)
        )

    def free(self, *words: str | bytes, **options: Any) -> Ended:
        """An ordinary tool, with the one flag that people give."""
        return self.run("--allow-interpreters", "--timeout", "90", "--", *words, check=True, **options)

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            # Whoever runs the tests in the background has SIGINT ignored, and children inherit that.
            ["env", "--default-signal=INT", *self.command(*words)],
            cwd=self.workspace,
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def command(self, *words: str | bytes) -> list[str | bytes]:
        return [*self._palyra, "run", *words]

    def write(self, name: str, text: str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compiled(self, name: str, source: str) -> Path:
        """A native program in the workspace, made outside the sandbox."""
        path = self.workspace / name
        subprocess.run(
            ["gcc", "-O1", "-x", "c", "-o", path, "-"], input=source.encode(), check=True, capture_output=True
        )
        return path
