"""Runs command lines in this process, against the tiny API or against a real embedded one."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fakes.tiny_api import TOKEN, TinyApi
from palyra.cli.invocation import Invocation
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


def put_tiny_api_behind_the_door(monkeypatch: pytest.MonkeyPatch) -> TinyApi:
    api = TinyApi()

    @contextmanager
    def open_client(_invocation: Invocation) -> Iterator[Client]:
        with Client.in_process(api.app, token=TOKEN) as client:
            yield client

    monkeypatch.setattr("palyra.cli.invocation.open_client", open_client)
    return api
