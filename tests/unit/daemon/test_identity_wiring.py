import os
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.identity_harness import DeviceKey
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.identity.device import DeviceId, DeviceKind
from palyra.vault.key_source import VARIABLE, KeyMissing
from palyra.vault.settings import VaultSettings

# Without the key for the arguments of calls, which every daemon makes.
ALONE = {"journal": {"arguments_days": 0}}


async def test_nothing_is_read_or_made_before_the_first_use(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ALONE) as harness:
        assert "identity" not in vars(harness.gateway)
        assert harness.gateway.identity is harness.gateway.identity
        assert not list(tmp_path.rglob("vault.key"))


async def test_its_keys_are_kept_where_the_vaults_are_and_are_its_own(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ALONE) as harness:
        identity = harness.gateway.identity
        await identity.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor="user:operator")
        [key_file] = tmp_path.rglob("vault.key")
        assert key_file.read_text().count('"id"') == 1
        used = harness.gateway.store.read("SELECT key_id FROM identity_keys")
        assert used[0][0] in key_file.read_text()
        assert harness.gateway.store.read("SELECT COUNT(*) FROM vault_keys") == [(0,)]


def gateway_with(tmp_path: Path, source: str) -> Gateway:
    settings = Settings(vault=VaultSettings(key_source=source))  # type: ignore[arg-type]
    return Gateway(settings, StateDir.open(tmp_path / "state"), tmp_path / "policies", channel="api")


async def test_a_key_from_the_environment_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    monkeypatch.setenv(VARIABLE, base64.b64encode(os.urandom(32)).decode())
    first = gateway_with(tmp_path, "environment")
    await first.identity.open()
    trust_domain = first.identity.trust_domain
    # The same variable again for the next authority: it is its owner's to change.
    await first.identity.rotate_authority(actor="user:operator")
    first.close()
    monkeypatch.setenv(VARIABLE, base64.b64encode(os.urandom(32)).decode())
    second = gateway_with(tmp_path, "environment")
    try:
        with pytest.raises(KeyMissing):
            await second.identity.open()
        assert second.identity.known_trust_domain() == trust_domain
    finally:
        second.close()
