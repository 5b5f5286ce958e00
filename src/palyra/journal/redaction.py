"""Redactor that removes secrets from events before they are hashed and stored.

Three things are secret: every ``Secret``, every known value in any of its usual encodings, and every value under a key
that names a secret. Then long strings are clipped and the whole payload is bounded, so that nobody can fill the disk
through the record of a refusal.
"""

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from palyra.canonical import canonical_json
from palyra.limits import MAX_EVENT_PAYLOAD_BYTES, MAX_JOURNAL_STRING_CHARS, MAX_JSON_DEPTH
from palyra.secret import REDACTED, Secret
from palyra.store.event import MAX_FIELD_CHARS

# A shorter value occurs everywhere by chance: it is removed only where it is the whole string.
MIN_KNOWN_CHARS = 4
# A line of a multi-line secret, such as a private key in PEM, is secret by itself from this length on.
_MIN_LINE_CHARS = 16
_BYTES_PER_GROUP = 3
_CHARS_PER_GROUP = 4


def list_encodings(value: str) -> frozenset[str]:
    """Encode a value as itself, escaped for JSON or a URL, in hex, and inside base 64."""
    # A file's last line feed hardly ever occurs with the rest.
    found = {*_encode(value), *_encode(value.strip())}
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= _MIN_LINE_CHARS and not line.startswith("-----"):
                found.update(_encode(line.strip()))
    return frozenset(pattern for pattern in found if len(pattern) >= MIN_KNOWN_CHARS)


def _encode(value: str) -> Iterator[str]:
    if len(value) < MIN_KNOWN_CHARS:
        return
    raw = value.encode("utf-8", "backslashreplace")
    text = raw.decode()
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    for escaped in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield escaped
        yield _lower_escapes(escaped)
    yield raw.hex()
    yield raw.hex().upper()
    for shift in range(_BYTES_PER_GROUP):
        core = _base64_core(raw, shift)
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _base64_core(raw: bytes, shift: int) -> str:
    """Return the base 64 that ``raw`` alone decides when ``shift`` unknown bytes stand before it, and others after."""
    encoded = base64.b64encode(b"\x00" * shift + raw).decode().rstrip("=")
    # Characters that hold bits of a neighbour: those of the shifted-in bytes, and a last partial one.
    first = -(-shift * _CHARS_PER_GROUP // _BYTES_PER_GROUP)
    whole = (shift + len(raw)) * 8 // 6
    return encoded[first:whole]


def _lower_escapes(escaped: str) -> str:
    head, *rest = escaped.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


# Up to this many patterns, a search for each in turn is faster than one pass through the text.
FEW = 64


class PatternSet:
    """Patterns of at least ``MIN_KNOWN_CHARS`` characters, searched together. One thread adds, any may search.

    A vault may hold thousands of values with a dozen encodings each. With many patterns the time depends on the text
    alone: their first characters select the candidates.
    """

    def __init__(self) -> None:
        self._few: tuple[str, ...] = ()
        self._by_head: dict[str, tuple[str, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            head = pattern[:MIN_KNOWN_CHARS]
            same_head = self._by_head.get(head, ())
            if pattern in same_head:
                continue
            # Longest first. The tuple is replaced, so that a concurrent search sees the old or the new one.
            self._by_head[head] = tuple(sorted((*same_head, pattern), key=len, reverse=True))
            if self._count < FEW:
                self._few = (*self._few, pattern)
            self._count += 1

    def match(self, text: str) -> bool:
        if self._count <= FEW:
            return any(pattern in text for pattern in self._few)
        heads = (text[at : at + MIN_KNOWN_CHARS] for at in range(len(text) - MIN_KNOWN_CHARS + 1))
        if self._by_head.keys().isdisjoint(heads):
            return False
        return next(self._find_spans(text), None) is not None

    def replace_in(self, text: str, replacement: str, *, broken_off: bool = False) -> str:
        """Replace every match of a pattern, also where matches overlap.

        The end of a text that is ``broken_off`` matches if it begins a pattern, from ``MIN_KNOWN_CHARS`` on.
        """
        if not broken_off and not self.match(text):
            return text
        parts: list[str] = []
        kept_from = 0
        stretch: tuple[int, int] | None = None
        for start, end in self._find_spans(text, broken_off=broken_off):
            if stretch is not None and start < stretch[1]:
                stretch = (stretch[0], max(end, stretch[1]))
                continue
            if stretch is not None:
                parts += (text[kept_from : stretch[0]], replacement)
                kept_from = stretch[1]
            stretch = (start, end)
        if stretch is not None:
            parts += (text[kept_from : stretch[0]], replacement)
            kept_from = stretch[1]
        return "".join((*parts, text[kept_from:]))

    def _find_spans(self, text: str, *, broken_off: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the longest match at each place, in order."""
        for at in range(len(text) - MIN_KNOWN_CHARS + 1):
            for pattern in self._by_head.get(text[at : at + MIN_KNOWN_CHARS], ()):
                if text.startswith(pattern, at):
                    yield at, at + len(pattern)
                    break
                if broken_off and len(pattern) > len(text) - at and pattern.startswith(text[at:]):
                    yield at, len(text)
                    break


# Words that make a key secret wherever they stand in it.
_SECRET_WORDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "apikey", "authorization", "privatekey", "signingkey",
    "accesskey", "encryptionkey", "credential", "cookie", "bearer", "sessionkey", "masterkey",
)  # fmt: skip
# Words that make a key secret when they end it: `max_tokens` counts, `access_token` unlocks.
_SECRET_LAST_WORDS = frozenset(("token", "pass", "pwd", "pin", "otp", "jwt", "auth"))
# Endings of a key that is about a secret, not one: an audit needs names, counts and references.
_ABOUT = frozenset(
    ("id", "ids", "name", "names", "count", "ref", "refs", "digest", "type", "kind", "scope",
     "scopes", "length", "bytes", "at", "ttl", "seconds", "ms")
)  # fmt: skip
_sorted = msgspec.json.Encoder(order="sorted")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
# Keys come from our own code and from agents' arguments; only the former repeat, so the cache is simply emptied.
_MAX_CACHED_KEYS = 4096
_MAX_SAFE_INTEGER = 2**53 - 1
# A payload with more lists and objects probably contains itself: the slow walk then stops at a depth.
_MAX_PARTS = 65_536
_CONTAINERS = frozenset((dict, list, tuple))
# The brackets; an item with its comma, `1,`; a member, `"":1,`.
_LEAST_BYTES_AROUND, _LEAST_BYTES_OF_ITEM, _LEAST_BYTES_OF_MEMBER = 2, 2, 5
_TOO_MANY = "[clipped: more values than an entry holds]"
# Characters kept of a clipped string.
_CLIPPED_HEAD_CHARS = MAX_JOURNAL_STRING_CHARS // 2


def names_a_secret(key: str) -> bool:
    """Return whether the value under ``key`` must be redacted, for any case and separators of the key."""
    spaced = _NOT_ALPHANUMERIC.sub(" ", _CAMEL.sub(" ", key).lower()).strip()
    squeezed, last_word = spaced.replace(" ", ""), spaced.rpartition(" ")[2]
    if last_word in _ABOUT and last_word != squeezed:
        return False
    return (
        last_word in _SECRET_LAST_WORDS or squeezed.endswith("token") or any(word in squeezed for word in _SECRET_WORDS)
    )


class Redactor:
    """Redactor of known values. Every thread of the process shares it; ``register`` may be called at any time."""

    def __init__(self, known: Iterable[Secret] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._patterns = PatternSet()
        self._encoded_patterns = PatternSet()
        # Short values with their quotes: only whole strings match. The tuple is replaced, never changed.
        self._encoded_short: tuple[str, ...] = ()
        self._fit_keys: set[str] = set()
        for secret in known:
            self.register(secret)

    def register(self, secret: Secret) -> None:
        value = secret.reveal()
        with self._lock:
            if not value or value in self._values:
                return
            encodings = list_encodings(value)
            self._patterns.add(encodings)
            self._encoded_patterns.add(_json_text(pattern)[1:-1] for pattern in encodings)
            if len(value) < MIN_KNOWN_CHARS:
                self._encoded_short = (*self._encoded_short, _json_text(value))
            self._values.add(value)

    def result(self, value: Any) -> Any:
        """Remove known values from a JSON value for the agent. Return the same object if it has no known value."""
        if not self._values or not self._matches_known(msgspec.json.encode(value)):
            return value
        return self._remove_known(value)

    def json_text(self, text: str) -> tuple[str, int]:
        """Replace known values in JSON text, whatever its keys are named. Return it and how many were replaced."""
        if not self._values:
            return text, 0
        clean = self._encoded_patterns.replace_in(text, REDACTED)
        for short in self._encoded_short:
            clean = clean.replace(short, f'"{REDACTED}"')
        return clean, 0 if clean == text else max(1, clean.count(REDACTED) - text.count(REDACTED))

    def text(self, text: str) -> str:
        """Remove known values, and characters that UTF-8 cannot carry. The length is not limited."""
        text = _escape_surrogates(text)
        if text in self._values:
            return REDACTED
        return self._patterns.replace_in(text, REDACTED) if len(self._patterns) else text

    def broken_off(self, text: str) -> str:
        """Remove known values from a text whose end is missing, and a beginning of one at its end."""
        return self._patterns.replace_in(_escape_surrogates(text), REDACTED, broken_off=True)

    def fields(self, actor: str, principal: str, run: str, call: str) -> tuple[str, str, str, str]:
        """Clean an event's short fields and cut them to their bound."""
        together = f"{actor}{principal}{run}{call}"
        if not self._values and len(together) <= MAX_FIELD_CHARS and together.isascii():
            return actor, principal, run, call
        clean = [self.text(field)[:MAX_FIELD_CHARS] for field in (actor, principal, run, call)]
        return clean[0], clean[1], clean[2], clean[3]

    def payload(self, payload: Mapping[str, Any]) -> bytes:
        """Return the canonical bytes to record for ``payload``: redacted, clipped and bounded."""
        encoded = self._as_it_is(payload)
        if encoded is None or self._matches_known(encoded):
            encoded = canonical_json(self._mapping(_drop_crowds(payload), 0))
            if self._matches_known(encoded):
                # The walk missed a known value, such as one across the parts of a number list.
                encoded = canonical_json({"redacted": "a known secret ran across several values"})
            if len(encoded) > MAX_EVENT_PAYLOAD_BYTES:
                encoded = _bound(encoded)
        return encoded

    def _matches_known(self, encoded: bytes) -> bool:
        if not self._values:
            return False
        text = encoded.decode("utf-8", "replace")
        return self._encoded_patterns.match(text) or any(short in text for short in self._encoded_short)

    def _remove_known(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._remove_known(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._remove_known(item) for item in value]
        if type(value) in (int, float):
            shown = repr(value)
            clean = self.text(shown)
            return value if clean == shown else clean
        return value

    def _as_it_is(self, payload: Mapping[str, Any]) -> bytes | None:
        """Return the canonical bytes of a payload that the walk would not change, else None; nearly all are such."""
        if type(payload) is not dict or not self._is_fit(payload):
            return None
        try:
            encoded = _sorted.encode(payload)
        except UnicodeEncodeError:
            return None
        return encoded if len(encoded) <= MAX_EVENT_PAYLOAD_BYTES else None

    def _is_fit(self, values: dict[str, Any]) -> bool:
        """Return whether the payload can be written unchanged. Too many parts might be too deep."""
        waiting: list[Any] = [values]
        for each in waiting:
            items: Iterable[Any] = each
            if type(each) is dict:
                if not self._fit_keys.issuperset(each) and not all(map(self._learn, each)):
                    return False
                items = each.values()
            for value in items:
                kind = type(value)
                if kind is str:
                    if len(value) > MAX_JOURNAL_STRING_CHARS:
                        return False
                elif kind is int:
                    if not -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
                        return False
                elif kind is dict or kind is list or kind is tuple:
                    if value:
                        waiting.append(value)
                elif value is not None and kind is not bool:
                    return False
            if len(waiting) > _MAX_PARTS:
                return False
        return len(waiting) <= MAX_JSON_DEPTH or _depth_of(values) <= MAX_JSON_DEPTH

    def _learn(self, key: object) -> bool:
        """Return whether this key can be written unchanged and names no secret; cache it if so."""
        if type(key) is not str or not key.isascii() or len(key) > MAX_JOURNAL_STRING_CHARS or names_a_secret(key):
            return False
        if len(self._fit_keys) >= _MAX_CACHED_KEYS:
            self._fit_keys = set()
        self._fit_keys.add(key)
        return True

    def _value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return _clip(self.text(value))
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return self._number(value)
        if isinstance(value, Secret):
            return REDACTED
        if depth > MAX_JSON_DEPTH:
            return "[too deep]"
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._value(item, depth + 1) for item in value]
        return self._foreign(value, depth)

    def _mapping(self, mapping: Mapping[str, Any], depth: int) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, value in mapping.items():
            name = key if type(key) is str else str(key)
            if names_a_secret(name):
                clean[_clip(self.text(name))] = value if value is None else REDACTED
            else:
                clean[_clip(self.text(name))] = self._value(value, depth + 1)
        return clean

    def _number(self, value: int | float) -> Any:
        shown = repr(value)
        if len(self._patterns):
            clean = self.text(shown)
            if clean != shown:
                return clean
        # A larger float is written as an integer too, and read back as one that has no canonical form.
        return value if -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER else _clip(shown)

    def _foreign(self, value: Any, depth: int) -> Any:
        """Convert a value of another type; if that fails, record the type's name. Recording never fails by a type."""
        if isinstance(value, str):
            return _clip(self.text(str.__str__(value)))
        if isinstance(value, int):
            return self._number(int(value))
        if isinstance(value, msgspec.Struct):
            return self._mapping(msgspec.structs.asdict(value), depth)
        try:
            plain = value.value if isinstance(value, Enum) else msgspec.to_builtins(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return f"[{type(value).__name__}]"
        return f"[{type(value).__name__}]" if type(plain) is type(value) else self._value(plain, depth + 1)


def _depth_of(values: Any) -> int:
    """Count the levels below this one, of a value that is known to be finite."""
    levels, level = -1, [values]
    while level:
        levels += 1
        if levels > MAX_JSON_DEPTH:
            break
        level = [
            item
            for each in level
            for item in (each.values() if type(each) is dict else each)
            if type(item) in (dict, list, tuple)
        ]
    return levels


def _clip(text: str) -> str:
    if len(text) <= MAX_JOURNAL_STRING_CHARS:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[:_CLIPPED_HEAD_CHARS]}[clipped: {len(text)} characters, sha256 {digest}]"


def _drop_crowds(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop the parts that are too large even if each of their values were clipped.

    A search through half a million values takes a second, and none of them would be recorded.
    """
    crowds = [key for key, part in payload.items() if _is_crowd(part)]
    return {**payload, **dict.fromkeys(crowds, _TOO_MANY)} if crowds else payload


def _is_crowd(part: Any) -> bool:
    if type(part) not in _CONTAINERS:
        return False
    least, waiting = 0, [part]
    for each in waiting:
        one = _LEAST_BYTES_OF_MEMBER if type(each) is dict else _LEAST_BYTES_OF_ITEM
        least += _LEAST_BYTES_AROUND + len(each) * one
        if least > MAX_EVENT_PAYLOAD_BYTES:
            return True
        items = each.values() if type(each) is dict else each
        waiting += [item for item in items if type(item) in _CONTAINERS]
    return False


def _bound(encoded: bytes) -> bytes:
    """Replace the largest parts by their size and digest until the rest fits."""
    parts: dict[str, Any] = msgspec.json.decode(encoded)
    sizes = sorted(((len(canonical_json(part)), key) for key, part in parts.items()), reverse=True)
    excess = len(encoded) - MAX_EVENT_PAYLOAD_BYTES
    for size, key in sizes:
        stand_in = {"clipped_bytes": size, "sha256": sha256(canonical_json(parts[key])).hexdigest()}
        excess -= size - len(canonical_json(stand_in))
        parts[key] = stand_in
        if excess <= 0:
            return canonical_json(parts)
    return canonical_json({"clipped_bytes": len(encoded), "sha256": sha256(encoded).hexdigest()})


def _escape_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _json_text(text: str) -> str:
    return msgspec.json.encode(text).decode()
