"""Keeps an injected secret out of what comes back.

A server may reflect what it was sent: an echo endpoint, an error page, a redirect that repeats the request. The scan
looks for the value as it is and in the spellings that servers give it without meaning harm, and overwrites each with
as many asterisks, so that lengths announced before still hold. A server that *wants* to give the secret away has it
already and can hide it in a thousand ways; binding secrets to hosts is the answer to that, not this.
"""

import base64
import binascii
import html
import json
import re
from functools import cached_property
from typing import Final
from urllib.parse import quote, quote_plus

from palyra.egress.limits import MIN_SCANNED_BYTES

_FILLER: Final = b"*"


def spellings(value: str) -> tuple[bytes, ...]:
    """The value as servers write it: plain, in a URL, in JSON, in HTML, in hex and inside a base64 text."""
    # Whoever writes the header chooses how it says Basic, so a value that could be such a pair is always taken for one.
    plain = [value, *_basic_parts(value)]
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
                *_inside_base64(raw),
            )
        )
    return tuple(sorted((needle for needle in found if len(needle) >= MIN_SCANNED_BYTES), key=len, reverse=True))


def _basic_parts(value: str) -> list[str]:
    """What a Basic credential says once decoded, and its password alone."""
    try:
        pair = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [pair, pair.partition(":")[2]] if ":" in pair else []


def _lower_escapes(quoted: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found.group().lower(), quoted)


def _inside_base64(raw: bytes) -> set[bytes]:
    """The part of a base64 text that depends on the value alone, for each of its three alignments."""
    found: set[bytes] = set()
    for before in range(3):
        padded = bytes(before) + raw
        whole = len(padded) - len(padded) % 3
        text = base64.b64encode(padded[:whole])[4 if before else 0 :]
        found.update((text, text.translate(bytes.maketrans(b"+/", b"-_"))))
    return found


class ResponseScan:
    """Reads a stream in pieces and gives it back without the secrets. ``times`` counts what was overwritten.

    The last bytes are held back only while they may be the beginning of a secret, so a live stream is not delayed.
    """

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self._needles = needles
        self._longest = max(map(len, needles), default=0)
        # The last bytes as they came, and as they go on.
        self._held = b""
        self._held_clean = b""
        self.times = 0

    @property
    def active(self) -> bool:
        return bool(self._needles)

    def receive(self, data: bytes) -> bytes:
        if not self._needles:
            return data
        text = self._held + data
        clean = self._overwritten(text, self._held_clean + data, seen=len(self._held))
        sure = len(text) - self._undecided(text)
        self._held, self._held_clean = text[sure:], clean[sure:]
        return clean[:sure]

    def finish(self) -> bytes:
        rest, self._held, self._held_clean = self._held_clean, b"", b""
        return rest

    def whole(self, data: bytes) -> bytes:
        """For a text that is there in full, such as a header's value."""
        return self._overwritten(data, data, seen=0)

    def name(self, name: bytes) -> bytes:
        """For a header's name, whose case servers and proxies change as they like."""
        return self._overwritten(name.lower(), name, seen=0, needles=self._lower_needles)

    @cached_property
    def _lower_needles(self) -> tuple[bytes, ...]:
        return tuple({needle.lower() for needle in self._needles})

    def broken_off(self, data: bytes) -> bytes:
        """For a text whose end is missing: without what may be the beginning of a secret either."""
        sure = len(data) - self._undecided(data)
        return self.whole(data)[:sure] + _FILLER * (len(data) - sure)

    def _overwritten(self, text: bytes, clean: bytes, *, seen: int, needles: tuple[bytes, ...] | None = None) -> bytes:
        """``clean`` without what ``text`` has of secrets. What ends within ``seen`` bytes was counted before.

        Secrets may overlap, or one begin with another whole one: each is looked for in the text as it came.
        """
        spans: list[tuple[int, int]] = []
        for needle in self._needles if needles is None else needles:
            at = text.find(needle)
            while at != -1:
                spans.append((at, at + len(needle)))
                at = text.find(needle, at + len(needle))
        if not spans:
            return clean
        changed = bytearray(clean)
        reached = 0
        for start, end in sorted(spans):
            changed[start:end] = _FILLER * (end - start)
            self.times += start >= reached and end > seen
            reached = max(reached, end)
        return bytes(changed)

    def _undecided(self, text: bytes) -> int:
        """How many of the last bytes could be the beginning of a secret."""
        start = max(0, len(text) - self._longest + 1)
        tail = text[start:]
        most = 0
        for needle in self._needles:
            at = tail.find(needle[:1], max(0, len(tail) - len(needle) + 1))
            while at != -1 and len(tail) - at > most:
                if needle.startswith(tail[at:]):
                    most = len(tail) - at
                    break
                at = tail.find(needle[:1], at + 1)
        return most
