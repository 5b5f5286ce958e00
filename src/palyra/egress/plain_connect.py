"""The target of an ordinary CONNECT that arrived whole and alone, without reading the same words twice.

What the machine of the HTTP face makes of some bytes depends on nothing else, so its verdict on them can be kept. Only
that they ask for a tunnel is kept: whether the tunnel is allowed is judged every time.
"""

from typing import Final

from palyra.egress.http_proxy import HttpProxyServer, Tunnel
from palyra.egress.machine_limits import MAX_REMEMBERED_CONNECT_BYTES, REMEMBERED_CONNECTS
from palyra.egress.refusal import EgressRefused
from palyra.egress.target import Target
from palyra.egress.tunnel_opening import scheme_of

_CONNECT: Final = b"CONNECT "
# Heads with any other header are read anew: one may hold a secret, and this memory outlives the connection.
_HARMLESS: Final = (b"host", b"user-agent", b"connection", b"proxy-connection", b"accept")
_known: Final[dict[bytes, Target]] = {}


def plain_connect(first: bytes) -> Target | None:
    """Where these first bytes of a client want to go; None if they are anything else, or have a fault to be named."""
    target = _known.get(first)
    if target is not None or not first.startswith(_CONNECT):
        return target
    machine = HttpProxyServer()
    commands = machine.receive(first)
    if len(commands) != 1 or machine.rest:
        return None
    asked = commands[0]
    if not isinstance(asked, Tunnel):
        return None
    try:
        target = connect_target(asked.authority)
    except EgressRefused:
        return None
    if len(first) <= MAX_REMEMBERED_CONNECT_BYTES and _is_harmless(first):
        if len(_known) >= REMEMBERED_CONNECTS:
            _known.clear()
        _known[first] = target
    return target


def connect_target(authority: str) -> Target:
    """The target of a tunnel, in the scheme of its port. Raises what refuses its spelling."""
    target = Target.from_authority(authority, scheme="tcp")
    scheme = scheme_of(target.port)
    return target if scheme == target.scheme else Target(scheme, target.host, target.port)


def _is_harmless(head: bytes) -> bool:
    fields = head.split(b"\r\n")[1:-2]
    return all(field.partition(b":")[0].lower() in _HARMLESS for field in fields)
