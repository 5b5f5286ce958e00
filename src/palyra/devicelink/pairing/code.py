"""Pairing codes: making, parsing and stretching them, and their QR codes by ``segno``, imported on first use."""

import base64
import binascii
import hashlib
import io
import ipaddress
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from palyra.errors import InvalidInput
from palyra.identity.device import DeviceKind
from palyra.secret import Secret

# It tolerates a smudge, and still fits a terminal of 80 columns.
_ERROR_CORRECTION: Final = "m"
_BORDER: Final = 2
_SVG_SCALE: Final = 4


def qr_terminal(text: Secret) -> str:
    """Draw the code in half blocks, two rows of modules a line, for dark and light terminals."""
    import segno

    out = io.StringIO()
    segno.make(text.reveal(), error=_ERROR_CORRECTION, micro=False).terminal(out, border=_BORDER, compact=True)
    return out.getvalue()


def qr_svg(text: Secret) -> str:
    """Draw the code as an SVG element, dark on white on any page."""
    import segno

    out = io.BytesIO()
    segno.make(text.reveal(), error=_ERROR_CORRECTION, micro=False).save(
        out, kind="svg", border=_BORDER, scale=_SVG_SCALE, xmldecl=False, light="#fff", dark="#000", nl=False
    )
    return out.getvalue().decode()


class PairingMethod(StrEnum):
    PIN = "pin"
    QR = "qr"


class StretchedCode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A code's secret after scrypt, which is all that the daemon keeps. It proves the code, but does not reveal it."""

    salt: bytes
    n: int
    r: int
    p: int
    hash: bytes

    def __repr__(self) -> str:
        return "StretchedCode([redacted])"


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device's report about itself, for people. No decision depends on it."""

    name: str
    platform: str = ""
    software_version: str = ""


# A PIN code reads ``123-4567-8901``: the public nameplate, which finds the record, and eight secret digits. A QR code
# is a ``palyra://pair`` address with the server's addresses, the hash of its authority, the nameplate and a token of
# 128 bits. The daemon keeps the secret stretched by scrypt, with a salt of its own, and never the code.

NAMEPLATE_DIGITS: Final = 3
PIN_DIGITS: Final = 8
TOKEN_BYTES: Final = 16
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
# Some 50 ms and 16 MiB: a thief of the state file needs weeks to try all PINs, and a code lives for minutes.
SCRYPT_N: Final = 2**14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
MAX_ADDRESSES: Final = 8
MAX_CODE_CHARS: Final = 2_048

SCHEME: Final = "palyra"
_QR_VERSION: Final = "1"
_PIN: Final = re.compile(r"(\d{3})[- ]?(\d{4})[- ]?(\d{4})", re.ASCII)
_HEX_HASH: Final = re.compile(r"[0-9a-f]{64}")
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*"
)


class MalformedCode(InvalidInput):
    """The error of a malformed code. Its message never repeats the code."""

    code = "pairing.malformed_code"
    hint = "a code reads 123-4567-8901, or is the whole palyra://pair address out of a QR code"


class MalformedAddress(InvalidInput):
    code = "pairing.malformed_address"
    hint = "write HOST:PORT, an IPv6 address in brackets"


class ServerAddress(msgspec.Struct, frozen=True, order=True):
    host: str
    port: int

    @classmethod
    def parse(cls, raw: str) -> Self:
        host, colon, port = raw.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if bracketed else host
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65_536:
            raise MalformedAddress(f"{raw[:128]!r} has no port")
        try:
            literal = ipaddress.ip_address(bare)
        except ValueError:
            if bracketed or not _HOST.fullmatch(bare):
                raise MalformedAddress(f"{raw[:128]!r} names no host") from None
            return cls(bare.lower(), int(port))
        if bracketed != (literal.version == 6):
            raise MalformedAddress(f"{raw[:128]!r}: an IPv6 address stands in brackets, and nothing else does")
        return cls(str(literal), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PairingCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code as a device reads it. ``ca_hash``, ``addresses`` and ``kind`` come with a QR payload only."""

    method: PairingMethod
    nameplate: str
    secret: Secret
    addresses: tuple[ServerAddress, ...] = ()
    ca_hash: str = ""
    kind: DeviceKind | None = None

    def text(self) -> Secret:
        """Return the code's text, which a person sees once."""
        secret = self.secret.reveal()
        if self.method is PairingMethod.PIN:
            return Secret(f"{self.nameplate}-{secret[:4]}-{secret[4:]}")
        fields = [("v", _QR_VERSION), ("k", "" if self.kind is None else self.kind.value)]
        fields += [("a", str(address)) for address in self.addresses]
        fields += [("h", self.ca_hash), ("n", self.nameplate), ("t", secret)]
        return Secret(f"{SCHEME}://pair?{urlencode(fields)}")


def new_code(
    method: PairingMethod,
    nameplate: str,
    random: Callable[[int], bytes],
    *,
    kind: DeviceKind,
    addresses: Sequence[ServerAddress],
    ca_hash: str,
) -> PairingCode:
    if method is PairingMethod.PIN:
        return PairingCode(method=method, nameplate=nameplate, secret=Secret(_digits(random, PIN_DIGITS)))
    return PairingCode(
        method=method,
        nameplate=nameplate,
        secret=Secret(_text64(random(TOKEN_BYTES))),
        addresses=tuple(addresses[:MAX_ADDRESSES]),
        ca_hash=ca_hash,
        kind=kind,
    )


def free_nameplate(taken: frozenset[str], random: Callable[[int], bytes]) -> str:
    """Choose a nameplate that no code in force has. There are far fewer codes than nameplates."""
    start = int(_digits(random, NAMEPLATE_DIGITS))
    for step in range(10**NAMEPLATE_DIGITS):
        nameplate = f"{(start + step) % 10**NAMEPLATE_DIGITS:0{NAMEPLATE_DIGITS}d}"
        if nameplate not in taken:
            return nameplate
    raise AssertionError("every nameplate is taken: the bound on codes in force is below that")


def is_nameplate(text: str) -> bool:
    return len(text) == NAMEPLATE_DIGITS and text.isascii() and text.isdigit()


def parse_code(raw: str) -> PairingCode:
    text = raw.strip()
    if len(text) > MAX_CODE_CHARS:
        raise MalformedCode("this is too long for a pairing code")
    if text.startswith(f"{SCHEME}:"):
        return _parse_qr(text)
    found = _PIN.fullmatch(text)
    if found is None:
        raise MalformedCode("this is not a pairing code")
    return PairingCode(method=PairingMethod.PIN, nameplate=found[1], secret=Secret(found[2] + found[3]))


def stretch(secret: Secret, salt: bytes) -> StretchedCode:
    hashed = hashlib.scrypt(secret.reveal().encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, dklen=HASH_BYTES)
    return StretchedCode(salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, hash=hashed)


def _parse_qr(text: str) -> PairingCode:
    parts = urlsplit(text)
    if (parts.scheme, parts.netloc, parts.path, parts.fragment) != (SCHEME, "pair", "", ""):
        raise MalformedCode("this address is not a pairing code")
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True, max_num_fields=MAX_ADDRESSES + 5)
    except ValueError:
        raise MalformedCode("the pairing address cannot be read") from None
    fields = dict(pair for pair in pairs if pair[0] != "a")
    addresses = tuple(ServerAddress.parse(value) for name, value in pairs if name == "a")
    if len(fields) + len(addresses) != len(pairs) or set(fields) != {"v", "k", "h", "n", "t"} or not addresses:
        raise MalformedCode("the pairing address has fields too many or too few")
    if fields["v"] != _QR_VERSION:
        raise MalformedCode(f"the pairing address has version {fields['v'][:8]!r}", hint="update Palyra on this device")
    token = _bytes64(fields["t"])
    known = fields["k"] in set(DeviceKind) and is_nameplate(fields["n"]) and _HEX_HASH.fullmatch(fields["h"])
    if not known or token is None or len(token) != TOKEN_BYTES or len(addresses) > MAX_ADDRESSES:
        raise MalformedCode("the pairing address has a field with an impossible value")
    return PairingCode(
        method=PairingMethod.QR,
        nameplate=fields["n"],
        secret=Secret(_text64(token)),
        addresses=addresses,
        ca_hash=fields["h"],
        kind=DeviceKind(fields["k"]),
    )


def _digits(random: Callable[[int], bytes], count: int) -> str:
    """Draw a number. 128 random bits leave no exploitable bias."""
    return f"{int.from_bytes(random(16)) % 10**count:0{count}d}"


def _text64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
