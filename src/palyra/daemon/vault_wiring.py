"""Device identity as the settings want it: its store, its clock, and the places that keep the keys it seals with."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from palyra.clock import Clock
from palyra.config.load import ARGUMENT_KEY_FILE_NAME, VAULT_KEY_FILE_NAME
from palyra.config.state_dir import StateDir
from palyra.identity.authorities import Authorities
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.settings import IdentitySettings
from palyra.secret import Secret
from palyra.store.port import Store
from palyra.store.sqlite.store import SqliteStore
from palyra.vault.envelope import AesGcm, Sealer
from palyra.vault.key_file import (
    KeyFile,
    PassphraseKeys,
    Passphrases,
    SharedKeyFile,
    ask_passphrase,
    from_descriptor,
    from_file,
    from_nowhere,
    from_terminal,
)
from palyra.vault.key_source import EnvironmentKeys, KeySource, OsKeyring
from palyra.vault.settings import VaultSettings
from palyra.vault.vault import Vault


def make_identity(
    settings: IdentitySettings,
    *,
    store: Store,
    clock: Clock,
    sources: Mapping[str, KeySource],
    source: str,
    actor: str,
    server_names: Sequence[str] = (),
) -> IdentityManager:
    """Build the identity manager, which reads, makes and asks nothing before its first use.

    ``source`` is the setting ``vault.key_source``. An authority's key is sealed under a key of its own, in the same
    kind of place as the vault's.
    """
    return IdentityManager(
        store=store,
        clock=clock,
        authorities=Authorities(
            store=store,
            clock=clock,
            aead=AesGcm(),
            random=os.urandom,
            sources=sources,
            source=source,
            actor=actor,
        ),
        certificate_seconds=settings.certificate_seconds,
        server_names=server_names,
    )


# The vault as the settings want it, and the one way to a secret's value for whatever acts on a call's behalf.


def key_sources(
    settings: VaultSettings, *, state: StateDir, config_dir: Path, at_terminal: bool
) -> Mapping[str, KeySource]:
    """Return the places of key-encryption keys: those of the vault, and of others that seal what they store."""
    key_file = Path(settings.key_file).expanduser() if settings.key_file else config_dir / VAULT_KEY_FILE_NAME
    sources: tuple[KeySource, ...] = (
        KeyFile(key_file, state.root),
        OsKeyring(),
        PassphraseKeys(_passphrases(settings, at_terminal)),
        EnvironmentKeys(os.environ),
    )
    return {source.kind: source for source in sources}


def argument_key_sources(
    settings: VaultSettings, sources: Mapping[str, KeySource], *, state: StateDir, config_dir: Path
) -> Mapping[str, KeySource]:
    """Return the places of the key that seals the arguments of calls: a file of its own beside the vault's."""
    key_file = Path(settings.key_file).expanduser() if settings.key_file else config_dir / VAULT_KEY_FILE_NAME
    shared = SharedKeyFile(key_file.with_name(ARGUMENT_KEY_FILE_NAME), state.root)
    return {**sources, shared.kind: shared}


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
