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
from typing import Final
from urllib.parse import quote, quote_plus

from palyra.egress.injection_limits import MIN_SCANNED_BYTES

_FILLER: Final = b"*"
_BASIC: Final = "basic "


def spellings(value: str, prefix: str = "") -> tuple[bytes, ...]:
    """The value as servers write it: plain, in a URL, in JSON, in HTML, in hex and inside a base64 text."""
    plain = [value]
    if prefix.lower() == _BASIC:
        plain.extend(_basic_parts(value))
    found: set[bytes] = set()
    for text in plain:
        raw = text.encode()
        for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
            found.add(quoted.encode())
            found.add(_lower_escapes(quoted).encode())
        found.update(
            (
                raw,
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
    return [pair, pair.partition(":")[2]]


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
        self._pattern = re.compile(b"|".join(map(re.escape, needles))) if needles else None
        self._held = b""
        self.times = 0

    @property
    def active(self) -> bool:
        return self._pattern is not None

    def receive(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        text = self._overwrite(self._held + data)
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> bytes:
        rest, self._held = self._held, b""
        return rest

    def whole(self, data: bytes) -> bytes:
        """For a text that is there in full, such as a header's value."""
        return data if self._pattern is None else self._overwrite(data)

    def _overwrite(self, text: bytes) -> bytes:
        assert self._pattern is not None
        cleaned, times = self._pattern.subn(lambda found: _FILLER * len(found.group()), text)
        self.times += times
        return cleaned if times else text

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
