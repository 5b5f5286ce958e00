import os
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.vault_harness import ref
from palyra.daemon.vault_wiring import _passphrases
from palyra.ids import Principal
from palyra.secret import Secret
from palyra.vault.access import SecretUse
from palyra.vault.key_source import KeyUnsafe, PassphraseNeeded, ScopeDenied, UseDenied, UseNeedsApproval
from palyra.vault.settings import VaultSettings

BOT = Principal.parse("agent:bot")


async def test_nothing_is_made_before_the_vault_is_used(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"journal": {"arguments_days": 0}}) as harness:
        await harness.call("echo", {"text": "hi"})
        assert harness.gateway.vault.list() == []
    assert not (tmp_path / "vault.key").exists()


async def test_the_key_of_kept_arguments_is_not_the_vaults(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "hi"})
        await harness.gateway.vault.put(ref("global/k"), Secret("x"), actor="a")
        keys = [harness.gateway.store.read(f"SELECT key_id FROM {name}") for name in ("argument_keys", "vault_keys")]
    assert len(keys[0]) == len(keys[1]) == 1 and keys[0] != keys[1]


async def test_the_state_directories_of_a_user_share_the_key_of_kept_arguments(tmp_path: Path) -> None:
    """People make many, to try things: a file of keys must not fill up with those of places that are gone."""
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        settings = {"vault": {"key_file": str(tmp_path / "vault.key")}}
        async with open_harness(tmp_path / place, settings) as harness:
            await harness.call("echo", {"text": "hi"})
    assert (tmp_path / "arguments.key").read_text().count('"id"') == 1


async def test_the_key_file_is_where_the_settings_say_and_never_with_the_state(tmp_path: Path) -> None:
    elsewhere = tmp_path / "keys" / "k"
    async with open_harness(tmp_path, {"vault": {"key_file": str(elsewhere)}}) as harness:
        await harness.gateway.vault.put(ref("global/k"), Secret("x"), actor="a")
    assert elsewhere.exists() and not (tmp_path / "vault.key").exists()


async def test_a_key_file_in_the_state_directory_is_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"vault": {"key_file": str(tmp_path / "state" / "k")}}) as harness:
        with pytest.raises(KeyUnsafe):
            await harness.gateway.vault.put(ref("global/k"), Secret("x"), actor="a")


async def test_a_use_is_decided_recorded_and_only_then_given(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        secrets, vault = harness.gateway.secrets, harness.gateway.vault
        for name in ("global/k", "principal:agent:bot/k", "principal:user:ann/k"):
            await vault.put(ref(name), Secret(f"value of {name}"), actor="user:operator")
        use = SecretUse(principal=BOT, channel="api", run="R", call="C", host="h.example", port=443)
        own = await secrets.reveal(ref("principal:agent:bot/k"), use)
        assert own.reveal() == "value of principal:agent:bot/k"
        with pytest.raises(UseNeedsApproval):
            await secrets.reveal(ref("global/k"), use)
        with pytest.raises(ScopeDenied):
            await secrets.reveal(ref("principal:user:ann/k"), use)
        with pytest.raises(UseDenied):
            await secrets.reveal(ref("global/k"), SecretUse(principal=BOT, channel="elsewhere", approved=True))
        approved = SecretUse(principal=BOT, channel="api", approved=True)
        assert (await secrets.reveal(ref("global/k"), approved)).reveal() == "value of global/k"
        denied = [payload for _, payload in harness.events(kind="vault.use_denied")]
        assert [(one["ref"], one["code"]) for one in denied] == [
            ("global/k", "vault.use_needs_approval"),
            ("principal:user:ann/k", "vault.scope_denied"),
            ("global/k", "vault.use_denied"),
        ]
        used = harness.gateway.store.events_since(0, 100, kind="vault.secret_used")
        assert [(event.principal, event.run, event.call) for event in used] == [
            ("agent:bot", "R", "C"),
            ("agent:bot", "", ""),
        ]
        assert used[0].payload_value()["policies"] == ["baseline.own-secrets"]


def test_a_passphrase_comes_from_a_file_a_descriptor_or_a_person(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("from the file\n")
    file.chmod(0o600)
    assert [one.reveal() for one in _passphrases(VaultSettings(passphrase_file=str(file)), False)("open")] == [
        "from the file"
    ]
    reader, writer = os.pipe()
    os.write(writer, b"from the pipe")
    os.close(writer)
    assert [one.reveal() for one in _passphrases(VaultSettings(passphrase_fd=reader), False)("open")] == [
        "from the pipe"
    ]
    os.close(reader)
    with pytest.raises(PassphraseNeeded):
        _passphrases(VaultSettings(), False)("open")
