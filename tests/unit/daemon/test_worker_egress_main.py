"""`palyra-egressd` on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.daemon.egressd import read_policy
from palyra.fleet.egress.leases import BadEgressPolicy
from palyra.fleet.limits import MAX_POLICY_BYTES


def egressd(*words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "palyra.daemon.egressd", *words],
        capture_output=True,
        text=True,
        input=text,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src")},
    )


def test_the_digest_of_a_policy_is_printed_for_the_daemons_settings(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('allowed_hosts = ["a.example"]\n')
    done = egressd("digest", "--policy", str(policy))
    assert done.returncode == 0 and done.stdout.strip() == read_policy(policy).digest()


def test_what_is_wrong_is_said_with_its_code(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('allowed_hosts = ["*"]\n')
    done = egressd("digest", "--policy", str(policy))
    assert done.returncode == 2 and "worker_egress.bad_policy" in done.stderr
    policy.write_text("")
    done = egressd("--state-dir", str(tmp_path / "state"), "run", "--policy", str(policy))
    assert done.returncode == 6 and "nodes.not_paired" in done.stderr
    done = egressd("--state-dir", str(tmp_path / "state"), "join", "--code", "-", text="nonsense")
    assert done.returncode != 0 and "code:" in done.stderr and "nonsense" not in done.stderr


def test_status_and_help(tmp_path: Path) -> None:
    done = egressd("--state-dir", str(tmp_path / "state"), "status")
    assert json.loads(done.stdout) == {"paired": False, "running": False}
    assert "palyra-egressd" in egressd("--help").stdout


@pytest.mark.promise("P-state-private")
def test_a_policy_that_the_workers_user_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "policy.toml").chmod(0o666)
    done = egressd("--state-dir", str(tmp_path / "state"), "run", "--policy", str(tmp_path / "policy.toml"))
    assert done.returncode == 3 and "config.writable_by_others" in done.stderr


@pytest.mark.parametrize("content", [b"\xff", b"not toml", b"#" * (MAX_POLICY_BYTES + 1)])
def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "policy.toml").write_bytes(content)
    with pytest.raises(BadEgressPolicy):
        read_policy(tmp_path / "policy.toml")
    with pytest.raises(BadEgressPolicy):
        read_policy(tmp_path / "none.toml")
