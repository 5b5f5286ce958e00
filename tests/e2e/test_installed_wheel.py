"""The wheel alone, in a new environment without the repository: it finds everything it needs in itself."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fakes.built_wheel import ROOT, build, environment, tracked
from fakes.eventually import eventually_sync

UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))


def use(programs: Path, home: Path, python: str = "python") -> None:
    """Do what a person does first who installed it. ``programs`` is the folder on their path."""
    home.mkdir(exist_ok=True)
    project = home / "project"
    project.mkdir()
    (home / "config.toml").write_text("[daemon]\nport = 0\n[browser]\nenabled = false\n")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
    environ = {
        **kept,
        "HOME": str(home),
        "PALYRA_CONFIG": str(home / "config.toml"),
        "PALYRA_STATE_DIR": str(home / "state"),
        "NO_COLOR": "1",
    }

    def run(*words: str, program: str = "palyra", status: int = 0) -> str:
        done = subprocess.run(
            [str(programs / program), *words],
            env=environ,
            cwd=project,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    where = "import palyra, pathlib; print(pathlib.Path(palyra.__file__).resolve())"
    package = run("-c", where, program=python)
    assert package.startswith(str((programs / "palyra").resolve().parents[1])), package
    assert run("--version").startswith("palyra ")
    assert json.loads(run("doctor", "--json"))["ok"]
    (project / "seen.txt").touch()
    assert "seen.txt" in run("run", "--", "ls")
    run("skill", "new", "acme.notes", "--lang", "wat", "--publisher", "acme")
    assert (project / "acme.notes" / "skill.toml").exists()
    assert "complete" in run("completion", "bash")
    assert "Exit codes: 0 done" in run("--help")
    missing = json.loads(run("bench", "policy", "--json", status=6))["error"]
    assert missing["code"] == "cli.command_missing" and "make bench" in missing["hint"]
    for program in ("palyra-workerd", "palyra-egressd", "palyra-browserd"):
        assert program in run("--help", program=program)
    daemon = subprocess.Popen(
        [str(programs / "palyra"), "up", "--workers", "1", "--json"],
        env=environ,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert daemon.stdout is not None
        started = json.loads(daemon.stdout.readline())["data"]
        assert '"openapi"' in run("-c", _FETCH, started["url"] + "/openapi.json", program=python)
        assert "<html" in run("-c", _FETCH, started["url"] + "/login", program=python)
        # Workers join while the daemon works already.
        eventually_sync(lambda: '"available"' in run("worker", "list", "--json"), seconds=60)
        called = run("call", "echo", "--input", '{"text": "hi"}', "--tier", "worker", "--json")
        assert json.loads(called)["data"]["status"] == "succeeded"
        assert str(programs / "palyra") in run("mcp", "config", "--client", "json")
        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=60)
        assert daemon.returncode == 0, err
    finally:
        # Whatever went wrong above: nothing is left behind.
        if daemon.poll() is None:
            daemon.kill()
            daemon.communicate()
    run("journal", "verify")


_FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One build for all of them."""
    return build(tmp_path_factory.mktemp("build"))


@pytest.mark.promise("P-install")
def test_the_wheel_has_every_file_of_the_package_and_the_manual(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[0]) as wheel:
        names = set(wheel.namelist())
        data = {name.split("/data/", 1)[1] for name in names if "/data/" in name}
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    package = {path.removeprefix("src/") for path in tracked() if path.startswith("src/palyra/")}
    assert package - names == set()
    assert not [name for name in names if name.startswith(("tests/", "fakes/", "benchmarks/"))]
    assert {f"share/man/man1/{path.name}" for path in (ROOT / "docs" / "man").glob("*.1")} <= data
    assert {f"share/palyra/systemd/{unit.name}" for unit in UNITS} <= data
    assert "License-Expression: Apache-2.0" in metadata and "License-File: LICENSE" in metadata


def test_the_source_distribution_has_what_is_needed_to_build_and_test(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    folders = ("benchmarks/", "src/", "proto/", "docs/", "packaging/", "scripts/", "tests/")
    wanted = {path for path in tracked() if path.startswith(folders)}
    assert wanted - names == set()
    assert {"LICENSE", "CHANGELOG.md", "pyproject.toml", "requirements.lock"} <= names


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, distributions: tuple[Path, Path]) -> Path:
    """The programs of an environment with the wheel, where pipx would have it."""
    return environment(tmp_path_factory.mktemp("pipx") / "venvs" / "palyra", distributions[0], fetch=False)


@pytest.mark.promise("P-install")
def test_it_works_without_the_repository(tmp_path: Path, installed: Path) -> None:
    use(installed, tmp_path / "home")


@pytest.mark.promise("P-install")
def test_it_works_through_links_as_pipx_makes_them(tmp_path: Path, installed: Path) -> None:
    """An environment out of sight, its programs and manual pages as links where people look for them."""
    shown = tmp_path / "home" / ".local" / "bin"
    shown.mkdir(parents=True)
    for program in installed.glob("palyra*"):
        (shown / program.name).symlink_to(program)
    assert (installed.parent / "share" / "man" / "man1" / "palyra.1").is_file()
    use(shown, tmp_path / "home", python=str(installed / "python"))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_it_works_with_pipx_itself(tmp_path: Path, distributions: tuple[Path, Path]) -> None:
    tools = environment(tmp_path / "tools", distributions[0], fetch=False)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(tools / "python"), "install", "-q", "pipx"],
        check=True,
        timeout=300,
    )
    home = tmp_path / "home"
    environ = {**os.environ, "HOME": str(home), "PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin")}
    installing = [str(tools / "python"), "-m", "pipx", "install", str(distributions[0])]
    subprocess.run(installing, env=environ, check=True, timeout=600)
    use(home / "bin", home, python=str(home / "pipx" / "venvs" / "palyra" / "bin" / "python"))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_it_works_with_what_pip_fetches_for_it(tmp_path: Path, distributions: tuple[Path, Path]) -> None:
    use(environment(tmp_path / "environment", distributions[0], fetch=True), tmp_path / "home")
