"""The keys that workers and their proxies sign with: those of the certificates that identity issued to them."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from palyra.identity.device import DeviceKind
from palyra.signing.p256 import P256Verifier

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

# Certificates whose keys are remembered: a worker that comes back shows the one it had.
MAX_REMEMBERED: Final = 4_096


class WorkerKeys:
    def __init__(self, identity: "Callable[[], IdentityManager]") -> None:
        self._identity = identity
        # By the digest of the certificate, which is a twentieth of it.
        self._known: dict[bytes, P256Verifier] = {}

    def of_certificate(self, pem: bytes) -> P256Verifier:
        """Of a certificate that the connection was made with."""
        digest = hashlib.sha256(pem).digest()
        known = self._known.get(digest)
        if known is None:
            if len(self._known) >= MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            known = self._known[digest] = P256Verifier.from_certificate(pem)
        return known

    def of_device(self, device_id: str, kind: DeviceKind) -> P256Verifier | None:
        pem = self._identity().certificate_in_use(device_id, kind)
        return None if pem is None else self.of_certificate(pem)
