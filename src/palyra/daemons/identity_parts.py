"""Device identity as the settings want it: its store, its clock, and the places that keep the keys it seals with."""

import os
from collections.abc import Mapping, Sequence

from palyra.clock import Clock
from palyra.config.settings import IdentitySettings
from palyra.identity.authorities import Authorities
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.ports import Store
from palyra.vault.aesgcm import AesGcm
from palyra.vault.key_source import KeySource


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
    """Nothing is read, made or asked before it is first used. ``source`` is the setting ``vault.key_source``: an
    authority's key is sealed under a key of its own, kept in the same kind of place as the vault's."""
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
