"""The bait is complete, and every change to it is seen."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.doctor.attacks import probes
from palyra.doctor.attacks.attempt import Bait
from palyra.doctor.attacks.decoys import BaitFolder
from palyra.doctor.attacks.runner import find_python

PROBES = os.path.dirname(probes.__file__)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BaitFolder]:
    with BaitFolder(str(tmp_path), find_python().program) as made:
        made.reset(frozenset(), PROBES)
        yield made


def test_an_untouched_scene_has_no_traces(harness: BaitFolder) -> None:
    assert harness.traces(b"nothing of interest") == ()


def test_the_secret_in_the_output_is_seen(harness: BaitFolder) -> None:
    assert harness.traces(b"x" + harness.token.encode()) == ("the secret came out",)


def test_changes_outside_are_seen_and_undone(harness: BaitFolder) -> None:
    outside = Path(harness.outside)
    (outside / "new").write_text("")
    (outside / "marker").unlink()
    assert harness.traces(b"") == ("outside/marker is gone", "outside/new appeared")
    harness.reset(frozenset(), PROBES)
    assert harness.traces(b"") == ()


def test_changes_of_protected_files_are_seen(harness: BaitFolder) -> None:
    workspace = Path(harness.workspace)
    (workspace / ".env").chmod(0o600)
    (workspace / ".git" / "hooks" / "post-merge").write_text("")
    assert harness.traces(b"") == ("protected .env changed", "protected .git/hooks/post-merge changed")


def test_what_would_harm_later_is_seen(harness: BaitFolder) -> None:
    plant = Path(harness.workspace) / "plant"
    plant.write_text("")
    plant.chmod(0o4700)
    (Path(harness.workspace) / "core").write_text("")
    seen = harness.traces(b"")
    assert any("mode 4700" in each for each in seen)
    assert any("core dump" in each for each in seen)


def test_connections_are_seen(harness: BaitFolder) -> None:
    names = harness.names()
    with socket.create_connection(("127.0.0.1", names["tcp"])):
        pass
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(names["socket"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"not ours", ("127.0.0.1", names["udp"]))
        sender.sendto(harness.token.encode(), ("127.0.0.1", names["udp"]))
    assert harness.traces(b"") == (
        "the host's listener on 127.0.0.1 got a connection",
        "the unix socket outside got a connection",
        "the host's UDP socket got a datagram",
    )
    assert harness.traces(b"") == ()


def test_the_end_of_the_victim_is_seen_and_there_is_a_new_one(harness: BaitFolder) -> None:
    first = harness.names()["victim"]
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert harness.traces(b"") == ("the host's process was ended",)
    harness.reset(frozenset(), PROBES)
    assert harness.names()["victim"] != first


def test_the_end_of_the_victim_is_waited_for_where_a_probe_says_that_it_reached_it(harness: BaitFolder) -> None:
    victim = harness.names()["victim"]
    killer = threading.Timer(0.2, os.kill, (victim, signal.SIGKILL))
    killer.start()
    assert "the host's process was ended" in harness.traces(f"signalled process {victim}".encode())
    killer.join()


def test_bait_for_one_attempt_is_gone_for_the_next(harness: BaitFolder) -> None:
    harness.reset(frozenset({Bait.GHOST_LINK, Bait.ALIAS, Bait.LINKS_OUT, Bait.SHELLS}), PROBES)
    workspace = Path(harness.workspace)
    assert (workspace / "link-to-secret").read_text() == harness.token
    assert (workspace / ".vscode").is_symlink()
    assert os.stat(workspace / "second-name").st_nlink == 2
    assert os.access(workspace / "innocent-script", os.X_OK)
    harness.reset(frozenset(), PROBES)
    assert not os.path.lexists(workspace / ".vscode")
    assert harness.traces(b"") == ()


def test_everything_goes_at_the_end(tmp_path: Path) -> None:
    with BaitFolder(str(tmp_path), find_python().program) as made:
        made.reset(frozenset(), PROBES)
        victim = made.names()["victim"]
        assert os.environ[made.variable] == made.token
    assert made.variable not in os.environ
    assert not os.path.exists(f"/proc/{victim}")
