"""Bindings of secrets to requests, and placeholders for secrets in headers.

A binding says where a secret may go: to these hosts, by these methods, beneath this path. The proxy adds it; the tool
never holds it.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed, render
from palyra.egress.domain.request_rules import (
    ANY_PATH,
    BadRequestRule,
    has_odd_path,
    is_beneath,
    require_plain_path,
    route_of,
)
from palyra.egress.domain.rules import HostRule, find_rule, overlap, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_HEADER_NAME_CHARS
from palyra.errors import InvalidInput
from palyra.vault.reference import SecretRef

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLACEHOLDER: Final = re.compile(r"\{\{vault:([^{}\s]{1,256})\}\}")
# Visible ASCII and spaces: what a header value may hold without any server reading an end of line in it.
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
# Headers that say how the message is framed or where it goes: no secret belongs in them.
_NOT_FOR_SECRETS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "proxy-connection", "keep-alive", "te"),
        *("trailer", "upgrade", "expect", "proxy-authenticate", "proxy-authorization"),
    }
)


class BadBinding(InvalidInput):
    code = "egress.bad_binding"
    hint = "a binding needs header_name, secret_ref as scope/key, and the hosts it is for"


class CredentialBindingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One secret, the header that carries it, and the requests it goes with.

    ``hosts`` are host rules; no ``methods`` means all; ``prefix`` is the text before the secret, such as ``Bearer ``.
    Where ``required`` is set a request that the binding covers does not go out without the secret.
    """

    header_name: str
    secret_ref: str
    hosts: tuple[str, ...]
    required: bool = True
    methods: tuple[str, ...] = ()
    path_prefix: str = "/"
    prefix: str = ""

    def check(self) -> None:
        """Raise ``BadBinding`` or ``BadHostRule`` if the binding could never work or never be safe."""
        name = self.header_name
        if not _TOKEN.fullmatch(name) or len(name) > MAX_HEADER_NAME_CHARS or name.lower() in _NOT_FOR_SECRETS:
            raise BadBinding(f"{render(name)!r} is no header that may carry a secret")
        try:
            SecretRef.parse(self.secret_ref)
        except InvalidInput as error:
            raise BadBinding(f"{render(self.secret_ref)!r} is no secret reference", hint=error.hint) from error
        if not self.hosts:
            raise BadBinding(f"the binding of {self.secret_ref} names no hosts")
        parse_rules(self.hosts)
        for method in self.methods:
            if not _TOKEN.fullmatch(method) or method != method.upper():
                raise BadBinding(f"{render(method)!r} is no HTTP method; they are written in capitals")
        try:
            require_plain_path(self.path_prefix)
        except BadRequestRule as error:
            raise BadBinding(error.message, hint=error.hint) from None
        if not _HEADER_TEXT.fullmatch(self.prefix):
            raise BadBinding(f"the prefix of {self.secret_ref} is no header text")

    def names(self, target: Target) -> bool:
        return find_rule(parse_rules(self.hosts), target.host, target.port) is not None

    def covers(self, target: Target, method: str, path: str) -> bool:
        """Return whether this request gets the secret. ``path`` is that of the request line; its query is ignored.

        Where the binding covers only a part of the host, a path that servers could read as another one raises
        ``CredentialNotAllowed``: nobody knows whether it is inside.
        """
        if not self.names(target) or (self.methods and method not in self.methods):
            return False
        if not path.startswith("/"):
            return False
        if self.path_prefix == ANY_PATH:
            return True
        if has_odd_path(path):
            raise CredentialNotAllowed(
                f"{render(route_of(path))!r} can be read as another path,"
                f" and {self.secret_ref} is bound to {self.path_prefix}",
                **target.where,
            )
        return is_beneath(path, self.path_prefix)


def find_placeholders(header_value: str) -> tuple[str, ...]:
    """Return the references written as ``{{vault:scope/key}}`` in a header value, each once, in order."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(header_value)))


def fill_placeholders(value: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder of a header value. A placeholder inside a secret is not replaced."""

    def secret(found: re.Match[str]) -> str:
        text = values.get(found.group(1))
        if text is None:
            raise CredentialMissing(f"there is no secret for {render(found.group(1))}")
        return header_text(text, found.group(1))

    return _PLACEHOLDER.sub(secret, value)


def header_text(text: str, secret_ref: str) -> str:
    """Return the text if a header can hold it: an end of line in it would begin another header."""
    if not _HEADER_TEXT.fullmatch(text):
        raise CredentialNotAllowed(f"the secret {render(secret_ref)} has characters that no header may hold")
    return text


def bindings_for(
    bindings: tuple[CredentialBindingPlan, ...], rules: tuple[HostRule, ...]
) -> tuple[CredentialBindingPlan, ...]:
    return tuple(binding for binding in bindings if overlap(parse_rules(binding.hosts), rules))
