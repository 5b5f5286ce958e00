import subprocess
import sys

from fakes.identity_harness import IdentityHarness
from palyra.identity.tables import SCHEMA


def test_the_schema_is_harmless_when_run_again(harness: IdentityHarness) -> None:
    first, second = harness.store(), harness.store()
    for statement in SCHEMA:
        second.transact_blocking(lambda tx, sql=statement: tx.execute(sql))  # type: ignore[misc]
    assert first.read("SELECT COUNT(*) FROM identity_state") == [(0,)]


def test_whoever_opens_a_store_does_not_load_identity() -> None:
    """Every command opens a store; few speak of devices."""
    program = (
        "import sys, palyra.daemon.gateway_wiring;"
        " print([name for name in sys.modules if name.startswith('palyra.identity.')"
        " and name.rpartition('.')[2] in ('identity_manager', 'authorities', 'x509', 'sqlite_identity')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
