"""The bounds of the egress proxy, each with its reason. The first group are the operator's to change."""

from typing import Final

import msgspec

from palyra.limits import KIB, MIB


class ProxyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one proxy process gives away at most, and for how long."""

    # Every tunnel holds two descriptors; beyond this the tunnel that was silent longest makes room.
    max_tunnels: int = 12_000
    # From the first byte of a request, a greeting or a TLS hello to its last: honest clients need one round trip.
    handshake_seconds: float = 10.0
    # A tunnel on which nothing moved this long is cut; long polls and idle pools live below it.
    idle_seconds: float = 300.0
    # One attempt at one address: a host that drops packets must not hold the caller for the kernel's two minutes.
    connect_seconds: float = 10.0
    # A tunnel this long silent may be taken to make room for a new one when the proxy is full.
    spare_after_seconds: float = 5.0
    # How often deadlines are looked at: one walk over all tunnels costs less than a timer for each.
    sweep_seconds: float = 0.5


# One read while a handshake goes on: a TLS hello with a post-quantum key share fits.
HANDSHAKE_READ_BYTES: Final = 16 * KIB
# One read of bytes that are only passed on; it lives in one buffer of the loop, not in one per tunnel.
RELAY_READ_BYTES: Final = 256 * KIB
# Copies of a body inside an HTTP conversation, which Python has to look at.
BODY_READ_BYTES: Final = 128 * KIB
# Rounds of one flow before other tunnels get their turn.
ROUNDS_PER_TURN: Final = 4
# Sockets looked at before the loop does something else.
EVENTS_PER_TURN: Final = 256
# Connections taken from one listener before the loop serves the others.
ACCEPTS_PER_TURN: Final = 32
# Waiting connections of a listener that the proxy makes itself.
LISTEN_BACKLOG: Final = 1024
# A connection to the proxy port on which nothing was said waits in the kernel this long before we see it.
DEFER_ACCEPT_SECONDS: Final = 5
# Between programs of one machine nothing is congested. The default of some machines paces what it sends, and halves
# what a loopback can carry; this one does not, and every Linux has it and lets everybody use it.
LOOPBACK_CONGESTION: Final = b"reno"
# When the process has no descriptor left a listener rests this long instead of spinning.
ACCEPT_PAUSE_SECONDS: Final = 0.1
# Descriptors for everything that is no tunnel: listeners, files, the resolver's sockets.
SPARE_DESCRIPTORS: Final = 512
# What is asked for at the start: two for each tunnel and the spare ones.
WANTED_DESCRIPTORS: Final = 2 * 12_000 + SPARE_DESCRIPTORS
# Addresses of one name tried in turn before the caller is told that none answers.
MAX_DIALLED_ADDRESSES: Final = 4
# Processes that serve one address: more than any machine has cores for.
MAX_PROCESSES: Final = 64
# A process takes its next portion of a shared budget when less than this is left to it, and the portion is a part of
# what is left to all, between these: near the end no process sits on much of it.
MIN_LEASE_BYTES: Final = 4 * KIB
MAX_LEASE_BYTES: Final = 16 * MIB
SHARES_OF_THE_REST: Final = 64
# Refusals that a usage report carries; the rest are counted.
MAX_REFUSALS_KEPT: Final = 64
# Refusals that one grant tells the observer about; a program that asks for ever fills no journal.
MAX_REFUSALS_TOLD: Final = 1_000
# Bytes and time that a refused client gets to read why, while its own last words are thrown away.
FAREWELL_BYTES: Final = 64 * KIB
FAREWELL_SECONDS: Final = 1.0
# Datagrams answered before the loop serves others.
DATAGRAMS_PER_TURN: Final = 32
# The head of an upstream proxy's answer.
MAX_UPSTREAM_HEAD_BYTES: Final = 16 * KIB
# Requests on one kept-alive connection: a bound on what one connection may do, far above a busy client.
MAX_REQUESTS_PER_CONNECTION: Final = 10_000
