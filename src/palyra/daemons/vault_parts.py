"""The vault as the settings want it, and the one way to a secret's value for whatever acts on a call's behalf."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from palyra.config.location import VAULT_KEY_FILE_NAME
from palyra.config.settings import VaultSettings
from palyra.config.state_dir import StateDir
from palyra.journal.event import NewEvent
from palyra.journal.sqlite import SqliteStore
from palyra.policy.entities import EntityDirectory
from palyra.policy.port import PolicyPort
from palyra.secret import Secret
from palyra.vault.aesgcm import AesGcm
from palyra.vault.envelope import Sealer
from palyra.vault.environment import EnvironmentKeys
from palyra.vault.errors import ScopeDenied
from palyra.vault.key_file import KeyFile
from palyra.vault.key_source import KeySource
from palyra.vault.keyring import OsKeyring
from palyra.vault.passphrase import (
    PassphraseKeys,
    Passphrases,
    from_descriptor,
    from_file,
    from_nowhere,
    from_terminal,
)
from palyra.vault.ref import SecretRef
from palyra.vault.terminal import ask_passphrase
from palyra.vault.use import SecretUse, refusal_of, require_scope, use_request
from palyra.vault.vault import Vault


def key_sources(
    settings: VaultSettings, *, state: StateDir, config_dir: Path, at_terminal: bool
) -> Mapping[str, KeySource]:
    """The places that key-encryption keys may be in: the vault's, and those of others who seal what they store."""
    key_file = Path(settings.key_file).expanduser() if settings.key_file else config_dir / VAULT_KEY_FILE_NAME
    sources: tuple[KeySource, ...] = (
        KeyFile(key_file, state.root),
        OsKeyring(),
        PassphraseKeys(_passphrases(settings, at_terminal)),
        EnvironmentKeys(os.environ),
    )
    return {source.kind: source for source in sources}


def make_vault(
    settings: VaultSettings,
    *,
    store: SqliteStore,
    sources: Mapping[str, KeySource],
    learn: Callable[[Secret], None],
) -> Vault:
    """Nothing is read, made or asked before the vault is first used."""
    return Vault(
        store=store,
        sealer=Sealer(AesGcm(), os.urandom),
        random=os.urandom,
        sources=sources,
        source=settings.key_source,
        learn=learn,
    )


def _passphrases(settings: VaultSettings, at_terminal: bool) -> Passphrases:
    if settings.passphrase_file:
        return from_file(Path(settings.passphrase_file).expanduser())
    if settings.passphrase_fd >= 0:
        return from_descriptor(settings.passphrase_fd)
    return from_terminal(ask_passphrase) if at_terminal else from_nowhere


class DecidedSecrets:
    """Secrets behind the decision ``vault.use``: scope first, then policy, then the record, and only then the value."""

    def __init__(
        self, vault: Vault, policy: PolicyPort, directory: EntityDirectory, store: SqliteStore, *, actor: str
    ) -> None:
        self._vault = vault
        self._policy = policy
        self._directory = directory
        self._store = store
        self._actor = actor

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret:
        """Raises ``ScopeDenied``, ``UseDenied`` or ``UseNeedsApproval``, each with its entry in the journal."""
        try:
            require_scope(ref, use)
        except ScopeDenied as refusal:
            await self._record(ref, use, outcome="deny", code=refusal.code, policies=())
            raise
        decision = self._policy.decide(use_request(self._directory, ref, use))
        refused = refusal_of(ref, use, decision)
        if refused is not None:
            await self._record(ref, use, outcome=decision.outcome.value, code=refused.code, policies=decision.policies)
            raise refused
        return await self._vault.reveal(ref, note=use.note(self._actor, decision))

    async def _record(
        self, ref: SecretRef, use: SecretUse, *, outcome: str, code: str, policies: tuple[str, ...]
    ) -> None:
        event = NewEvent(
            kind="vault.use_denied",
            actor=self._actor,
            principal=str(use.principal),
            run=use.run,
            call=use.call,
            payload={
                "ref": str(ref),
                "outcome": outcome,
                "code": code,
                "channel": use.channel,
                "tool": "" if use.tool is None else use.tool.uid.id,
                "skill": "" if use.skill is None else use.skill.uid.id,
                "host": f"{use.host}:{use.port}" if use.host else "",
                "policies": list(policies),
            },
        )
        await self._store.transact(lambda tx: tx.append(event))
