"""``palyrad``: the daemon as a service manager starts it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from fakes.daemon import Place


def test_it_serves_until_it_is_told_to_stop_and_logs_to_stderr(tmp_path: Path) -> None:
    place = Place(tmp_path, "[daemon]\nport = 0\n")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "palyra.cli.commands.up", "--json", "--state-dir", str(tmp_path / "elsewhere")],
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    started = json.loads(daemon.stdout.readline())
    assert started["ok"] and started["data"]["state_dir"] == str(tmp_path / "elsewhere")
    daemon.send_signal(signal.SIGTERM)
    out, err = daemon.communicate(timeout=30)
    assert daemon.returncode == 0 and out == ""
    assert started["data"]["token"] not in err


def test_a_bad_setting_is_told_with_its_exit_code(tmp_path: Path) -> None:
    place = Place(tmp_path, '[daemon]\nhost = "0.0.0.0"\nport = 0\n')
    refused = subprocess.run(
        [sys.executable, "-m", "palyra.cli.commands.up", "--json"],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"]["code"] == "daemon.insecure_bind"
