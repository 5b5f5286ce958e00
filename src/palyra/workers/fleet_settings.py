"""The settings of the fleet: the section `workers` of the daemon's settings file."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from palyra.workers import limits
from palyra.workers.fleet_policy import PlacementRule, WorkerFleetPolicy

_MS: int = 1_000
_DEFAULT = WorkerFleetPolicy()


def _says(description: str) -> Meta:
    return Meta(description=description)


Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
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
        _says("How often a worker says that it is there."),
    ] = _DEFAULT.heartbeat_interval_ms / _MS
    heartbeat_timeout_seconds: Annotated[
        float,
        Meta(ge=2 * limits.MIN_HEARTBEAT_MS / _MS, le=limits.MAX_HEARTBEAT_TIMEOUT_MS / _MS),
        _says("Silence after which a worker is given up and its leases are void; at least two heartbeats."),
    ] = _DEFAULT.heartbeat_timeout_ms / _MS
    attestation_seconds: Annotated[
        float,
        Meta(gt=0, le=limits.MAX_ATTESTATION_LIFE_MS / _MS),
        _says("How old a worker's attestation may get; it is asked for anew before that."),
    ] = _DEFAULT.attestation_interval_ms / _MS
    image_digests: Annotated[
        tuple[Digest, ...], _says("SHA-256 of the images that workers may run; empty takes any.")
    ] = ()
    build_digests: Annotated[
        tuple[Digest, ...], _says("SHA-256 of the builds that workers may be, as they measure them; empty takes any.")
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

    def policy(self) -> WorkerFleetPolicy:
        """Raises InvalidFleetPolicy for values that make no sense together."""
        return WorkerFleetPolicy(
            max_workers=self.max_workers,
            max_leases_per_worker=self.max_leases_per_worker,
            lease_ttl_ms=_ms(self.lease_seconds),
            settle_grace_ms=_ms(self.settle_grace_seconds),
            heartbeat_interval_ms=_ms(self.heartbeat_seconds),
            heartbeat_timeout_ms=_ms(self.heartbeat_timeout_seconds),
            attestation_interval_ms=_ms(self.attestation_seconds),
            image_digests=_pinned(self.image_digests),
            build_digests=_pinned(self.build_digests),
            artifact_digests=_pinned(self.artifact_digests),
            require_egress_binding=self.require_egress_binding,
            egress_policy_digests=_pinned(self.egress_policy_digests),
            required_capabilities=frozenset(self.required_capabilities),
            placement=PlacementRule(self.placement),
            retry_lost=self.retry_lost,
            max_attempts=self.max_attempts,
        )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * _MS))


def _pinned(digests: tuple[str, ...]) -> frozenset[str] | None:
    return frozenset(digests) or None
