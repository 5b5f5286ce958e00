"""A disk that fills up under a running daemon."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.daemon import Place
from palyra.errors import PalyraError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB. Mounting takes root; elsewhere the suite runs in a user namespace of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0")
        except OSError:
            pass
    return filler


@pytest.mark.promise("P-recorded")
def test_calls_are_refused_and_nothing_runs_unrecorded(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    place = Place(small_disk, f'[workspace]\nroot = "{tmp_path / "w"}"\n[tools]\npreapproved = ["fs.write"]\n')
    with place.daemon() as daemon, daemon.client() as client:
        client.call("fs.write", {"path": "before", "content": "x"})
        filler = _fill(small_disk)
        ran, refused = 0, 0
        for number in range(400):
            try:
                client.call("fs.write", {"path": f"f{number}", "content": "x" * 20_000})
                ran += 1
            except PalyraError as error:
                assert error.as_dict()["code"] == "journal.disk_full"
                refused += 1
                if refused > 5:
                    break
        assert refused > 5
        written = {path.name for path in (tmp_path / "w").iterdir()} - {"before"}
        assert len(written) == ran, "what was refused left no file behind"
        with pytest.raises(PalyraError):
            client.ready()
        os.unlink(filler)
        # Space is back: the daemon notices by itself.
        for _ in range(50):
            try:
                client.call("fs.write", {"path": "after", "content": "x"})
                break
            except PalyraError:
                continue
        assert (tmp_path / "w" / "after").exists()
        started = place.palyra("journal", "tail", "-n", "5000", "--kind", "call.started", "--json").data["events"]
        finished = place.palyra("journal", "tail", "-n", "5000", "--kind", "call.finished", "--json").data["events"]
        assert len(started) == len(finished) == ran + 2
    assert place.palyra("journal", "verify", "--json").status == 0
