"""Two networks of their own with one link between them, which a test can cut. Nothing else leads in or out."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NEAR_ADDRESS = "192.0.2.1"
FAR_ADDRESS = "192.0.2.2"
_HOLD = "import sys; print('ready', flush=True); sys.stdin.read()"


class Network:
    """A network namespace, kept by a process that does nothing."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.through = ("nsenter", "-t", str(self.process.pid), "-n")

    def run(self, *words: str) -> None:
        done = subprocess.run([*self.through, *words], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class TwoNetworks:
    def __init__(self) -> None:
        self.near, self.far = Network(), Network()
        try:
            for network in (self.near, self.far):
                network.run("ip", "link", "set", "lo", "up")
            far = str(self.far.process.pid)
            self.near.run("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", far)
            self.near.run("ip", "address", "add", f"{NEAR_ADDRESS}/30", "dev", "wire")
            self.far.run("ip", "address", "add", f"{FAR_ADDRESS}/30", "dev", "wire")
            self.mend()
        except BaseException:
            self.close()
            raise

    def mend(self) -> None:
        for network in (self.near, self.far):
            network.run("ip", "link", "set", "wire", "up")

    def cut(self) -> None:
        self.near.run("ip", "link", "set", "wire", "down")

    def close(self) -> None:
        self.near.close()
        self.far.close()


@contextmanager
def two_networks() -> Iterator[TwoNetworks]:
    networks = TwoNetworks()
    try:
        yield networks
    finally:
        networks.close()
