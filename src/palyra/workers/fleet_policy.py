"""What an operator demands of the fleet. A value that makes no sense is refused when the policy is made."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import InvalidInput
from palyra.workers import limits

# The versions of the lease protocol and of the plugin interface that this daemon speaks.
SDK_PROTOCOL_VERSION: Final = 1
WIT_ABI_VERSION: Final = "palyra:plugins@0.1.0"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PlacementRule(StrEnum):
    """``spread`` takes the least loaded worker, ``pack`` the fullest that still has room."""

    SPREAD = "spread"
    PACK = "pack"


class InvalidFleetPolicy(InvalidInput):
    code = "fleet_policy.invalid"
    hint = "correct the value that the message names, in the section [workers] of the configuration"


class WorkerFleetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A set of digests that is None pins nothing; an empty set refuses every worker."""

    max_workers: int = 1_000
    max_leases_per_worker: int = 8
    lease_ttl_ms: int = 600_000
    # After a lease's deadline the worker kills, cleans up and reports within this time.
    settle_grace_ms: int = 10_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_timeout_ms: int = 15_000
    attestation_interval_ms: int = 600_000
    nonce_life_ms: int = 60_000
    image_digests: frozenset[str] | None = None
    build_digests: frozenset[str] | None = None
    artifact_digests: frozenset[str] | None = None
    require_egress_binding: bool = True
    egress_policy_digests: frozenset[str] | None = None
    required_capabilities: frozenset[str] = frozenset()
    sdk_protocol_versions: frozenset[int] = frozenset((SDK_PROTOCOL_VERSION,))
    wit_abi_versions: frozenset[str] = frozenset((WIT_ABI_VERSION,))
    placement: PlacementRule = PlacementRule.SPREAD
    # Calls whose lease was lost run again even if their tool is not idempotent.
    retry_lost: bool = False
    max_attempts: int = 2

    def __post_init__(self) -> None:
        bounds = {
            "max_workers": (1, limits.MAX_WORKERS),
            "max_leases_per_worker": (1, limits.MAX_SLOTS),
            "lease_ttl_ms": (1, limits.MAX_LEASE_TTL_MS),
            "settle_grace_ms": (1, limits.MAX_LEASE_TTL_MS),
            "heartbeat_interval_ms": (limits.MIN_HEARTBEAT_MS, limits.MAX_HEARTBEAT_TIMEOUT_MS),
            # A timeout below two intervals would take one lost packet for a death.
            "heartbeat_timeout_ms": (2 * self.heartbeat_interval_ms, limits.MAX_HEARTBEAT_TIMEOUT_MS),
            "attestation_interval_ms": (1, limits.MAX_ATTESTATION_LIFE_MS),
            "nonce_life_ms": (1, limits.MAX_ATTESTATION_LIFE_MS),
            "max_attempts": (1, limits.MAX_ATTEMPTS),
        }
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidFleetPolicy(f"{name} is {getattr(self, name)}, not between {least} and {most}", name=name)
        for name in ("image_digests", "build_digests", "artifact_digests", "egress_policy_digests"):
            for digest in getattr(self, name) or ():
                if not _SHA256.fullmatch(digest):
                    raise InvalidFleetPolicy(f"{name} has {digest[:80]!r}, which is no SHA-256 in hex", name=name)

    def challenge_after_ms(self) -> int:
        """How old an attestation gets before the next is asked for: two tries fit before it lapses."""
        return self.attestation_interval_ms * 2 // 3
