"""What is handed over beside the code: units that systemd takes, and a container file that names what is there."""

import configparser
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# What systemd-analyze thinks of a unit: 10 is open, 0 closed. Daemons that build sandboxes cannot be closed further.
MOST_EXPOSED = {"palyra-egressd.service": 2.0}
DEFAULT_MOST = 5.0


def settings(unit: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_there_is_a_unit_for_every_daemon() -> None:
    assert {unit.stem for unit in UNITS} == {name for name in PROGRAMS if name.endswith("d")}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_our_program_as_an_ordinary_user_and_waits_for_its_word(unit: Path) -> None:
    service = settings(unit)["Service"]
    program, *words = service["ExecStart"].split()
    assert Path(program).name == unit.stem and "--state-dir" in words
    assert service["Type"] == "notify" and int(service["WatchdogSec"]) >= 30
    assert service["User"].startswith("palyra") and service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == "" and service["ProtectSystem"] == "strict"


@pytest.mark.promise("P-install")
def test_systemd_takes_every_unit_and_finds_it_no_more_open_than_told(tmp_path: Path) -> None:
    for unit in UNITS:
        text = re.sub(r"/opt/palyra/bin/[a-z-]+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    copies = [str(tmp_path / unit.name) for unit in UNITS]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *copies], capture_output=True, text=True, timeout=60, check=False
    )
    # Units of the machine itself that are missing in a container are not ours.
    assert not [line for line in verified.stderr.splitlines() if "palyra" in line], verified.stderr
    for unit, copy in zip(UNITS, copies, strict=True):
        judged = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", copy],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        exposure = float(judged.stdout.strip().splitlines()[-1].split(": ")[1].split()[0])
        assert exposure <= MOST_EXPOSED.get(unit.name, DEFAULT_MOST), unit.name


def test_the_container_file_copies_what_is_there_and_runs_as_an_ordinary_user() -> None:
    text = (ROOT / "packaging" / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    assert re.search(r"^USER palyra$", text, re.MULTILINE) and "--privileged" in text and "never built" in text
    assert "--require-hashes -r requirements.lock" in text


def test_installs_of_services_take_packages_by_their_hashes_alone() -> None:
    files = [ROOT / "packaging" / "Containerfile", ROOT / "docs" / "how-to" / "run-as-a-service.md"]
    lines = [line for file in files for line in re.findall(r"pip install.*", file.read_text())]
    assert len(lines) >= 4
    assert [line for line in lines if "--require-hashes" not in line and "--no-deps" not in line] == []


def test_the_changelog_tells_of_this_version() -> None:
    version = installed_version("palyra")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
    said = subprocess.run(
        [sys.executable, "-m", "palyra.cli.main", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.strip() == f"palyra {version}"
