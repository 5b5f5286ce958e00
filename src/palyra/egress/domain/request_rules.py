"""Rules for the requests to a host: these methods, beneath these paths. They carry no secret.

A host with such rules takes only requests that one of them covers. The proxy can read the requests because it ends TLS
there, as it does for bindings of secrets.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from palyra.egress.domain.header_rules import Headers, find_override
from palyra.egress.domain.refusal import RequestNotAllowed, RequestOverridden, render
from palyra.egress.domain.rules import HostRule, find_rule, overlap, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_METHOD_BYTES, MAX_PATH_PREFIX_CHARS
from palyra.errors import InvalidInput

ANY_PATH: Final = "/"
_METHOD: Final = re.compile(r"[A-Z][A-Z-]*")
_PREFIX: Final = re.compile(r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+/?")
# Servers decode, collapse or cut these before they choose what answers. The last ones are dots and slashes in more
# bytes than UTF-8 allows, and in a spelling of IIS.
_ODD_PATH: Final = re.compile(
    r"//|%(?:2[ef]|5c|25|00)|\\|[\x00-\x20\x7f]|(?:^|/)\.{1,2}(?:[/;]|%3b|$)|%(?:c[01]|[ef]0%80|u)", re.IGNORECASE
)


class BadRequestRule(InvalidInput):
    code = "egress.bad_request_rule"
    hint = 'write hosts, then methods such as ["GET", "HEAD"] or paths such as ["/simple"], and inspect = true'


class RequestRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts, and the requests that they take. ``hosts`` are host rules; no ``methods`` means all."""

    hosts: tuple[str, ...]
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = (ANY_PATH,)
    inspect: bool = False

    def check(self) -> None:
        """Raise ``BadRequestRule`` or ``BadHostRule`` for a rule that says nothing or that nobody could enforce."""
        if not self.hosts:
            raise BadRequestRule("the rule names no hosts")
        parse_rules(self.hosts)
        for method in self.methods:
            if not _METHOD.fullmatch(method) or len(method) > MAX_METHOD_BYTES:
                raise BadRequestRule(f"{render(method)!r} is no HTTP method; they are written in capitals")
        if not self.paths:
            raise BadRequestRule("the rule has an empty list of paths, which would allow no request")
        for path in self.paths:
            require_plain_path(path)
        if not self.inspect:
            hosts = ", ".join(map(render, self.hosts))
            raise BadRequestRule(
                f"the rule for {hosts} has no inspect = true: what is inside TLS cannot be judged without",
                hint="add inspect = true: the proxy then ends TLS for these hosts, by an authority of each call's own",
            )

    def names(self, target: Target) -> bool:
        return find_rule(parse_rules(self.hosts), target.host, target.port) is not None

    def covers(self, method: str, path: str) -> bool:
        """Return whether the rule lets a request to one of its hosts through. ``path`` may have a query."""
        if self.methods and method not in self.methods:
            return False
        return not self.limits_paths or any(is_beneath(path, prefix) for prefix in self.paths)

    @property
    def limits_paths(self) -> bool:
        return ANY_PATH not in self.paths

    def __str__(self) -> str:
        methods = ", ".join(self.methods) or "every method"
        return f"{methods} {'beneath ' + ', '.join(self.paths) if self.limits_paths else 'on every path'}"


def require_plain_path(path: str) -> None:
    if not _PREFIX.fullmatch(path) or has_odd_path(path) or len(path) > MAX_PATH_PREFIX_CHARS:
        raise BadRequestRule(f"{render(path)!r} is no plain path", hint="write a path such as /simple, without escapes")


def route_of(path: str) -> str:
    return re.split(r"[?#]", path, maxsplit=1)[0]


def has_odd_path(path: str) -> bool:
    """Return whether servers could read the path as another one."""
    return _ODD_PATH.search(route_of(path)) is not None


def is_beneath(path: str, prefix: str) -> bool:
    """Return whether a path is the prefix or lies beneath it. Only whole segments count."""
    route, whole = route_of(path), prefix.removesuffix("/")
    return route.startswith("/") and (route == whole or route.startswith(whole + "/"))


def rules_for(rules: tuple[RequestRule, ...], hosts: tuple[HostRule, ...]) -> tuple[RequestRule, ...]:
    """Return the rules that concern any of a grant's hosts."""
    return tuple(rule for rule in rules if overlap(parse_rules(rule.hosts), hosts))


def describe_rules(rules: tuple[RequestRule, ...], hosts: tuple[HostRule, ...]) -> tuple[str, ...]:
    """Say in words which requests the hosts of a call take."""
    return tuple(f"{', '.join(rule.hosts)}: only {rule}" for rule in rules_for(rules, hosts))


def is_inspected(rules: Iterable[RequestRule], target: Target) -> bool:
    return any(rule.names(target) for rule in rules)


def require_request(
    rules: tuple[RequestRule, ...], target: Target, method: str, path: str, headers: Headers = ()
) -> None:
    """Raise ``RequestNotAllowed`` or ``RequestOverridden`` unless a rule of the host covers the request.

    A host without rules takes every request.
    """
    named = [rule for rule in rules if rule.names(target)]
    if not named:
        return
    covering = [rule for rule in named if rule.covers(method, path)]
    where = {**target.where, "method": method, "path": render(route_of(path))}
    if not covering:
        raise RequestNotAllowed(
            f"{method} {render(route_of(path))} is not allowed at {target.authority}:"
            f" only {'; '.join(map(str, named))}",
            **where,
        )
    if all(rule.limits_paths for rule in covering) and has_odd_path(path):
        raise RequestNotAllowed(
            f"{render(route_of(path))!r} can be read as another path, and {target.authority} has rules for paths",
            **where,
        )
    found = find_override(
        headers,
        path,
        method_matters=any(rule.methods for rule in named),
        path_matters=any(rule.limits_paths for rule in named),
    )
    if found is not None:
        raise RequestOverridden(
            f"{found} names another method, path or host than the request to {target.authority}", **where
        )
