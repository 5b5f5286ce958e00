"""The bounds of what devices and the daemon say to each other, each with its reason."""

from typing import Final

from palyra.limits import KIB, MAX_TOOL_INPUT_BYTES, MAX_TOOL_OUTPUT_BYTES, MIB

PROTOCOL_VERSION: Final = 1
# Where an answer that says no has our own code for it, among its trailing metadata.
CODE_KEY: Final = "palyra-code"

# A device is seen to be gone within a minute; a heartbeat is a few dozen bytes.
DEFAULT_HEARTBEAT_SECONDS: Final = 15.0
# Three heartbeats may be lost before a device counts as gone.
DEFAULT_HEARTBEAT_TIMEOUT_SECONDS: Final = 45.0
MIN_HEARTBEAT_SECONDS: Final = 0.05
MAX_HEARTBEAT_SECONDS: Final = 3600.0

# What a device may tell of each capability: read by people and by policies, and kept for every device.
MAX_CAPABILITY_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 1024
MAX_SCHEMA_BYTES: Final = 16 * KIB
# All capabilities of one device together, as they are stored.
MAX_INVENTORY_BYTES: Final = 256 * KIB

# What is sent to a device fits into a call's arguments; what comes back fits into a call's result.
MAX_INPUT_BYTES: Final = MAX_TOOL_INPUT_BYTES
DEFAULT_MAX_RESULT_BYTES: Final = 256 * KIB
MIN_RESULT_BYTES: Final = 1 * KIB
MAX_RESULT_BYTES: Final = MAX_TOOL_OUTPUT_BYTES - 4 * KIB
MAX_FAILURE_CODE_CHARS: Final = 64
MAX_FAILURE_MESSAGE_CHARS: Final = 1024
MAX_REASON_CHARS: Final = 256

# Open requests of one device, queued or with it: a device that is slow holds up nobody else's memory.
MAX_OPEN_REQUESTS_PER_DEVICE: Final = 64
# Inputs of all open requests: they are kept so that a daemon that comes back can still send them.
MAX_OPEN_INPUT_BYTES: Final = 4 * MIB
# Calls that run, or wait for a person, because one device asked for them.
MAX_EXECUTIONS_PER_DEVICE: Final = 8
# Requests that a device may name as still open when it comes back: more than it could have been given.
MAX_OPEN_REQUEST_IDS: Final = 4 * MAX_OPEN_REQUESTS_PER_DEVICE
# Commands that wait for one stream: cancels and dispatches of all its open requests, and their like.
MAX_WAITING_COMMANDS: Final = 8 * MAX_OPEN_REQUESTS_PER_DEVICE

# Messages on the wire: the largest result with room to be refused by its own code rather than by the transport.
MAX_MESSAGE_BYTES: Final = 2 * MIB
MAX_STREAMS_PER_CONNECTION: Final = 32
# Of what goes to a device. The buffer for it stays for as long as the connection: with gRPC's 16 KiB an idle connection
# takes 7 KiB more of memory, and files come no faster.
TLS_RECORD_BYTES: Final = 1 * KIB
# A connection that does nothing at all is asked whether it is still there after this long, and cut after that.
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 20_000
# A connection without any call, which an honest device has only while it changes from one to the next.
IDLE_CONNECTION_MS: Final = 120_000
# Pings from a device: more often is abuse, and gRPC ends the connection.
SHORTEST_PING_MS: Final = 5_000
HANDSHAKE_TIMEOUT_MS: Final = 10_000
# Connections at once, those included whose other end has not shown who it is yet: four for each device there may be. It
# is never more than half of the descriptors this process may have: the rest is for what is not devices.
MAX_CONNECTIONS: Final = 16_384
DESCRIPTOR_SHARE: Final = 2
# Headers of a call; ours have none of their own.
MAX_METADATA_BYTES: Final = 8 * KIB
# Streams that end with the daemon get this long to hear its goodbye.
GOODBYE_SECONDS: Final = 1.0

# Refusals of one kind by one certificate are counted always and recorded this often: a revoked device that asks
# again and again does not fill the journal. So many kinds are told apart.
REFUSALS_RECORDED_EVERY_SECONDS: Final = 60.0
MAX_REFUSAL_KINDS: Final = 1024
