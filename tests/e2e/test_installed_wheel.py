"""The wheel alone, in a new environment without the repository: it finds everything it needs in itself."""

import json
import os
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from fakes.built_wheel import ROOT, build, environment, tracked

# One build for all of them.
pytestmark = pytest.mark.xdist_group("wheel")
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))


def use(programs: Path, home: Path) -> None:
    """What somebody who installed it does first."""
    home.mkdir()
    (home / "config.toml").write_text("[daemon]\nport = 0\n[browser]\nenabled = false\n")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
    environ = {
        **kept,
        "HOME": str(home),
        "PALYRA_CONFIG": str(home / "config.toml"),
        "PALYRA_STATE_DIR": str(home / "state"),
        "NO_COLOR": "1",
    }

    def run(*words: str, program: str = "palyra") -> str:
        done = subprocess.run(
            [str(programs / program), *words],
            env=environ,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    where = "import palyra, pathlib; print(pathlib.Path(palyra.__file__).resolve())"
    assert run("-c", where, program="python").startswith(str(programs.parent))
    assert run("--version").startswith("palyra ")
    assert json.loads(run("doctor", "--json"))["ok"]
    (home / "seen.txt").touch()
    assert "seen.txt" in run("run", "--", "ls")
    run("skill", "new", "acme.notes", "--lang", "wat", "--publisher", "acme")
    assert (home / "acme.notes" / "skill.toml").exists()
    assert "complete" in run("completion", "bash")
    for program in ("palyra-workerd", "palyra-egressd", "palyra-browserd"):
        assert program in run("--help", program=program)
    daemon = subprocess.Popen(
        [str(programs / "palyra"), "up", "--json"],
        env=environ,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    started = json.loads(daemon.stdout.readline())["data"]
    assert '"openapi"' in run("-c", _FETCH, started["url"] + "/openapi.json", program="python")
    assert "<html" in run("-c", _FETCH, started["url"] + "/login", program="python")
    assert json.loads(run("call", "echo", "--input", '{"text": "hi"}', "--json"))["data"]["status"] == "succeeded"
    daemon.send_signal(signal.SIGTERM)
    _, err = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, err
    run("journal", "verify")


_FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("build"))


def test_the_wheel_has_every_file_of_the_package_and_the_manual(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[0]) as wheel:
        names = set(wheel.namelist())
        data = {name.split("/data/", 1)[1] for name in names if "/data/" in name}
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    package = {path.removeprefix("src/") for path in tracked() if path.startswith("src/palyra/")}
    assert package - names == set()
    assert not [name for name in names if name.startswith(("tests/", "fakes/"))]
    assert {f"share/man/man1/{path.name}" for path in (ROOT / "docs" / "man").glob("*.1")} <= data
    assert {f"share/palyra/systemd/{unit.name}" for unit in UNITS} <= data
    assert "License-Expression: Apache-2.0" in metadata and "License-File: LICENSE" in metadata


def test_the_source_distribution_has_what_is_needed_to_build_and_test(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        path for path in tracked() if path.startswith(("src/", "proto/", "docs/", "packaging/", "scripts/", "tests/"))
    }
    assert wanted - names == set()
    assert {"LICENSE", "CHANGELOG.md", "pyproject.toml", "requirements.lock"} <= names


def test_it_works_without_the_repository(tmp_path: Path, distributions: tuple[Path, Path]) -> None:
    use(environment(tmp_path / "environment", distributions[0], fetch=False), tmp_path / "home")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_it_works_with_what_pip_fetches_for_it(tmp_path: Path, distributions: tuple[Path, Path]) -> None:
    use(environment(tmp_path / "environment", distributions[0], fetch=True), tmp_path / "home")
