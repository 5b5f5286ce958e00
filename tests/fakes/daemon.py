"""A real daemon process on a state directory of its own, and the command line beside it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.started_warm import PALYRA as PALYRA
from fakes.started_warm import run_palyra, start_palyra
from palyra.client.client import Client


class Answer:
    """How a command ended."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.status = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def data(self) -> Any:
        document = self.document
        assert document["ok"], (document, self.stderr)
        return document["data"]

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.document["error"]
        return error


class Place:
    """A home for one Palyra: settings file, state directory, policy directory."""

    def __init__(self, root: Path, settings: str = "") -> None:
        self.root = root
        self.state = root / "state"
        self.policies = root / "policies"
        self.policies.mkdir(parents=True, exist_ok=True)
        self.config = root / "config.toml"
        self.config.write_text(settings)
        # What every program of this place is started through: nothing, or what puts it into another network.
        self.through: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PALYRA_")}
        return {**kept, "PALYRA_CONFIG": str(self.config), "PALYRA_STATE_DIR": str(self.state), "NO_COLOR": "1"}

    def palyra(self, *arguments: str, stdin: str = "") -> Answer:
        return Answer(
            run_palyra([*self.through, *PALYRA, *arguments], env=self.environment, given=stdin, text=True, timeout=60)
        )

    @contextmanager
    def daemon(self, *, browser: bool = False) -> Iterator["Daemon"]:
        daemon = Daemon(self, browser=browser)
        try:
            yield daemon
        finally:
            daemon.stop()


class Daemon:
    """Without a browser daemon beside it unless asked for: few tests need one, and each has browsers that wait."""

    def __init__(self, place: Place, *, browser: bool = False) -> None:
        self.place = place
        self.process = start_palyra(
            [*place.through, *PALYRA, "up", "--port", "0", "--json", *([] if browser else ["--no-browser"])],
            env=place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line or not (started := json.loads(line))["ok"]:
            raise RuntimeError(f"the daemon did not start: {line} {self.process.stderr.read()}")
        self.url: str = started["data"]["url"]
        self.token: str = started["data"]["token"]

    def client(self, token: str | None = None) -> Client:
        return Client(base_url=self.url, token=token or self.token)

    def kill(self) -> None:
        """As a power cut would: no warning, no clean-up."""
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        status = self.process.wait(30)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status
