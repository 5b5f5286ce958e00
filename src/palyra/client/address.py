"""Where the server is, parsed once. A token never travels in plain text beyond this machine by accident."""

import ipaddress
from typing import Self
from urllib.parse import urlsplit

import msgspec

from palyra.errors import InvalidInput
from palyra.secret import Secret

DEFAULT_BASE_URL = "http://127.0.0.1:7142"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BadAddress(InvalidInput):
    code = "client.bad_address"
    hint = "write http://127.0.0.1:7142 or https://host[:port]"


class PlaintextRefused(InvalidInput):
    code = "client.plaintext_refused"
    hint = "use https beyond this machine, or say allow_plaintext=True where the network itself is trusted"


class UnusableToken(InvalidInput):
    code = "client.unusable_token"
    hint = "a token is one line of visible characters, as `palyra token create` printed it"


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    tls: bool
    prefix: str = ""

    @classmethod
    def parse(cls, url: str, *, allow_plaintext: bool = False) -> Self:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadAddress(f"{url[:200]!r} is not an address") from error
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not _is_visible(url):
            raise BadAddress(f"{url[:200]!r} is not an http or https address")
        if parts.username is not None or parts.query or parts.fragment:
            raise BadAddress("an address has no user, query or fragment: pass the token as token=")
        address = cls(
            host=parts.hostname,
            port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
            tls=parts.scheme == "https",
            prefix=parts.path.rstrip("/"),
        )
        if not address.tls and not address.is_loopback and not allow_plaintext:
            raise PlaintextRefused(f"{address.host} is another machine and http does not protect the token")
        return address

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def usable_token(token: Secret | str | None) -> Secret | None:
    """Checked here, without showing it: an error further down might print the header it did not like."""
    if token is None:
        return None
    secret = token if isinstance(token, Secret) else Secret(token)
    if not _is_visible(secret.reveal()):
        raise UnusableToken("the token is empty or holds spaces, control or non-ASCII characters")
    return secret


def _is_visible(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
