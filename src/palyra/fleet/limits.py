"""The bounds of the fleet, each with its reason. The settings in ``fleet.domain.policy`` stay within them."""

from typing import Final

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MAX_PLUGIN_TOOL_INPUT_BYTES, MIB

# Statements that workers sign: facts and digests, never contents.
MAX_STATEMENT_BYTES: Final = 64 * KIB
# Clocks of machines that synchronise at all differ by less.
MAX_CLOCK_SKEW_MS: Final = 30_000
# An attestation that outlives its interval would only help the holder of a copy.
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
# Calls that wait for a worker. Any further call is refused.
MAX_WAITING: Final = 10_000

# Ended leases and used grants are kept for duplicates and questions; after that they are only in the journal.
KEPT_AFTER_END_MS: Final = 24 * 3_600_000
# A removed worker's id stays refused much longer than any certificate lives.
KEPT_AFTER_REMOVAL_MS: Final = 30 * 24 * 3_600_000
# Records in one round of the reaper or of pruning, so that no round holds the store for long.
MAX_PER_ROUND: Final = 500
# Between two rounds of the reaper.
REAPER_INTERVAL_MS: Final = 500

# Bounds of a worker.

# Raise it if a worker or daemon of the version before would fail. A new field needs no new version, and neither does a
# new command: an older worker ignores both. A new event that a worker sends often needs one: an older daemon refuses
# the event each time, and ends the session after MAX_REFUSED_MESSAGES.
PROTOCOL_VERSION: Final = 1

DEFAULT_SLOTS: Final = 4
# Leases that are not settled, including ended ones: the most that a daemon may make this machine keep.
MAX_OPEN_LEASES: Final = MAX_SLOTS
# Ids of settled leases that are remembered, so that an offer that comes again is not run again.
MAX_REMEMBERED: Final = 1_024

# The largest arguments of any tool.
MAX_ARGUMENT_BYTES: Final = MAX_PLUGIN_TOOL_INPUT_BYTES
MAX_OBLIGATION_BYTES: Final = 16 * KIB
# No lease runs longer than the longest call.
MAX_RUN_MS: Final = MAX_CALL_TIMEOUT_MS

# A note has a result of at most 1 MiB in base 64, a receipt, and names of artifacts.
MAX_NOTE_BYTES: Final = 4 * MIB

# Files and folders that a search for results visits. A call with more fails.
MAX_SCRATCH_ENTRIES: Final = 100_000
MAX_SCRATCH_DEPTH: Final = 64
# Free space that stays on the disk of the scratch workspaces.
FREE_BYTES: Final = 64 * MIB
# Leftovers of a cleanup are counted up to this number.
MAX_COUNTED: Final = 10_000
CHUNK_BYTES: Final = 256 * KIB

# The size of a piece of output, sent to people who watch a running call.
OUTPUT_CHUNK_BYTES: Final = 32 * KIB
# Events that wait to be sent. Beyond it output is dropped. No other event is that frequent.
MAX_WAITING_EVENTS: Final = 4_096
# Messages on the wire, as the daemon's listener takes them.
MAX_MESSAGE_BYTES: Final = 2 * MIB
# A settlement with its result and attestation. A larger one is reported as a failure.
MAX_SETTLEMENT_BYTES: Final = MAX_MESSAGE_BYTES - 64 * KIB
DEFAULT_BATCH_BYTES: Final = 1 * MIB

# From the connection to the answer on the attestation.
OPEN_SECONDS: Final = 30.0
CALL_SECONDS: Final = 15.0
# One artifact, at the slowest rate that still fits a lease.
ARTIFACT_SECONDS: Final = 300.0
SHORTEST_HEARTBEAT_MS: Final = 50
# A link whose heartbeats stay unanswered for this many intervals is dead, whatever TCP believes.
SILENT_INTERVALS: Final = 3
# Refusals in a row after which a worker ends. A single one may come from a daemon that is still starting.
MAX_REFUSALS: Final = 3
# A worker that stops waits this long for its leases, then ends them.
WIND_DOWN_SECONDS: Final = 30.0
# The wait for the answers to the last settlements and to the goodbye.
FAREWELL_SECONDS: Final = 5.0
# The daemon asks for a new attestation long before this. It only bounds the use of a copy.
ATTESTATION_LIFE_MS: Final = 3_600_000
# The file that names this machine's image.
MAX_IMAGE_FILE_BYTES: Final = 64 * KIB

# Bounds of a worker's egress proxy.

# One message on the handover socket. Lists of hosts are its longest part.
MAX_HANDOVER_MESSAGE_BYTES: Final = 64 * KIB
# The sockets of one sandbox: 64 ports, two for names, one for programs that ask for a proxy.
MAX_LISTENER_SOCKETS: Final = 67
# Requests of one worker at once. Requests for grants wait here.
MAX_REQUESTS_AT_ONCE: Final = 1_024
# Connections that wait to be accepted. All but one are refused.
HANDOVER_BACKLOG: Final = 16

# Leases that a proxy keeps, including ended ones. A worker has fewer at once.
MAX_LEASES_KEPT: Final = 4_096
MAX_HOSTS_OF_A_LEASE: Final = 256
MAX_FIELD_CHARS: Final = 256
# The offer of a lease and its grant come on two connections. The proxy waits this long for the grant.
GRANT_WAIT_SECONDS: Final = 5.0
# The worker needs this time to receive the end of a lease, kill and close. Until then traffic to the lease's hosts is
# refused and does not count as a violation.
ENDED_GRACE_MS: Final = 10_000
# An ended lease is remembered, so that its late use differs from an invented lease.
ENDED_KEPT_MS: Final = 3_600_000
# Time between two checks of the deadlines.
SWEEP_SECONDS: Final = 0.5

# As long as the longest attestation. The daemon asks for new ones, and the nonce binds to one challenge.
BINDING_LIFE_MS: Final = MAX_ATTESTATION_LIFE_MS

# Reports of one lease. The first quarantines the worker, the others inform people. Later ones are only logged.
MAX_VIOLATIONS_PER_LEASE: Final = 16
# Reports that wait for the daemon. Beyond it only the first of each lease is added.
MAX_SPOOLED: Final = 4_096
# A spool of this size is rewritten without the acknowledged reports.
SPOOL_REWRITTEN_BYTES: Final = 1 * MIB
MAX_SPOOL_BYTES: Final = 8 * MIB
# A report that the daemon could not take is sent again on the next connection, or after this time.
OFFERED_AGAIN_SECONDS: Final = 5.0

MAX_POLICY_BYTES: Final = 256 * KIB
MAX_POLICY_HOSTS: Final = 4_096

# One message of orders from the daemon.
MAX_ORDERS_MESSAGE_BYTES: Final = 4 * MIB
# Orders that wait for a proxy that does not read.
MAX_ORDERS_WAITING: Final = 8_192
# Time between two checks of a following proxy's identity.
RECHECK_SECONDS: Final = 1.0

# Bounds of the fleet's services in the daemon.

# From the connection to the worker's first message.
HELLO_SECONDS: Final = 15.0
# Leases that a hello may name: more than a worker can have.
MAX_OPEN_LEASES_NAMED: Final = 1_024
MAX_EVENTS_PER_BATCH: Final = 1_024
# Below the listener's bound on a message.
MAX_BATCH_BYTES: Final = 1 * MIB
# Commands that wait for one stream: several times the offers, cancels and answers of all its leases.
MAX_WAITING_COMMANDS: Final = 4_096
# Commands in one message to a worker. Offers carry their arguments.
MAX_COMMANDS_PER_MESSAGE: Final = 64
MAX_MESSAGE_DOWN_BYTES: Final = 1 * MIB
# Refused messages before a session is cut. Some late settlements are honest; hundreds are not.
MAX_REFUSED_MESSAGES: Final = 256
# Commands in one transaction, so that none waits long for the others.
MAX_DECIDED_TOGETHER: Final = 256
# Heartbeats wait for others for this part of their interval, which is too short for one to seem missing.
BEATS_GATHER_SHARE: Final = 0.05
# From this rate of ended leases a second, answers that nothing waits for travel with the next message. Each message
# costs more than a tenth of a millisecond, whatever its content.
BUSY_LEASES_A_SECOND: Final = 100
# The time for a goodbye to a stream that the daemon ends.
GOODBYE_SECONDS: Final = 1.0

# A grant is for a call that is being made now.
GRANT_VALID_MS: Final = 900_000
# The wait of a cancelled call for its worker's report.
CANCEL_SECONDS: Final = 1.0
MAX_PLACEMENTS: Final = 16

# The end of a running call's output, kept for people who watch.
MAX_OUTPUT_KEPT_BYTES: Final = 64 * KIB
MAX_OUTPUT_CHUNK_BYTES: Final = 256 * KIB
# Files of leases on this disk, and how long they are kept after their last use.
MAX_STORED_BYTES: Final = 8 * 1_024 * MIB
KEPT_ARTIFACT_SECONDS: Final = 600.0
# Between two rounds of pruning the ledger and the artifacts.
PRUNE_SECONDS: Final = 60.0
MAX_DIGESTS_PER_REQUEST: Final = 1_024
