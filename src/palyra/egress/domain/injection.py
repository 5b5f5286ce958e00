"""What becomes of a request's headers when its host has credential bindings. Values in, values out.

The tool never holds the secret: it sends its request without one, or with a placeholder, and the header is set here.
Its own copy of a bound header is dropped, in any spelling: a tool that could choose the credential could send what it
read with our permission to an account of its own at the same host.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from palyra.egress.domain.credential import CredentialBindingPlan, fill_placeholders, find_placeholders
from palyra.egress.domain.events import SecretSource
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.redaction import spellings
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed
from palyra.egress.domain.rules import find_rule, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_SECRET_BYTES, MIN_SECRET_BYTES
from palyra.secret import Secret

Headers = tuple[tuple[str, str], ...]

# A reply that is compressed, cut into ranges or turned into another protocol cannot be scanned for the secret.
UNSCANNABLE: Final = frozenset({"accept-encoding", "range", "if-range", "te", "upgrade", "http2-settings"})


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One header to set. ``written`` is the caller's own text with placeholders in it, or nothing."""

    header_name: str
    secret_ref: str
    prefix: str = ""
    required: bool = True
    written: str = ""


class InjectionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``kept`` are the caller's headers that go on as they are; ``dropped`` names those that do not."""

    kept: Headers
    dropped: tuple[str, ...] = ()
    injections: tuple[Injection, ...] = ()


def bound_to(grant: EgressGrant, target: Target) -> tuple[CredentialBindingPlan, ...]:
    """The bindings of this host, whatever the method and path."""
    return tuple(binding for binding in grant.bindings if binding.names(target))


def plan_injection(grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> InjectionPlan:
    """Raises ``CredentialNotAllowed`` for a placeholder that no binding allows here."""
    bindings = bound_to(grant, target)
    covering = {_folded(one.header_name): one for one in reversed(bindings) if one.covers(target, method, path)}
    for binding in covering.values():
        _refuse_in_clear(binding, target)
    owned = {_folded(one.header_name) for one in bindings}
    written: dict[str, str] = {}
    kept: list[tuple[str, str]] = []
    dropped: list[str] = []
    for name, value in headers:
        folded = _folded(name)
        refs = find_placeholders(value)
        if refs:
            found = covering.get(folded)
            if found is None or set(refs) != {found.secret_ref}:
                raise CredentialNotAllowed(
                    f"no binding lets {name} carry {', '.join(refs)} to {target.authority}", host=target.host
                )
            written[folded] = value
        elif folded in owned:
            dropped.append(name)
        else:
            kept.append((name, value))
    injections = tuple(
        Injection(
            header_name=binding.header_name,
            secret_ref=binding.secret_ref,
            prefix=binding.prefix,
            required=binding.required,
            written=written.get(folded, ""),
        )
        for folded, binding in covering.items()
    )
    if injections:
        dropped.extend(name for name, _ in kept if _folded(name) in UNSCANNABLE)
        kept = [(name, value) for name, value in kept if _folded(name) not in UNSCANNABLE]
        kept.append(("Accept-Encoding", "identity"))
    return InjectionPlan(kept=tuple(kept), dropped=tuple(dropped), injections=injections)


def _refuse_in_clear(binding: CredentialBindingPlan, target: Target) -> None:
    """Without TLS everybody on the way reads the secret: only a binding that names the port has asked for that."""
    if target.scheme == "https":
        return
    rule = find_rule(parse_rules(binding.hosts), target.host, target.port)
    if rule is None or rule.port is None:
        raise CredentialNotAllowed(
            f"{binding.secret_ref} does not go to {target.authority} without TLS unless its binding names the port",
            host=target.host,
            port=target.port,
        )


def inject(plan: InjectionPlan, values: Mapping[str, Secret]) -> Headers:
    """The headers to send. A binding that is not required and has no value leaves its header out."""
    added = []
    for one in plan.injections:
        if one.secret_ref in values:
            value = values[one.secret_ref].reveal()
            refuse_unfit(one.secret_ref, value)
            text = fill_placeholders(one.written, {one.secret_ref: value}) if one.written else one.prefix + value
            added.append((one.header_name, text))
    return (*plan.kept, *added)


def needles_of(plan: InjectionPlan, values: Mapping[str, Secret]) -> tuple[bytes, ...]:
    """What must not come back."""
    found: dict[bytes, None] = {}
    for one in plan.injections:
        if one.secret_ref in values:
            found.update(dict.fromkeys(spellings(values[one.secret_ref].reveal())))
    return tuple(sorted(found, key=len, reverse=True))


def refuse_unfit(secret_ref: str, value: str) -> None:
    """A secret that is no header value, or that could not be told from ordinary text in a reply."""
    size = len(value.encode())
    if not value.isascii() or not value.isprintable():
        raise CredentialNotAllowed(f"{secret_ref} has characters that no header can carry")
    if not MIN_SECRET_BYTES <= size <= MAX_SECRET_BYTES:
        raise CredentialNotAllowed(
            f"{secret_ref} has {size} bytes; a header takes {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}"
        )


def _folded(name: str) -> str:
    """Servers that hand headers on as variables read ``x_api_key`` and ``X-Api-Key`` as one."""
    return name.lower().replace("_", "-")


# The secrets that a request's plan asks for, each decided and recorded by whoever holds them, and asked for once.


async def revealed(secrets: SecretSource, grant: EgressGrant, plan: InjectionPlan, target: Target) -> dict[str, Secret]:
    """By their references. One that is missing is fatal only where its binding, or the caller's own text, needs it."""
    values: dict[str, Secret] = {}
    missing: set[str] = set()
    for one in plan.injections:
        needed = one.required or bool(one.written)
        if one.secret_ref in values or (one.secret_ref in missing and not needed):
            continue
        try:
            values[one.secret_ref] = await secrets.reveal(grant, one.secret_ref, target)
        except CredentialMissing:
            if needed:
                raise
            missing.add(one.secret_ref)
    return values
