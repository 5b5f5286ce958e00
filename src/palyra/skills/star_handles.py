"""What a guest means through a handle for more than one thing.

A handle whose grant has a star names no single host or channel, so the guest names it itself: a request's path begins
with ``//HOST/`` (or ``//HOST:PORT/``), a message with a line that is the channel's name. What it names has to fit the
grant of that very handle. Through any other handle, path and text are what they are.
"""

from palyra.egress.rules import BadHostRule, HostRule
from palyra.skills.capabilities import CHANNEL_NAME, STAR
from palyra.skills.manifest_limits import MAX_CAPABILITY_CHARS
from palyra.wasm.abi import Status
from palyra.wasm.ports import HostRefusal

_AUTHORITY = "//"


def host_meant(granted: str, path: str) -> tuple[HostRule, str]:
    """The one host of a request through the handle of ``granted``, and the path there."""
    rule = HostRule.parse(granted)
    if not rule.below:
        return rule, path
    if not path.startswith(_AUTHORITY):
        raise HostRefusal(Status.BAD_REQUEST)
    authority, _, rest = path.removeprefix(_AUTHORITY).partition("/")
    try:
        named = HostRule.parse(authority)
    except BadHostRule:
        raise HostRefusal(Status.BAD_REQUEST) from None
    if named.below:
        raise HostRefusal(Status.BAD_REQUEST)
    port = rule.port if named.port is None else named.port
    if not rule.covers(named.host, port):
        raise HostRefusal(Status.DENIED)
    return HostRule(named.host, port), f"/{rest}"


def host_named(granted: str, path: str) -> str:
    """The host of a request as the manifest writes it, or, where that has a star, as the guest did: to be shown."""
    if not HostRule.parse(granted).below or not path.startswith(_AUTHORITY):
        return granted
    return path.removeprefix(_AUTHORITY).partition("/")[0]


def channel_meant(granted: str, text: str) -> tuple[str, str]:
    """The channel of a message through the handle of ``granted``, and the message itself."""
    if granted != STAR:
        return granted, text
    channel, _, message = text.partition("\n")
    if len(channel) > MAX_CAPABILITY_CHARS or not CHANNEL_NAME.fullmatch(channel):
        raise HostRefusal(Status.BAD_REQUEST)
    return channel, message
