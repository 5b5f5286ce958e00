"""A host on a network of its own: a network namespace with one link to this machine, and servers in it.

Everything a test sends goes to addresses of this link, which exist only while the host does. What reaches the servers
is written down, so that a test can tell "refused by us" from "never arrived".
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.certificates import make_certificate

# Each test process has links of its own: the second and third byte of its addresses come from its process id.
_LINKS = iter(range(0, 256, 4))
FORBIDDEN_PORT = 8081
DATABASE_PORT = 5432
SSH_PORT = 22


class ServedHost:
    """``name`` resolves to ``address`` only where a test's settings say so."""

    def __init__(self, base: Path, name: str, *, other_names: tuple[str, ...] = ()) -> None:
        self.name = name
        self.base = base
        base.mkdir(parents=True, exist_ok=True)
        process = os.getpid()
        network = f"10.{64 + process // 256 % 128}.{process % 256}"
        link = next(_LINKS)
        self.gateway, self.address = f"{network}.{link + 1}", f"{network}.{link + 2}"
        self.address6 = f"fd99:{process % 65536:x}:{link:x}::2"
        self._near, self._far = f"pn{process}x{link}", f"pf{process}x{link}"
        self.authority = base / "authority.pem"
        make_certificate(base, (name, *other_names), self.address)
        self._repository()
        self._ssh_keys()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fakes.served_host_main", str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        try:
            assert self._said() == {"ready": "namespace"}
            self._link()
            self._tell({"address": self.address, "address6": self.address6})
            assert self._said() == {"ready": "servers"}
        except BaseException:
            self.close()
            raise

    def _repository(self) -> None:
        """A repository that plain file serving is enough for, and that the ssh server serves too."""
        work, bare = self.base / "work", self.base / "www" / "repo.git"
        bare.parent.mkdir()
        _git("init", "-q", "-b", "main", str(work))
        (work / "README").write_text("from the served host\n")
        _git("-C", str(work), "add", "README")
        _git("-C", str(work), "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "first")
        _git("clone", "-q", "--bare", str(work), str(bare))
        _git("-C", str(bare), "update-server-info")

    def _ssh_keys(self) -> None:
        for name in ("host_key", "client_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.base / name)], check=True, timeout=30
            )

    def _link(self) -> None:
        there = ("nsenter", "-t", str(self.process.pid), "-n")
        _run("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", str(self.process.pid))
        _run("ip", "address", "add", f"{self.gateway}/30", "dev", self._near)
        _run("ip", "-6", "address", "add", self.address6.replace("::2", "::1") + "/64", "dev", self._near, "nodad")
        _run("ip", "link", "set", self._near, "up")
        _run(*there, "ip", "address", "add", f"{self.address}/30", "dev", self._far)
        _run(*there, "ip", "-6", "address", "add", f"{self.address6}/64", "dev", self._far, "nodad")
        _run(*there, "ip", "link", "set", self._far, "up")
        _run(*there, "ip", "link", "set", "lo", "up")
        # Nothing of ours may ever leave by another way.
        route = subprocess.run(["ip", "route", "get", self.address], capture_output=True, text=True, check=True).stdout
        assert f"dev {self._near}" in route, route

    def _said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        said: dict[str, Any] = json.loads(line or "{}")
        return said

    def _tell(self, message: dict[str, str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def arrived(self) -> list[dict[str, Any]]:
        """What reached the servers: one entry per connection or request."""
        log = self.base / "arrived.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def close(self) -> None:
        # The link goes with the namespace, and the namespace with its only process.
        self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def served_host(base: Path, name: str, *, other_names: tuple[str, ...] = ()) -> Iterator[ServedHost]:
    host = ServedHost(base, name, other_names=other_names)
    try:
        yield host
    finally:
        host.close()


def _git(*words: str) -> None:
    kept = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], check=True, capture_output=True, env=kept, timeout=30)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
