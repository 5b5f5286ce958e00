"""Projects of skills for tests: new ones from templates, built with compilers that all tests of a machine share."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from palyra.cli.main import run


class Author:
    """The command line in a project's folder, with a state directory of its own."""

    def __init__(self, root: Path, settings: str = "") -> None:
        self.root = root
        self.config = root / "config.toml"
        self.config.write_text(settings)

    def run(self, *words: str) -> tuple[int, Any]:
        """The exit code and the JSON document. Notes on stderr are in ``notes``."""
        out, err = io.StringIO(), io.StringIO()
        options = ("--state-dir", str(self.root / "state"), "--config", str(self.config))
        with redirect_stdout(out), redirect_stderr(err):
            status = run([*options, *words, "--json"])
        self.notes = err.getvalue()
        return status, json.loads(out.getvalue())

    def data(self, *words: str) -> Any:
        status, document = self.run(*words)
        assert status == 0, document
        return document["data"]

    def error(self, *words: str) -> Any:
        status, document = self.run(*words)
        assert status != 0, document
        return document["error"]

    def new(self, name: str, language: str) -> Path:
        folder = self.root / name
        self.data("skill", "new", name, "--lang", str(language), "--dir", str(folder))
        return folder


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
