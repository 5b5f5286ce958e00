"""In which order files of tests are begun, so that two cores have work all the time, and no long one at the end.

What starts daemons, browsers and sandboxes waits for them half of the time; what only computes fills the gaps.
"""

from fractions import Fraction

import pytest

# Half a minute and more each beside others on two cores, the longest first. Where a new file takes as long, it is
# named here.
LONG = (
    "tests/security/test_sandbox_attacks.py",
    "tests/e2e/test_compatibility.py",
    "tests/e2e/test_strict_egress.py",
    "tests/e2e/test_installed_wheel.py",
    "tests/security/test_browser_profile_rollback.py",
    "tests/e2e/test_skill_authoring.py",
    "tests/e2e/test_console_pages.py",
    "tests/security/test_sandbox_resources.py",
    "tests/e2e/test_pages_followed.py",
    "tests/e2e/test_vault.py",
    "tests/e2e/test_worker_process.py",
    "tests/e2e/test_nodes_two_networks.py",
    "tests/e2e/test_console.py",
    "tests/security/test_warm_sandbox_attacks.py",
    "tests/security/test_wasm_attacks.py",
    "tests/security/test_identity_attacks.py",
    "tests/security/test_api_fuzz.py",
    "tests/security/test_guard_attacks.py",
    "tests/security/test_worker_egress_attacks.py",
    "tests/security/test_egress_floods.py",
    "tests/security/test_egress_proxy_attacks.py",
    "tests/security/test_workspace_attacks.py",
    "tests/security/test_vault_attacks.py",
    "tests/e2e/test_fleet_four_networks.py",
    "tests/e2e/test_nodes_kills.py",
    "tests/e2e/test_fleet_kills.py",
    "tests/e2e/test_palyra_run.py",
)
_WAITING = ("tests/e2e/", "tests/security/")
# The last tenth of a run is of files that compute, a second or so each.
_BEGUN_BY = Fraction(9, 10)


def put_in_order(items: list[pytest.Item]) -> None:
    files = list(dict.fromkeys(_file(item) for item in items))
    waiting = [file for file in LONG if file in files]
    for folder in _WAITING:
        waiting += [file for file in files if file.startswith(folder) and file not in LONG]
    computing = [file for file in files if not file.startswith(_WAITING)]
    places = {file: Fraction(at, len(computing)) for at, file in enumerate(computing)}
    places |= {file: _BEGUN_BY * at / len(waiting) for at, file in enumerate(waiting)}
    items.sort(key=lambda item: places[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
