"""The vault from the command line, with a daemon and without one: kept, rotated under load, killed in the middle."""

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.daemon import PALYRA, Answer, Place
from fakes.eventually import eventually_sync
from palyra.client.client import Client

MANY = 10_000
FILL = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fakes.vault_harness import VaultHarness, ref
from palyra.config.state_dir import StateDir
from palyra.journal.redaction import Redactor
from palyra.secret import Secret
from palyra.vault.key_file import KeyFile

async def fill(root, count):
    StateDir.open(root / "state")
    harness = VaultHarness(root)
    vault = harness.vault(KeyFile(root / "vault.key", root / "state"), learn=lambda _: None)
    await vault.put(ref("global/k0"), Secret("value 0"), actor="user:operator")
    for start in range(1, count, 1000):
        await asyncio.gather(
            *(vault.put(ref(f"global/k{n}"), Secret(f"value {n}"), actor="user:operator")
              for n in range(start, min(start + 1000, count)))
        )
    harness.close()

asyncio.run(fill(Path(sys.argv[1]), int(sys.argv[3])))
"""


def fill(place: Place, count: int) -> None:
    tests = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", FILL, str(place.root), str(tests), str(count)], check=True, timeout=100)


def permit_reveal(place: Place) -> None:
    (place.policies / "see.cedar").write_text(
        '@id("see") permit(principal in Group::"operators", action == Action::"vault.reveal", resource);\n'
    )


def revealed(client: Client, name: str, version: int | None = None) -> str:
    return client.reveal_secret(name, confirm=name, version=version).reveal()


@pytest.mark.parametrize("with_daemon", [True, False])
def test_put_list_rotate_delete(tmp_path: Path, with_daemon: bool) -> None:
    place = Place(tmp_path)
    daemon = None
    if with_daemon:
        daemon = place.daemon()
        daemon.__enter__()
    try:
        assert place.palyra("vault", "list", "--json").data["secrets"] == []
        assert not (tmp_path / "vault.key").exists()
        put = place.palyra("vault", "put", "global/github", "--json", stdin="first\n")
        assert (put.status, put.data["version"]) == (0, 1)
        (tmp_path / "value").write_text("line one\nline two\n")
        put = place.palyra("vault", "put", "global/github", "--file", str(tmp_path / "value"), "--json")
        assert put.data["version"] == 2
        assert (tmp_path / "vault.key").stat().st_mode & 0o777 == 0o600
        said = place.palyra("vault", "put", "principal:agent:bot/k", stdin="x")
        assert said.stdout == "principal:agent:bot/k version 1 is in force\n"
        listed = place.palyra("vault", "list", "--scope", "global", "--json").data
        assert [(one["ref"], one["version"]) for one in listed["secrets"]] == [("global/github", 2)]
        rotated = place.palyra("vault", "rotate", "--json").data
        assert (rotated["rewrapped"], rotated["key_source"]) == (3, "file")
        assert rotated["previous_key_id"] not in (tmp_path / "vault.key").read_text()
        gone = place.palyra("vault", "delete", "global/github", "--json")
        assert (gone.status, gone.data["ref"]) == (0, "global/github")
        again = place.palyra("vault", "delete", "global/github", "--json")
        assert (again.status, again.error["code"]) == (2, "vault.unknown_secret")
    finally:
        if daemon is not None:
            daemon.__exit__(None, None, None)
    verified = place.palyra("journal", "verify", "--json")
    assert verified.status == 0


def test_a_value_from_a_descriptor_and_what_is_no_value(tmp_path: Path) -> None:
    place = Place(tmp_path)
    reader, writer = os.pipe()
    os.write(writer, b"from a pipe\n")
    os.close(writer)
    done = subprocess.run(
        [*PALYRA, "vault", "put", "global/k", "--fd", str(reader), "--json"],
        env=place.environment, pass_fds=(reader,), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(reader)
    assert Answer(done).data["version"] == 1
    for arguments, status, code in (
        (("vault", "put", "global/k"), 2, "cli.value_missing"),
        (("vault", "put", "nonsense"), 2, "vault.invalid_ref"),
        (("vault", "put", "global/k", "--file", "/nowhere"), 2, "cli.source_unreadable"),
        (("vault", "reveal", "global/k"), 3, "cli.terminal_needed"),
        (("vault", "rotate", "--to", "environment"), 6, "vault.key_missing"),
    ):
        ended = subprocess.run(
            [*PALYRA, *arguments, "--json"],
            env=place.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
            start_new_session=True,
        )  # fmt: skip
        assert (ended.returncode, Answer(ended).error["code"]) == (status, code)


def at_terminal(place: Place, *arguments: str, types: str) -> str:
    """What a person sees who runs the command and types a line when asked."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*PALYRA, *arguments], dict(place.environment))
    said = b""
    try:
        while b": " not in said:
            said += os.read(terminal, 1024)
        os.write(terminal, types.encode() + b"\n")
        while chunk := os.read(terminal, 1024):
            said += chunk
    except OSError:
        pass
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return said.decode()


def test_a_secret_is_shown_to_a_person_whom_policy_lets_and_who_types_its_name(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.palyra("vault", "put", "global/k", stdin="the-value-itself\n")
    assert "action.denied" in at_terminal(place, "vault", "reveal", "global/k", types="global/k")
    permit_reveal(place)
    assert "vault.not_confirmed" in at_terminal(place, "vault", "reveal", "global/k", types="yes")
    shown = at_terminal(place, "vault", "reveal", "global/k", types="global/k")
    assert "the-value-itself" in shown
    used = place.palyra("journal", "tail", "--kind", "vault.secret_used", "--json")
    assert '"purpose": "reveal"' in used.stdout.replace('":"', '": "') and "the-value-itself" not in used.stdout


@pytest.mark.parametrize("source", ["passphrase", "environment"])
def test_other_places_of_the_key(tmp_path: Path, source: str) -> None:
    import base64

    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse battery staple\n")
    passphrase.chmod(0o600)
    place = Place(tmp_path, f'[vault]\nkey_source = "{source}"\npassphrase_file = "{passphrase}"\n')
    permit_reveal(place)
    keys = [base64.b64encode(os.urandom(32)).decode() for _ in range(2)]

    def palyra(variable: str, *arguments: str, stdin: str = "") -> Answer:
        done = subprocess.run(
            [*PALYRA, *arguments, "--json"],
            env={**place.environment, "PALYRA_VAULT_KEY": variable}, input=stdin, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        return Answer(done)

    assert palyra(keys[0], "vault", "put", "global/k", stdin="v").status == 0
    assert not (tmp_path / "vault.key").exists()
    passphrase.write_text("a quite new passphrase\ncorrect horse battery staple\n")
    rotated = palyra(f"{keys[1]},{keys[0]}", "vault", "rotate")
    assert (rotated.data["rewrapped"], rotated.data["key_source"]) == (1, source)
    passphrase.write_text("a quite new passphrase\n")
    assert palyra(keys[1], "vault", "put", "global/l", stdin="w").status == 0
    passphrase.write_text("correct horse battery staple\n")
    old = palyra(keys[0], "vault", "put", "global/m", stdin="x")
    assert (old.status, old.error["code"]) == (6, "vault.key_missing")


@pytest.mark.promise("P-vault-sealed")
def test_ten_thousand_secrets_are_rotated_while_they_are_used(tmp_path: Path) -> None:
    place = Place(tmp_path)
    permit_reveal(place)
    fill(place, MANY)
    with place.daemon() as daemon, daemon.client() as client:
        rotating = subprocess.Popen(
            [*PALYRA, "vault", "rotate", "--json"],
            env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        used = 0
        while rotating.poll() is None:
            number = used * 37 % MANY
            assert revealed(client, f"global/k{number}") == f"value {number}"
            used += 1
        out, err = rotating.communicate(timeout=60)
        report = json.loads(out)["data"]
        assert rotating.returncode == 0, err
        assert (report["rewrapped"], report["resumed"]) == (MANY, False) and used > 3
        for number in (0, 1, MANY // 2, MANY - 1):
            assert revealed(client, f"global/k{number}") == f"value {number}"
        assert report["previous_key_id"] not in (tmp_path / "vault.key").read_text()


@pytest.mark.promise("P-vault-sealed")
def test_killed_in_the_middle_of_a_rotation_it_goes_on_afterwards(tmp_path: Path) -> None:
    place = Place(tmp_path)
    permit_reveal(place)
    fill(place, 4_000)
    # The kill may come late; then the next one comes in another rotation.
    halves = next(found for found in (_kill_in_the_middle(place) for _ in range(10)) if found)
    assert len(halves) == 2
    with place.daemon() as daemon, daemon.client() as client:
        state = client.secrets().vault
        assert state["waiting"] == halves[state["rotating_from"]] and state["waiting"] < 4_000
        for number in (0, 1, 2_000, 3_999):
            assert revealed(client, f"global/k{number}") == f"value {number}"
        report = client.rotate_vault()
        assert report.resumed and report.rewrapped == state["waiting"]
        assert client.secrets().vault["rotating_from"] == ""
        assert revealed(client, "global/k3999") == "value 3999"
    assert place.palyra("journal", "verify", "--json").status == 0


def _kill_in_the_middle(place: Place) -> dict[str, int]:
    """How many versions each key has after the daemon was killed; nothing if the rotation had already ended."""
    with place.daemon() as daemon:
        rotating = subprocess.Popen(
            [*PALYRA, "vault", "rotate", "--json"],
            env=place.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        eventually_sync(lambda: len(_counts(place)) != 1 or rotating.poll() is not None, every=0)
        daemon.kill()
        rotating.wait(60)
    counts = _counts(place)
    return counts if len(counts) == 2 else {}


def _counts(place: Place) -> dict[str, int]:
    connection = sqlite3.connect(f"file:{place.state / 'palyra.db'}?mode=ro", uri=True, timeout=10)
    try:
        return dict(connection.execute("SELECT key_id, COUNT(*) FROM vault_versions GROUP BY key_id").fetchall())
    finally:
        connection.close()
