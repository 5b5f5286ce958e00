"""Runs command lines in this process, against the tiny API or against a real embedded one."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fakes.tiny_api import TOKEN, TinyApi
from palyra.cli.main import run
from palyra.client.client import Client


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    def __init__(self, state_dir: Path, config: Path) -> None:
        self.state_dir = state_dir
        self._options = ("--state-dir", str(state_dir), "--config", str(config))

    def __call__(self, *words: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = run([*self._options, *words])
        return Ended(status, out.getvalue(), err.getvalue())


def command_line_in(directory: Path) -> CommandLine:
    config = directory / "config.toml"
    config.write_text("")
    return CommandLine(directory / "state", config)


def use_tiny_api(monkeypatch: pytest.MonkeyPatch) -> TinyApi:
    api = TinyApi()

    monkeypatch.setattr("palyra.cli.invocation.running_daemon", lambda _: Client.in_process(api.app, token=TOKEN))
    return api
