"""The bounds of the fleet's service in the daemon, each with its reason. The ledger's own are in ``limits``."""

from typing import Final

from palyra.limits import KIB, MIB

PROTOCOL_VERSION: Final = 1
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

CHUNK_BYTES: Final = 256 * KIB
# What is kept of files for leases on this disk, and for how long after the last lease that named them.
MAX_STORED_BYTES: Final = 8 * 1_024 * MIB
KEPT_ARTIFACT_SECONDS: Final = 600.0
# Between two rounds of pruning the ledger and the artifacts.
PRUNE_SECONDS: Final = 60.0
MAX_DIGESTS_ASKED: Final = 1_024
