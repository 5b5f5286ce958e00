"""Certificates, devices and authorities as values: what is stored, and what the rest of the program is told."""

import msgspec

from palyra.identity.authority import AuthorityState
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.revocation import DeviceState
from palyra.secret import Secret


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a device gets: its certificate, and the authorities by which it knows the daemon from now on."""

    device_id: DeviceId
    kind: DeviceKind
    certificate_pem: bytes
    ca_bundle_pem: bytes
    generation: int
    fingerprint: str
    not_before_ms: int
    not_after_ms: int


class PeerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the other end of a connection, by the certificate it was made with."""

    device_id: DeviceId
    kind: DeviceKind
    fingerprint: str
    generation: int
    not_after_ms: int


class ServerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener shows. The chain goes from the leaf to an authority that every device in use knows."""

    key_pem: Secret
    chain_pem: bytes
    fingerprint: str
    not_before_ms: int
    not_after_ms: int
    authority_id: str


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """``generation`` is the newest that was issued, ``used_generation`` the newest that a connection was made with."""

    device_id: DeviceId
    kind: DeviceKind
    state: DeviceState
    generation: int
    used_generation: int
    reason: str
    created_ms: int
    changed_ms: int


class CertificateRow(msgspec.Struct, frozen=True, kw_only=True):
    """Never changed once written: whether it is in force follows from its device's row."""

    fingerprint: str
    device_id: DeviceId
    generation: int
    key_sha256: str
    authority_id: str
    certificate_der: bytes
    not_before_ms: int
    not_after_ms: int


class AuthorityRow(msgspec.Struct, frozen=True, kw_only=True):
    """``sealed_key`` opens only together with exactly this certificate; it is empty once the authority is retired.

    ``cross_der`` is the same authority signed by the one before it, for devices that know only that one.
    """

    authority_id: str
    state: AuthorityState
    certificate_der: bytes
    cross_der: bytes
    key_id: str
    sealed_key: bytes
    created_ms: int
    not_before_ms: int
    not_after_ms: int


class DeviceIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A device as people see it. ``fingerprint`` and ``not_after_ms`` are those of its newest certificate."""

    device_id: DeviceId
    kind: DeviceKind
    state: DeviceState
    generation: int
    used_generation: int
    fingerprint: str
    not_after_ms: int
    reason: str
    created_ms: int
    changed_ms: int


class AuthorityView(msgspec.Struct, frozen=True, kw_only=True):
    """``needed_until_ms`` is when the last certificate by it ends; 0 if there is none."""

    authority_id: str
    state: AuthorityState
    created_ms: int
    not_after_ms: int
    needed_until_ms: int
