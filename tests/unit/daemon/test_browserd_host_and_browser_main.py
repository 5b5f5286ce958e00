"""``palyra-browserd`` as a program: one per state directory, up when it says so, and ended in order."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from palyra.browser.service.access import SOCKET_FOLDER, SOCKET_NAME

WORDS = (sys.executable, "-m", "palyra.cli.browserd", "--json")


def test_it_is_up_when_it_says_so_alone_and_ends_with_its_input(tmp_path: Path) -> None:
    words = [*WORDS, "--state-dir", str(tmp_path / "state"), "--until-input-ends"]
    daemon = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert daemon.stdin is not None and daemon.stdout is not None
    address = json.loads(daemon.stdout.readline())["data"]
    assert address["pid"] == daemon.pid and (tmp_path / "state" / SOCKET_FOLDER / SOCKET_NAME).is_socket()
    assert json.loads((tmp_path / "state" / "browser" / "daemon.json").read_text()) == address
    with urllib.request.urlopen(address["health"] + "/healthz", timeout=30) as answer:
        assert json.loads(answer.read())["status"] == "ok"
    second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert second.returncode == 6 and json.loads(second.stdout)["error"]["code"] == "browser.already_running"
    daemon.stdin.close()
    assert daemon.wait(60) == 0
    daemon.stdout.close()
    assert daemon.stderr is not None
    daemon.stderr.close()
    left = {path.name for path in (tmp_path / "state" / "browser").iterdir()}
    assert left == {"daemon.lock", "processes", "profiles", "run", "sessions", "state.key"}
    # Nobody opened a session: no browser was started ahead of need.
    assert not (tmp_path / "state" / "browser" / "used").exists()


def test_a_wrong_key_is_told_with_its_exit_code(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*WORDS, "--state-dir", str(tmp_path / "state")],
        env={**os.environ, "PALYRA_BROWSERD_STATE_ENCRYPTION_KEY": "c2hvcnQ="},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(answer.stdout)["error"]["code"] == "browser.profile_key_bad", answer.stdout
