"""Set the headers of a request whose host has credential bindings, and remove the secrets from its answer.

The tool never holds the secret: it sends its request without one, or with a placeholder, and the proxy sets the
header. The tool's own copy of a bound header is dropped, in any spelling: a tool that could choose the credential could
send what it read to an account of its own at the same host.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from palyra.egress.domain.credential import CredentialBindingPlan, fill_placeholders, find_placeholders
from palyra.egress.domain.events import SecretSource
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.header_rules import Headers, find_override, fold_name
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed, RequestOverridden
from palyra.egress.domain.request_rules import ANY_PATH
from palyra.egress.domain.rules import find_rule, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_SECRET_BYTES, MIN_SCANNED_BYTES, MIN_SECRET_BYTES
from palyra.secret import Secret

# A reply that is compressed, cut into ranges or turned into another protocol cannot be scanned for the secret.
UNSCANNABLE: Final = frozenset({"accept-encoding", "range", "if-range", "te", "upgrade", "http2-settings"})


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One header to set. ``written`` is the caller's own text with placeholders in it, or empty."""

    header_name: str
    secret_ref: str
    prefix: str = ""
    required: bool = True
    written: str = ""


class InjectionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``kept`` are the caller's headers that are sent unchanged; ``dropped`` names those that are not sent."""

    kept: Headers
    dropped: tuple[str, ...] = ()
    injections: tuple[Injection, ...] = ()


def bound_to(grant: EgressGrant, target: Target) -> tuple[CredentialBindingPlan, ...]:
    return tuple(binding for binding in grant.bindings if binding.names(target))


def plan_injection(grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> InjectionPlan:
    """Choose the headers to keep, drop and set. Raise ``CredentialNotAllowed`` for a placeholder without a binding."""
    bindings = bound_to(grant, target)
    covering = {fold_name(one.header_name): one for one in reversed(bindings) if one.covers(target, method, path)}
    for binding in covering.values():
        _refuse_in_clear(binding, target)
        _refuse_override(binding, target, path, headers)
    owned = {fold_name(one.header_name) for one in bindings}
    written: dict[str, str] = {}
    kept: list[tuple[str, str]] = []
    dropped: list[str] = []
    for name, value in headers:
        folded = fold_name(name)
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
        dropped.extend(name for name, _ in kept if fold_name(name) in UNSCANNABLE)
        kept = [(name, value) for name, value in kept if fold_name(name) not in UNSCANNABLE]
        kept.append(("Accept-Encoding", "identity"))
    return InjectionPlan(kept=tuple(kept), dropped=tuple(dropped), injections=injections)


def _refuse_override(binding: CredentialBindingPlan, target: Target, path: str, headers: Headers) -> None:
    """Refuse to send a secret with a request that says it is another one than the binding covers."""
    found = find_override(
        headers, path, method_matters=bool(binding.methods), path_matters=binding.path_prefix != ANY_PATH
    )
    if found is not None:
        raise RequestOverridden(
            f"{found} names another method, path or host than the request that {binding.secret_ref} is for",
            **target.where,
        )


def _refuse_in_clear(binding: CredentialBindingPlan, target: Target) -> None:
    """Refuse to send a secret without TLS, where everybody on the way reads it, unless the binding names the port."""
    if target.scheme == "https":
        return
    rule = find_rule(parse_rules(binding.hosts), target.host, target.port)
    if rule is None or rule.port is None:
        raise CredentialNotAllowed(
            f"{binding.secret_ref} does not go to {target.authority} without TLS unless its binding names the port",
            **target.where,
        )


def inject(plan: InjectionPlan, values: Mapping[str, Secret]) -> Headers:
    """Return the headers to send. An optional binding without a value adds no header."""
    added = []
    for one in plan.injections:
        if one.secret_ref in values:
            value = values[one.secret_ref].reveal()
            refuse_unfit(one.secret_ref, value)
            text = fill_placeholders(one.written, {one.secret_ref: value}) if one.written else one.prefix + value
            added.append((one.header_name, text))
    return (*plan.kept, *added)


def secret_patterns(plan: InjectionPlan, values: Mapping[str, Secret]) -> tuple[bytes, ...]:
    """Return every encoding of the secrets that must not occur in the answer."""
    found: dict[bytes, None] = {}
    for one in plan.injections:
        if one.secret_ref in values:
            found.update(dict.fromkeys(list_encodings(values[one.secret_ref].reveal())))
    return tuple(sorted(found, key=len, reverse=True))


def refuse_unfit(secret_ref: str, value: str) -> None:
    """Refuse a secret that no header can hold, or that also occurs by chance in ordinary text."""
    size = len(value.encode())
    if not value.isascii() or not value.isprintable():
        raise CredentialNotAllowed(f"{secret_ref} has characters that no header can carry")
    if not MIN_SECRET_BYTES <= size <= MAX_SECRET_BYTES:
        raise CredentialNotAllowed(
            f"{secret_ref} has {size} bytes; a header takes {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}"
        )


async def reveal_all(
    secrets: SecretSource, grant: EgressGrant, plan: InjectionPlan, target: Target
) -> dict[str, Secret]:
    """Reveal each secret of the plan once, by its reference. A missing optional secret is left out."""
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


# A server may reflect what it was sent: an echo endpoint, an error page, a redirect that repeats the request. The scan
# looks for the plain value and for the encodings that servers use without meaning harm. It overwrites each with as many
# asterisks, so that lengths announced before still hold. A server that *wants* to give the secret away can hide it in
# a thousand ways; the defence against that is binding secrets to hosts.

_FILLER: Final = b"*"


def list_encodings(value: str) -> tuple[bytes, ...]:
    """Encode the value as servers write it: plain, in a URL, in JSON, in HTML, in hex and inside base64."""
    # The author of a header may write Basic in many ways, so a value that could be such a pair counts as one.
    plain = [value, *_split_basic(value)]
    found: set[bytes] = set()
    for text in plain:
        raw = text.encode()
        for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
            found.add(quoted.encode())
            found.add(_lower_escapes(quoted).encode())
        found.update(
            (
                raw,
                text.encode("utf-16-le"),
                text.encode("utf-16-be"),
                json.dumps(text)[1:-1].encode(),
                json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/").encode(),
                html.escape(text).encode(),
                raw.hex().encode(),
                raw.hex().upper().encode(),
                *_list_base64(raw),
            )
        )
    return tuple(sorted((pattern for pattern in found if len(pattern) >= MIN_SCANNED_BYTES), key=len, reverse=True))


def _split_basic(value: str) -> list[str]:
    """Return the decoded pair of a Basic credential, and its password alone."""
    try:
        pair = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [pair, pair.partition(":")[2]] if ":" in pair else []


def _lower_escapes(quoted: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found.group().lower(), quoted)


def _list_base64(raw: bytes) -> set[bytes]:
    """Return the base64 that depends on the value alone, for each of its three alignments."""
    found: set[bytes] = set()
    for before in range(3):
        padded = bytes(before) + raw
        whole = len(padded) - len(padded) % 3
        text = base64.b64encode(padded[:whole])[4 if before else 0 :]
        found.update((text, text.translate(bytes.maketrans(b"+/", b"-_"))))
    return found


class ResponseScan:
    """Scanner that overwrites secrets in a stream of pieces. ``times`` counts the overwritten ones.

    It holds the last bytes back only while they may begin a secret, so a live stream is not delayed.
    """

    def __init__(self, patterns: tuple[bytes, ...]) -> None:
        self._patterns = patterns
        self._longest = max(map(len, patterns), default=0)
        # The last bytes as they came, and as they go on.
        self._held = b""
        self._held_clean = b""
        self.times = 0

    @property
    def active(self) -> bool:
        return bool(self._patterns)

    def receive(self, data: bytes) -> bytes:
        if not self._patterns:
            return data
        text = self._held + data
        clean = self._overwrite(text, self._held_clean + data, seen=len(self._held))
        sure = len(text) - self._count_undecided(text)
        self._held, self._held_clean = text[sure:], clean[sure:]
        return clean[:sure]

    def finish(self) -> bytes:
        rest, self._held, self._held_clean = self._held_clean, b"", b""
        return rest

    def whole(self, data: bytes) -> bytes:
        """Overwrite secrets in a complete text, such as a header's value."""
        return self._overwrite(data, data, seen=0)

    def name(self, name: bytes) -> bytes:
        """Overwrite secrets in a header's name, whose case servers and proxies change freely."""
        return self._overwrite(name.lower(), name, seen=0, patterns=self._lower_patterns)

    @cached_property
    def _lower_patterns(self) -> tuple[bytes, ...]:
        return tuple({pattern.lower() for pattern in self._patterns})

    def broken_off(self, data: bytes) -> bytes:
        """Overwrite secrets in a text whose end is missing, and a beginning of a secret at its end."""
        sure = len(data) - self._count_undecided(data)
        return self.whole(data)[:sure] + _FILLER * (len(data) - sure)

    def _overwrite(self, text: bytes, clean: bytes, *, seen: int, patterns: tuple[bytes, ...] | None = None) -> bytes:
        """Overwrite in ``clean`` the secrets found in ``text``. Those within ``seen`` bytes are counted already.

        Secrets may overlap, or one may begin with another: each is searched for in the original text.
        """
        spans: list[tuple[int, int]] = []
        for pattern in self._patterns if patterns is None else patterns:
            at = text.find(pattern)
            while at != -1:
                spans.append((at, at + len(pattern)))
                at = text.find(pattern, at + len(pattern))
        if not spans:
            return clean
        changed = bytearray(clean)
        reached = 0
        for start, end in sorted(spans):
            changed[start:end] = _FILLER * (end - start)
            self.times += start >= reached and end > seen
            reached = max(reached, end)
        return bytes(changed)

    def _count_undecided(self, text: bytes) -> int:
        start = max(0, len(text) - self._longest + 1)
        tail = text[start:]
        most = 0
        for pattern in self._patterns:
            at = tail.find(pattern[:1], max(0, len(tail) - len(pattern) + 1))
            while at != -1 and len(tail) - at > most:
                if pattern.startswith(tail[at:]):
                    most = len(tail) - at
                    break
                at = tail.find(pattern[:1], at + 1)
        return most
