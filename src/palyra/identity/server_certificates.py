"""The certificate that listeners show: made in memory, renewed by itself, never stored."""

import threading
from collections.abc import Sequence

from palyra.clock import Clock
from palyra.identity.authorities import Authorities, OpenedAuthority
from palyra.identity.certificate_profile import server_names, server_profile
from palyra.identity.fingerprint import fingerprint_of, pem_of
from palyra.identity.records import ServerCertificate
from palyra.identity.renewal import renewal_due_ms
from palyra.identity.x509 import create_key
from palyra.secret import Secret


class ServerCertificates:
    """Asked at every handshake, from whatever thread the listener makes it on; does no I/O."""

    def __init__(self, authorities: Authorities, *, clock: Clock, life_ms: int, names: Sequence[str]) -> None:
        self._authorities = authorities
        self._clock = clock
        self._life_ms = life_ms
        server_names(names)
        self._names = tuple(names)
        self._lock = threading.Lock()
        self._shown: ServerCertificate | None = None

    def set_names(self, names: Sequence[str]) -> None:
        """The next certificate carries these; one that lacks some of them is not shown again."""
        server_names(names)
        with self._lock:
            self._names, self._shown = tuple(names), None

    def current(self) -> ServerCertificate:
        in_force = self._authorities.in_force()
        with self._lock:
            shown, now_ms = self._shown, self._clock.now_ms()
            if (
                shown is None
                or shown.authority_id != in_force[0].row.authority_id
                # The clock was set back: who has the right time, or the same, would find it not valid yet.
                or now_ms < shown.not_before_ms
                or now_ms >= renewal_due_ms(shown.not_before_ms, shown.not_after_ms)
            ):
                shown = self._shown = self._made(in_force, now_ms)
            elif len(in_force) == 1 and shown.chain_pem.count(b"BEGIN") > 1:
                # The authority before is gone, and with it whoever needed to be led from it to this one.
                shown = self._shown = self._made(in_force, now_ms)
            return shown

    def _made(self, in_force: Sequence[OpenedAuthority], now_ms: int) -> ServerCertificate:
        authority = in_force[0]
        key_pem, public = create_key()
        profile = server_profile(
            self._names, now_ms=now_ms, life_ms=self._life_ms, authority_ends_ms=authority.row.not_after_ms
        )
        leaf = authority.signer.sign(profile, public)
        # Devices that were last told of the authority before know this one by that one's word.
        led = authority.row.cross_der if len(in_force) > 1 else b""
        return ServerCertificate(
            key_pem=Secret(key_pem.decode("ascii")),
            chain_pem=pem_of(leaf) + (pem_of(led) if led else b""),
            fingerprint=fingerprint_of(leaf),
            not_before_ms=profile.not_before_ms,
            not_after_ms=profile.not_after_ms,
            authority_id=authority.row.authority_id,
        )
