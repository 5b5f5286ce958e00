"""The diagrams in the documentation are those of the tables the program runs by."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.devicelink.pairing import proof
from palyra.egress.protocols import http1_body, http1_proxy, http1_response, socks5, tls_hello
from palyra.executors.mcp_upstream import pinning
from palyra.fleet.domain import lease
from palyra.fleet.domain import worker as worker_lifecycle
from palyra.fleet.egress import leases
from palyra.identity import device
from palyra.identity import records as identity_records
from palyra.nodes.agent import link_state, request_state
from palyra.nodes.domain import records
from palyra.pipeline.domain import approval
from palyra.skills.registry import lifecycle

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("scripts") / "generate_diagrams.py"
TABLES = (
    *(module.TRANSITIONS for module in (pinning, approval, lifecycle, device, identity_records)),
    *(records.PAIRING_TRANSITIONS, proof.TRANSITIONS, records.REQUEST_TRANSITIONS),
    *(module.TRANSITIONS for module in (link_state, request_state, worker_lifecycle, lease, leases)),
    *(module.TRANSITIONS for module in (socks5, http1_proxy, http1_response, http1_body, tls_hello)),
)
PAGE = Path("docs") / "reference" / "state-machines.md"
OVERVIEW = Path("docs") / "explanation" / "architecture.md"


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / SCRIPT), *arguments], capture_output=True, text=True, cwd=root, check=False
    )


@pytest.mark.promise("P-documented")
def test_the_page_on_disk_is_fresh() -> None:
    result = generate(ROOT, "--check")
    assert result.returncode == 0, result.stderr


def test_every_transition_is_drawn_and_no_other() -> None:
    drawn = [line.strip() for line in (ROOT / PAGE).read_text().splitlines() if "-->" in line and ":" in line]
    assert drawn == [f"{before} --> {after}: {event}" for table in TABLES for (before, event), after in table.items()]


def test_the_check_notices_an_edit_and_repairs_nothing(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    for page in (PAGE, OVERVIEW):
        (tmp_path / page).parent.mkdir(parents=True)
        (tmp_path / page).write_text("<!-- machines -->\n<!-- /machines -->\n")
    assert generate(tmp_path, "--check").returncode == 1
    assert generate(tmp_path).returncode == 0 and generate(tmp_path, "--check").returncode == 0
    edited = (tmp_path / PAGE).read_text().replace("pending --> denied: deny", "denied --> approved: approve")
    (tmp_path / PAGE).write_text(edited)
    assert generate(tmp_path, "--check").returncode == 1
    assert (tmp_path / PAGE).read_text() == edited
    assert generate(tmp_path, "--chekc").returncode == 2
