"""The reference pages are what the program says of itself today."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("scripts") / "generate_reference.py"


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / SCRIPT), *arguments], capture_output=True, text=True, cwd=root, check=False
    )


def test_the_pages_on_disk_are_fresh() -> None:
    result = generate(ROOT, "--check")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script and its pages in another checkout. Made once: it takes seconds."""
    made = tmp_path_factory.mktemp("generated")
    (made / "scripts").mkdir()
    for script in (SCRIPT.name, "generate_man.py", "reference_of_limits.py", "reference_of_parts.py"):
        shutil.copy(ROOT / "scripts" / script, made / "scripts" / script)
    shutil.copytree(ROOT / "proto", made / "proto")
    assert generate(made).returncode == 0
    return made


@pytest.fixture
def copy(generated: Path, tmp_path: Path) -> Path:
    """One that a test may spoil."""
    return shutil.copytree(generated, tmp_path / "copy")


def test_the_check_notices_an_edit_and_a_missing_page_and_repairs_neither(copy: Path) -> None:
    errors, cli = copy / "docs/reference/errors.md", copy / "docs/reference/cli.md"
    errors.write_text(errors.read_text().replace("config.unknown_key", "config.unknown"))
    cli.unlink()
    result = generate(copy, "--check")
    assert result.returncode == 1
    assert "cli.md, errors.md" in result.stderr
    assert not cli.exists()


def test_the_pages_name_what_a_reader_looks_for(copy: Path) -> None:
    pages = {path.name: path.read_text() for path in (copy / "docs/reference").iterdir()}
    assert "## `palyra config show`" in pages["cli.md"]
    assert "--origin" in pages["cli.md"]
    assert "| `config.unknown_key` | 2 | 400 |" in pages["errors.md"]
    assert "`PALYRA_TOOLS__MAX_TIMEOUT_MS`" in pages["configuration.md"]
    assert "integer, at least 0, at most 65,535" in pages["configuration.md"]
    assert "| `MAX_TOOL_INPUT_BYTES` | 64 KiB | Intake. A process call may carry" in pages["limits.md"]
    assert "| `RuntimeLimits.max_memory_bytes` | 64 MiB | Summed over all memories" in pages["limits.md"]
    assert "| `pipeline.domain.argument_pattern.MAX_PATTERN_KEYS` | 256 |" in pages["limits.md"]
    assert "| at most 3 ms |" in pages["performance-bars.md"]


@pytest.mark.promise("P-install")
def test_the_manual_has_a_page_for_every_noun_and_program_that_the_formatter_takes(copy: Path) -> None:
    names = {path.stem for path in (copy / "docs/man").glob("*.1")}
    assert {"palyra", "palyrad", "palyra-vault", "palyra-workerd", "palyra-egressd", "palyra-browserd"} <= names
    (copy / "docs/man" / "palyra-old.1").write_text("gone")
    (copy / "docs/man" / "palyra.1").write_text("edited")
    refused = generate(copy, "--check")
    assert refused.returncode == 1 and "palyra-old.1, palyra.1" in refused.stderr
    formatted = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", *sorted(map(str, (ROOT / "docs/man").glob("*.1")))],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert formatted.stderr == b"" and b"PALYRA" in formatted.stdout


def test_an_unknown_option_is_refused(copy: Path) -> None:
    assert generate(copy, "--chek").returncode == 2
