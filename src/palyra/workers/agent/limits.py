"""Every bound of a worker's own, with its reason. What it shares with the ledger is in ``workers.limits``."""

from typing import Final

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MAX_PLUGIN_TOOL_INPUT_BYTES, MIB
from palyra.workers.limits import MAX_SLOTS

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
