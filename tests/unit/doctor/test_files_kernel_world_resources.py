"""The probes are told apart by name and by what they return: a few of each kind, made here where they can succeed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palyra.doctor.attacks import probes
from palyra.doctor.attacks.probes import files, kernel, outside, resources
from palyra.doctor.attacks.probes.calls import Blocked

START = os.path.join(os.path.dirname(probes.__file__), "start.py")
KINDS = (files.PROBES, kernel.PROBES, outside.PROBES, resources.PROBES)


def test_no_two_probes_share_a_name() -> None:
    assert len({name for kind in KINDS for name in kind}) == sum(map(len, KINDS))


def made(folder: Path, probe: str, **order: Any) -> dict[str, Any]:
    """In a process of its own, in an empty folder."""
    text = json.dumps({"probe": probe, "comm": "pbtest", "calls": {}, **order})
    argv = [sys.executable, "-I", "-S", START]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd=folder, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_reading_gives_the_content_away(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("abc")
    assert made(tmp_path, "read", paths=["missing", "secret"])["evidence"] == "secret: abc"
    assert made(tmp_path, "read", paths=["missing"])["errno"] == "ENOENT"


def test_the_first_refusal_that_says_something_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        files.first_of(
            [str(tmp_path / "none"), str(tmp_path / "file" / "x"), str(tmp_path / "no")],
            lambda path: Path(path).read_text(),
        )


def test_system_files_are_only_opened(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("abc")
    assert made(tmp_path, "open_for_writing", paths=["system"])["escaped"]
    assert (tmp_path / "system").read_text() == "abc"


@pytest.mark.parametrize(
    ("probe", "order"),
    [
        ("descriptors", {"most": 20}),
        ("sparse_file", {"most": 1 << 20, "way": "truncate"}),
        ("memory", {"most": 1 << 24, "reserve": False}),
        ("memory_in_sum", {"each": 1 << 20, "count": 2}),
        ("forks", {"most": 3}),
        ("spinner", {"seconds": 0.01}),
        ("sleeper", {"seconds": 0.01}),
        ("raise_limits", None),
    ],
)
def test_without_limits_there_is_more_to_be_had(tmp_path: Path, probe: str, order: dict[str, Any] | None) -> None:
    if order is not None:
        assert made(tmp_path, probe, **order)["escaped"] is True
    else:
        assert made(tmp_path, probe)["escaped"] in (True, False)


def test_a_datagram_is_never_taken_for_an_arrival() -> None:
    with pytest.raises(Blocked):
        outside.send_udp({"token": "x", "port": 9})


def test_no_route_is_looked_for_outside_the_addresses_for_documentation() -> None:
    assert [address for _, address in outside.NOWHERE] == ["192.0.2.1", "2001:db8::1"]


def test_another_way_into_the_kernel_ends_a_child_at_most(tmp_path: Path) -> None:
    for probe in ("compat_entry", "x32_entry"):
        assert made(tmp_path, probe)["escaped"] in (True, False, None)
