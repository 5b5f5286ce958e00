"""The bounds of the fleet, each with its reason. What an operator may choose is in ``fleet_policy``, within these."""

from typing import Final

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MAX_PLUGIN_TOOL_INPUT_BYTES, MIB

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


# Every bound of a worker's own, with its reason. What it shares with the ledger is in ``workers.limits``.

PROTOCOL_VERSION: Final = 1

DEFAULT_SLOTS: Final = 4
# Leases that are not settled, ended ones included: what a daemon may make this machine keep.
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

# Files and folders that are looked at when the results of a call are gathered; beyond it the call has failed.
MAX_SCRATCH_ENTRIES: Final = 100_000
MAX_SCRATCH_DEPTH: Final = 64
# Room that stays free on the disk of the scratch workspaces, whatever a lease brings.
FREE_BYTES: Final = 64 * MIB
# What is left after a cleanup is counted this far: more makes no difference.
MAX_COUNTED: Final = 10_000
CHUNK_BYTES: Final = 256 * KIB

# Output shown while a call runs goes in pieces of this size; it is for people who watch.
OUTPUT_CHUNK_BYTES: Final = 32 * KIB
# What waits to be sent. Output is left out when it is full; nothing else is sent that often.
MAX_WAITING_EVENTS: Final = 4_096
# Messages on the wire, as the daemon's listener takes them.
MAX_MESSAGE_BYTES: Final = 2 * MIB
# A settlement with its result and attestation; one that is larger is told as a failure.
MAX_SETTLEMENT_BYTES: Final = MAX_MESSAGE_BYTES - 64 * KIB
DEFAULT_BATCH_BYTES: Final = 1 * MIB

KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 20_000
# From the connection to the answer on the attestation.
OPEN_SECONDS: Final = 30.0
CALL_SECONDS: Final = 15.0
# One artifact, at the slowest rate that still fits a lease.
ARTIFACT_SECONDS: Final = 300.0
SHORTEST_HEARTBEAT_MS: Final = 50
# A link whose heartbeats stay unanswered for this many intervals is dead, whatever TCP believes.
SILENT_INTERVALS: Final = 3
# An answer that this worker is not known may be a daemon in the middle of its start; this many in a row are not.
MAX_REFUSALS: Final = 3
# A worker that stops lets its leases end by themselves this long, then ends them.
WIND_DOWN_SECONDS: Final = 30.0
# How long a farewell, and settlements on their way, may take to be answered.
FAREWELL_SECONDS: Final = 5.0
# An attestation is asked for anew long before this; it only bounds what a copy is worth.
ATTESTATION_LIFE_MS: Final = 3_600_000
# The document that says what image this machine runs.
MAX_IMAGE_FILE_BYTES: Final = 64 * KIB


# Every bound of a worker's egress proxy, with its reason.

# One message on the doors' socket; lists of hosts are its longest part.
MAX_HANDOVER_MESSAGE_BYTES: Final = 64 * KIB
# The sockets of one sandbox: 64 ports, two for names, one for programs that ask for a proxy.
MAX_LISTENER_SOCKETS: Final = 67
# Questions of one worker that are being answered; leases wait for their grant here.
MAX_REQUESTS_AT_ONCE: Final = 1_024
# Connections that wait to be looked at; all but one are turned away.
HANDOVER_BACKLOG: Final = 16

# Leases that a proxy keeps: more than a worker can have at once, ended ones included.
MAX_LEASES_KEPT: Final = 4_096
MAX_HOSTS_OF_A_LEASE: Final = 256
MAX_FIELD_CHARS: Final = 256
# The offer of a lease and its grant come on two connections: so long may the slower one take.
GRANT_WAIT_SECONDS: Final = 5.0
# After the end of a lease its worker has to hear of it, kill and close. Until then what the lease was allowed is
# refused without being held against the worker.
ENDED_GRACE_MS: Final = 10_000
# An ended lease is remembered, so that whoever still uses it is told apart from whoever made one up.
ENDED_KEPT_MS: Final = 3_600_000
# How often deadlines are looked at.
SWEEP_SECONDS: Final = 0.5

# As long as an attestation may claim to be valid: how soon both have to be shown anew is the daemon's to say, and the
# nonce makes a binding good for one challenge.
BINDING_LIFE_MS: Final = MAX_ATTESTATION_LIFE_MS

# The first quarantines the worker; the others are for people. The rest is in the proxy's own log.
MAX_VIOLATIONS_PER_LEASE: Final = 16
# Reports that wait for the daemon. Beyond them only the first of each lease is still taken.
MAX_SPOOLED: Final = 4_096
# A spool is written anew when what was acknowledged makes it this long.
SPOOL_REWRITTEN_BYTES: Final = 1 * MIB
MAX_SPOOL_BYTES: Final = 8 * MIB
# One report that could not be taken is offered again with the next connection, or after this long.
OFFERED_AGAIN_SECONDS: Final = 5.0

MAX_POLICY_BYTES: Final = 256 * KIB
MAX_POLICY_HOSTS: Final = 4_096

# One message of orders from the daemon.
MAX_ORDERS_MESSAGE_BYTES: Final = 4 * MIB
# What the daemon holds for one proxy that does not read.
MAX_ORDERS_WAITING: Final = 8_192
# How often the daemon looks whether the identity that follows is still good.
RECHECK_SECONDS: Final = 1.0


# The bounds of the fleet's service in the daemon, each with its reason. The ledger's own are in ``limits``.

# From the connection to the worker's first message.
HELLO_SECONDS: Final = 15.0
# Leases that a worker may name when it connects: more than it can have been given.
MAX_OPEN_LEASES_NAMED: Final = 1_024
MAX_EVENTS_PER_BATCH: Final = 1_024
# Below the listener's own bound on a message.
MAX_BATCH_BYTES: Final = 1 * MIB
# Commands that wait for one stream: offers, cancels and answers of all its leases several times over.
MAX_WAITING_COMMANDS: Final = 4_096
# Commands in one message down; offers carry their arguments.
MAX_COMMANDS_PER_MESSAGE: Final = 64
MAX_MESSAGE_DOWN_BYTES: Final = 1 * MIB
# Messages of one session that were refused, before it is cut: late settlements are honest, hundreds of them are not.
MAX_REFUSED_MESSAGES: Final = 256
# Commands decided in one transaction, so that none waits long for its neighbours.
MAX_DECIDED_TOGETHER: Final = 256
# Heartbeats wait for others for this part of their interval: late by so little, none is missed.
BEATS_GATHER_SHARE: Final = 0.05
# From so many ended leases a second on, answers that nobody waits for travel with the next message: each message costs
# more than a tenth of a millisecond, whatever is in it.
BUSY_LEASES_A_SECOND: Final = 100
# Streams that end with the daemon, or are cut, get this long to hear why.
GOODBYE_SECONDS: Final = 1.0

# A grant is for a call that is being made now.
GRANT_VALID_MS: Final = 900_000
# How long a call that was cancelled waits for its worker's word that it stopped.
CANCEL_SECONDS: Final = 1.0
MAX_PLACEMENTS: Final = 16

# The end of what a call prints on a worker, kept while it runs for whoever watches.
MAX_OUTPUT_KEPT_BYTES: Final = 64 * KIB
MAX_OUTPUT_CHUNK_BYTES: Final = 256 * KIB
# What is kept of files for leases on this disk, and for how long after the last lease that named them.
MAX_STORED_BYTES: Final = 8 * 1_024 * MIB
KEPT_ARTIFACT_SECONDS: Final = 600.0
# Between two rounds of pruning the ledger and the artifacts.
PRUNE_SECONDS: Final = 60.0
MAX_DIGESTS_PER_REQUEST: Final = 1_024
