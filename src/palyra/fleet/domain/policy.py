"""The settings of a worker, and the policy and settings of the fleet in the daemon."""

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from palyra.errors import InvalidInput
from palyra.fleet import limits
from palyra.fleet.limits import DEFAULT_SLOTS, MAX_NAME_CHARS, MAX_SLOTS


def _says(description: str) -> Meta:
    return Meta(description=description)


class WorkerAgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS), _says("Name of this worker; empty means its host name.")] = ""
    slots: Annotated[
        int, Meta(ge=1, le=MAX_SLOTS), _says("Leases this worker runs at once; the daemon may give it fewer.")
    ] = DEFAULT_SLOTS
    image_digest_sha256: Annotated[
        str,
        Meta(pattern="^([0-9a-f]{64})?$"),
        _says("The image this machine runs, as its launcher knows it; /etc/palyra/image.json comes before it."),
    ] = ""
    egress_socket: Annotated[
        str,
        _says("Socket of this worker's palyra-egressd; empty means none, and no network for programs."),
    ] = ""


# The versions of the lease protocol and of the plugin interface that this daemon speaks.
SDK_PROTOCOL_VERSION: Final = 1
WIT_ABI_VERSION: Final = "palyra:plugins@0.1.0"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGESTS: Final = ("image_digests", "build_digests", "artifact_digests", "egress_policy_digests")


class PlacementRule(StrEnum):
    """``spread`` takes the least loaded worker, ``pack`` the fullest one with a free slot."""

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
        for name in _DIGESTS:
            for digest in getattr(self, name) or ():
                if not _SHA256.fullmatch(digest):
                    raise InvalidFleetPolicy(f"{name} has {digest[:80]!r}, not a SHA-256 in hex", name=name)

    def challenge_after_ms(self) -> int:
        """Return the age at which the next attestation is requested: two tries fit before it lapses."""
        return self.attestation_interval_ms * 2 // 3


_MS: int = 1_000
_DEFAULT = WorkerFleetPolicy()


# In the place of a digest of a build: no build is pinned.
ANY_BUILD: Final = "any"
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
BuildDigest = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{64}}|{ANY_BUILD})\Z")]
Capability = Annotated[str, Meta(min_length=1, max_length=limits.MAX_CAPABILITY_CHARS)]


class WorkerFleetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, _says("Whether workers may join and calls may run on them.")] = True
    max_workers: Annotated[
        int, Meta(ge=1, le=limits.MAX_WORKERS), _says("Most workers in the fleet, connected or not.")
    ] = _DEFAULT.max_workers
    max_leases_per_worker: Annotated[
        int, Meta(ge=1, le=limits.MAX_SLOTS), _says("Most calls that one worker runs at once, whatever it offers.")
    ] = _DEFAULT.max_leases_per_worker
    lease_seconds: Annotated[
        float, Meta(gt=0, le=limits.MAX_LEASE_TTL_MS / _MS), _says("Longest time that a call may have on a worker.")
    ] = _DEFAULT.lease_ttl_ms / _MS
    settle_grace_seconds: Annotated[
        float,
        Meta(gt=0, le=3_600),
        _says("Time after a call's deadline in which its worker kills, cleans up and reports."),
    ] = _DEFAULT.settle_grace_ms / _MS
    heartbeat_seconds: Annotated[
        float,
        Meta(ge=limits.MIN_HEARTBEAT_MS / _MS, le=limits.MAX_HEARTBEAT_TIMEOUT_MS / _MS),
        _says("Time between two heartbeats of a worker."),
    ] = _DEFAULT.heartbeat_interval_ms / _MS
    heartbeat_timeout_seconds: Annotated[
        float,
        Meta(ge=2 * limits.MIN_HEARTBEAT_MS / _MS, le=limits.MAX_HEARTBEAT_TIMEOUT_MS / _MS),
        _says("Silence after which a worker is given up and its leases are void; at least two heartbeats."),
    ] = _DEFAULT.heartbeat_timeout_ms / _MS
    attestation_seconds: Annotated[
        float,
        Meta(gt=0, le=limits.MAX_ATTESTATION_LIFE_MS / _MS),
        _says("How old a worker's attestation may get; a new one is requested before that."),
    ] = _DEFAULT.attestation_interval_ms / _MS
    image_digests: Annotated[
        tuple[Digest, ...], _says("SHA-256 of the images that workers may run; empty takes any.")
    ] = ()
    build_digests: Annotated[
        tuple[BuildDigest, ...],
        _says("SHA-256 of the builds that workers may be; empty takes the daemon's own build alone, `any` takes all."),
    ] = ()
    artifact_digests: Annotated[
        tuple[Digest, ...], _says("SHA-256 of the packages that workers may be installed from; empty takes any.")
    ] = ()
    require_egress_binding: Annotated[
        bool, _says("Whether a worker needs an egress proxy with an identity of its own that vouches for it.")
    ] = True
    egress_policy_digests: Annotated[
        tuple[Digest, ...], _says("SHA-256 of the policies that workers' proxies may enforce; empty takes any.")
    ] = ()
    required_capabilities: Annotated[
        tuple[Capability, ...], _says("What every worker must be able to do, such as tier.c or tool.process.run.")
    ] = ()
    placement: Annotated[
        Literal["spread", "pack"],
        _says("Which worker gets the next call: the least loaded (spread) or the fullest (pack)."),
    ] = "spread"
    retry_lost: Annotated[
        bool, _says("Whether calls whose worker was lost run again even if their tool is not idempotent.")
    ] = False
    max_attempts: Annotated[int, Meta(ge=1, le=limits.MAX_ATTEMPTS), _says("Most tries of one call.")] = (
        _DEFAULT.max_attempts
    )

    def policy(self, own_build: str) -> WorkerFleetPolicy:
        """Make the policy of a daemon of that build. Raise InvalidFleetPolicy for values that contradict each other."""
        # An empty list of anything but builds pins nothing.
        digests: dict[str, Any] = {name: frozenset(getattr(self, name)) or None for name in _DIGESTS}
        if not self.build_digests:
            digests["build_digests"] = frozenset((own_build,))
        elif ANY_BUILD in self.build_digests:
            digests["build_digests"] = None
        return WorkerFleetPolicy(
            max_workers=self.max_workers,
            max_leases_per_worker=self.max_leases_per_worker,
            lease_ttl_ms=_ms(self.lease_seconds),
            settle_grace_ms=_ms(self.settle_grace_seconds),
            heartbeat_interval_ms=_ms(self.heartbeat_seconds),
            heartbeat_timeout_ms=_ms(self.heartbeat_timeout_seconds),
            attestation_interval_ms=_ms(self.attestation_seconds),
            require_egress_binding=self.require_egress_binding,
            required_capabilities=frozenset(self.required_capabilities),
            placement=PlacementRule(self.placement),
            retry_lost=self.retry_lost,
            max_attempts=self.max_attempts,
            **digests,
        )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * _MS))
