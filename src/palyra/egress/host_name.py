"""The one spelling of a host.

Programs read a strange name in different ways: one folds full-width digits, one reads ``127.1`` as loopback, one drops
a zero-width space. Whoever checks one reading and dials another is fooled. So what every program reads alike (case,
one trailing dot, plain IDNA) is folded, and everything else is refused, not guessed.
"""

import ipaddress
import re
import unicodedata
from functools import lru_cache
from typing import Final

from palyra.egress.address import address_text
from palyra.egress.limits import MAX_HOST_CHARS, MAX_LABEL_CHARS, REMEMBERED_VERDICTS
from palyra.egress.refusal import OddTarget, shown

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
# A last label that is a number makes resolvers read the whole name as an IPv4 address.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Old and new IDNA map these to different names; the last is a full stop to some.
_DEVIATIONS: Final = frozenset("ßẞς\u200c\u200d\u3002")
_ACE: Final = "xn--"
# Some scripts need them, and in the ASCII form there is nothing left to read differently.
_JOINERS: Final = "\u200c\u200d"


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def canonical_host(raw: str) -> str:
    """A name in lower-case ASCII without its trailing dot, or an address in its canonical text, without brackets."""
    # A name in non-ASCII letters is shorter than its ASCII form, so that this bound holds for both.
    if len(raw) > MAX_HOST_CHARS + len("[]"):
        raise _odd(raw, "is longer than any host name")
    if raw.startswith("[") and raw.endswith("]"):
        return _ipv6(raw, raw[1:-1])
    if ":" in raw:
        return _ipv6(raw, raw)
    name = raw.removesuffix(".")
    host = name.lower() if name.isascii() else _to_ascii(raw, name)
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(
        _LABEL.fullmatch(label) and len(label) <= MAX_LABEL_CHARS for label in labels
    ):
        raise _odd(raw, "is no host name")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(raw, host)
    for label in labels:
        if label.startswith(_ACE):
            _check_encoded_label(raw, label)
    return host


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def is_address(host: str) -> bool:
    """Whether a canonical host is an address. No canonical name ends in a number or holds a colon."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def _ipv4(raw: str, host: str) -> str:
    try:
        address = str(ipaddress.IPv4Address(host))
    except ValueError:
        raise _odd(raw, "is an address in an odd spelling") from None
    if address != raw:
        raise _odd(raw, "is an address in an odd spelling")
    return address


def _ipv6(raw: str, inside: str) -> str:
    # A zone, after %, is the business of one machine's interfaces.
    if "%" in inside:
        raise _odd(raw, "names a zone of one machine")
    try:
        return address_text(ipaddress.IPv6Address(inside))
    except ValueError:
        raise _odd(raw, "is no IPv6 address") from None


def _to_ascii(raw: str, name: str) -> str:
    lower = name.lower()
    if (
        unicodedata.normalize("NFKC", name) != name
        or unicodedata.normalize("NFKC", lower) != lower
        or len(lower) != len(name)
        or lower.casefold() != lower
        or not _DEVIATIONS.isdisjoint(name)
        or any(unicodedata.category(character)[0] in "CZ" for character in name)
        or any(unicodedata.category(label[:1] or "a")[0] == "M" for label in lower.split("."))
    ):
        raise _odd(raw, "has characters that programs read differently")
    try:
        host = lower.encode("idna").decode("ascii").lower()
        # What the encoding dropped or mapped would not come back.
        same = host.encode("ascii").decode("idna") == lower
    except UnicodeError:
        same = False
    if not same:
        raise _odd(raw, "is no host name")
    return host


def _check_encoded_label(raw: str, label: str) -> None:
    """An ``xn--`` label must stand for exactly one non-ASCII label; a counterfeit is shown as something it is not."""
    try:
        plain = label.removeprefix(_ACE).encode("ascii").decode("punycode")
        again = plain.encode("punycode").decode("ascii")
    except (UnicodeError, ValueError, OverflowError):
        raise _odd(raw, "has a label that is no IDNA") from None
    if (
        plain.isascii()
        or _ACE + again != label
        or unicodedata.normalize("NFC", plain) != plain
        or plain.lower() != plain
        or any(unicodedata.category(character)[0] in "CZ" for character in plain if character not in _JOINERS)
    ):
        raise _odd(raw, "has a label that is no IDNA")


def _odd(raw: str, why: str) -> OddTarget:
    return OddTarget(f"{shown(raw)!r} {why}", host=shown(raw))
