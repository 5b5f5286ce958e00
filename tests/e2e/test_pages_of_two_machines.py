"""The pages add-a-device.md and give-a-worker-the-network.md, followed by somebody who has two machines."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.node_process import DEVICE_SETTINGS, NodeProcess
from fakes.page_reader import DOCS, blocks_of

PROGRAMS = Path(sys.executable).parent
EGRESSD = (str(PROGRAMS / "palyra-egressd"),)


class Egressd:
    """The proxy's program, which tells what it does on its standard output."""

    def __init__(self, place: Place, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [*EGRESSD, *words], env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


class Follower:
    """Types the page's commands in its order, each at the machine it is for, with the words filled in that differ."""

    def __init__(self, page: str, tmp_path: Path, settings: str, device_settings: str = "") -> None:
        self.lines = [
            line for block in blocks_of(DOCS / page) if block.language == "sh" for line in block.text.splitlines()
        ]
        self.home, self.machine = Place(tmp_path / "home", settings), Place(tmp_path / "machine", device_settings)
        self.words = {
            "/var/lib/palyra-egress": str(tmp_path / "egress"),
            "/etc/palyra/egress.toml": str(tmp_path / "egress.toml"),
            "/run/palyra-egress": str(tmp_path),
        }

    def next(self, beginning: str) -> list[str]:
        """The words of the page's next command, which begins as told."""
        line = self.lines.pop(0)
        assert line.startswith(beginning), line
        for old, new in self.words.items():
            line = line.replace(old, new)
        return shlex.split(line)

    def types(self, beginning: str) -> str:
        words = self.next(beginning)
        place = self.machine if words[0] == "palyra-egressd" else self.home
        done = subprocess.run(
            [str(PROGRAMS / words[0]), *words[1:]],
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def learns(self, name: str, pattern: str, text: str) -> None:
        found = re.search(pattern, text)
        assert found is not None, (name, text)
        self.words[name] = found[1]

    def begins(self) -> Egressd:
        return Egressd(self.machine, self.next("palyra-egressd --state-dir")[1:])

    def makes_a_code(self, beginning: str) -> None:
        made = self.types(beginning)
        self.learns("CODE", r"(\d{3}-\d{4}-\d{4})", made)
        self.learns("SERVER", r"--server (\S+)", made)


@pytest.mark.promise("P-documented")
@pytest.mark.timeout(240)
def test_a_device_is_paired_used_and_let_go(tmp_path: Path) -> None:
    page = Follower("how-to/add-a-device.md", tmp_path, '[tools]\npreapproved = ["node.invoke"]\n', DEVICE_SETTINGS)
    with page.home.daemon():
        page.makes_a_code("palyra pair code")
        device = NodeProcess(page.machine, *page.next("palyra node run")[3:])
        try:
            page.words["DIGITS"] = device.comparison_code
            page.learns("REQUEST", rf"(0\w{{25}}) .*{device.comparison_code}", page.types("palyra pair list"))
            page.types("palyra pair approve")
            eventually_sync(lambda: "online" in page.home.palyra("node", "list").stdout, seconds=60)
            assert "bench" in page.types("palyra node list")
            assert "system.health" in page.types("palyra node show")
            assert "uptime" in page.types("palyra node invoke")
            assert "hi" in page.types("palyra call node.invoke")
            page.types("palyra node revoke")
            eventually_sync(lambda: device.process.poll() is not None, seconds=60)
        finally:
            device.stop()
    assert page.lines == []


@pytest.mark.timeout(240)
def test_a_proxy_is_paired_and_runs(tmp_path: Path) -> None:
    page = Follower("how-to/give-a-worker-the-network.md", tmp_path, "")
    (policy, *_) = [block.text for block in blocks_of(DOCS / "how-to/give-a-worker-the-network.md")]
    (tmp_path / "egress.toml").write_text(policy)
    with page.home.daemon():
        assert re.search(r"[0-9a-f]{64}", page.types("palyra-egressd digest"))
        page.makes_a_code("palyra pair code --kind egress")
        joining = page.begins()
        try:
            page.learns("DIGITS", r"shows the code (\d{6})", joining.line())
            listed = page.home.palyra("pair", "list").stdout
            page.learns("REQUEST", rf"(0\w{{25}}) .*{page.words['DIGITS']}", listed)
            approved = page.home.palyra("pair", "approve", page.words["REQUEST"], "--compare", page.words["DIGITS"])
            assert approved.status == 0, approved.stderr
            assert joining.process.wait(60) == 0
        finally:
            joining.stop()
        running = page.begins()
        try:
            assert "egress.sock" in running.line()
        finally:
            running.stop()
    assert page.lines == []
