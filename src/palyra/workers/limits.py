"""The bounds of the fleet, each with its reason. What an operator may choose is in ``fleet_policy``, within these."""

from typing import Final

from palyra.limits import KIB, MIB

# Statements that workers sign: facts and digests, never contents.
MAX_STATEMENT_BYTES: Final = 64 * KIB
# Clocks of machines that synchronise at all differ by less.
MAX_CLOCK_SKEW_MS: Final = 30_000
# An attestation that outlives its interval would only help who copies it.
MAX_ATTESTATION_LIFE_MS: Final = 24 * 3_600_000
MAX_CAPABILITIES: Final = 128
MAX_CAPABILITY_CHARS: Final = 128
MAX_NAME_CHARS: Final = 128
MAX_REASON_CHARS: Final = 1_024
NONCE_HEX_CHARS: Final = 64

# The scope of a lease: a call that needs more paths names their parent.
MAX_SCOPE_PATHS: Final = 256
MAX_SCOPE_ROOT_CHARS: Final = 4_096
MAX_ARTIFACTS: Final = 1_024
MAX_ARTIFACT_BYTES: Final = 256 * MIB
MAX_ARTIFACTS_BYTES: Final = 1_024 * MIB

# A fleet beyond this needs a second daemon.
MAX_WORKERS: Final = 10_000
MAX_SLOTS: Final = 256
MIN_HEARTBEAT_MS: Final = 100
MAX_HEARTBEAT_TIMEOUT_MS: Final = 3_600_000
MAX_LEASE_TTL_MS: Final = 24 * 3_600_000
MAX_ATTEMPTS: Final = 10
# Calls that wait for a worker; the next one is told to come back rather than queued without end.
MAX_WAITING: Final = 10_000

# Ended leases and used grants are kept for duplicates and questions, then only the journal tells of them.
KEPT_AFTER_END_MS: Final = 24 * 3_600_000
# A removed worker's id stays refused much longer than any certificate lives.
KEPT_AFTER_REMOVAL_MS: Final = 30 * 24 * 3_600_000
# What one round of the reaper or of pruning takes on, so that it never holds the store for long.
MAX_PER_ROUND: Final = 500
# Between two rounds of the reaper.
REAPER_INTERVAL_MS: Final = 500
