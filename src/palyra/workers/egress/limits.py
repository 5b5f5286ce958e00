"""Every bound of a worker's egress proxy, with its reason."""

from typing import Final

from palyra.limits import KIB, MIB
from palyra.workers.limits import MAX_ATTESTATION_LIFE_MS

# One message on the doors' socket; lists of hosts are its longest part.
MAX_DOOR_MESSAGE_BYTES: Final = 64 * KIB
# The sockets of one sandbox: 64 ports, two for names, one for programs that ask for a proxy.
MAX_DOOR_SOCKETS: Final = 67
# Questions of one worker that are being answered; leases wait for their grant here.
MAX_ASKED_AT_ONCE: Final = 1_024
# Connections that wait to be looked at; all but one are turned away.
DOOR_BACKLOG: Final = 16

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

# Of the link to the daemon.
OPEN_SECONDS: Final = 15.0
CALL_SECONDS: Final = 15.0
# What the daemon holds for one proxy that does not read.
MAX_ORDERS_WAITING: Final = 8_192
# How often the daemon looks whether the identity that follows is still good.
RECHECK_SECONDS: Final = 1.0
