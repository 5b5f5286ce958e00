"""Media types, charsets and content encodings of answers, with a bound on everything a stranger could make grow."""

import codecs
import re
import zlib
from collections.abc import Callable
from typing import Final, Self

import msgspec

from palyra.egress.limits import EXPANSION_LOOKED_AT_BYTES, MAX_EXPANSION, MAX_GZIP_MEMBERS, SNIFF_BYTES
from palyra.errors import Failed, LimitExceeded

_MEDIA_TYPE: Final = re.compile(r"\s*([A-Za-z0-9!#$&^_.+-]{1,64})/([A-Za-z0-9!#$&^_.+-]{1,96})\s*(?:;|$)")
_CHARSET: Final = re.compile(r""";\s*charset\s*=\s*"?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META_CHARSET: Final = re.compile(rb"""<meta[^>]{0,256}?charset\s{0,8}=\s{0,8}["']?([A-Za-z0-9_.:-]{1,40})""", re.I)
_TEXT_TYPES: Final = frozenset(
    ("application/json", "application/xml", "application/javascript", "application/ecmascript", "application/x-yaml",
     "application/yaml", "application/toml", "application/graphql", "application/sql", "application/x-ndjson",
     "application/x-www-form-urlencoded", "application/rtf", "image/svg+xml")
)  # fmt: skip
_HTML_TYPES: Final = frozenset(("text/html", "application/xhtml+xml"))
# Bytes that text never has; other control characters are removed later.
_BINARY_BYTES: Final = bytes({*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20)})
# Charset labels of the web and their codecs. Any other label (UTF-7 above all) is read as UTF-8.
_CODECS: Final = {
    "utf-8": "utf-8", "utf8": "utf-8", "unicode-1-1-utf-8": "utf-8",
    "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "windows-1252": "cp1252",
    "cp1252": "cp1252",
    "utf-16": "utf-16-le", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be",
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "tis-620": "cp874",
    **{f"windows-125{part}": f"cp125{part}" for part in range(9)},
    "koi8-r": "koi8-r", "koi8-u": "koi8-u", "ibm866": "cp866", "macintosh": "mac-roman",
    "gbk": "gb18030", "gb2312": "gb18030", "gb18030": "gb18030", "big5": "big5hkscs",
    "euc-jp": "euc-jp", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "euc-kr": "cp949",
}  # fmt: skip
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class UnknownEncoding(Failed):
    code = "fetch.unknown_encoding"
    hint = "the server compressed its answer in a way nobody asked for; format = raw_base64 returns it as it came"


class BrokenEncoding(Failed):
    code = "fetch.broken_encoding"
    hint = "the answer is not the compressed data it claims to be"


class DecompressionBomb(LimitExceeded):
    code = "fetch.decompression_bomb"
    hint = "the answer is a few bytes that unpack to very many; nothing honest does that"


class MediaType(msgspec.Struct, frozen=True, kw_only=True):
    """``essence`` is ``type/subtype`` in lower case, or empty if the server sent no usable one."""

    essence: str = ""
    charset: str = ""

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = _MEDIA_TYPE.match(raw)
        if found is None:
            return cls()
        charset = _CHARSET.search(raw)
        return cls(
            essence=f"{found.group(1)}/{found.group(2)}".lower(), charset=charset.group(1).lower() if charset else ""
        )

    @property
    def is_html(self) -> bool:
        return self.essence in _HTML_TYPES

    def is_text(self, beginning: bytes) -> bool:
        """Return whether to show the content as text. Its bytes overrule the type that the server states."""
        if _looks_binary(beginning):
            return False
        if not self.essence or self.essence == "application/octet-stream":
            return True
        return (
            self.essence.startswith("text/")
            or self.essence in _TEXT_TYPES | _HTML_TYPES
            or self.essence.endswith(("+json", "+xml", "+yaml"))
        )


def looks_like_html(media: MediaType, beginning: bytes) -> bool:
    """Return whether this is HTML, by its type or, if the server states no type, by its beginning."""
    if media.essence:
        return media.is_html
    return re.match(rb"\s{0,64}(?:<!doctype html|<html)", beginning[:SNIFF_BYTES], re.IGNORECASE) is not None


def decode_text(data: bytes, media: MediaType, *, html: bool) -> tuple[str, str]:
    """Return the text and the name of its charset. Bytes that are not text become U+FFFD."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace"), codec
    label = media.charset
    if not label and html and (found := _META_CHARSET.search(data[:SNIFF_BYTES])):
        label = found.group(1).decode("ascii").lower()
        # A page that names UTF-16 in ASCII letters is not UTF-16.
        label = "utf-8" if label.startswith("utf-16") else label
    codec = _CODECS.get(label, "")
    if codec:
        return data.decode(codec, "replace"), codec
    return _guess_text(data)


def _guess_text(data: bytes) -> tuple[str, str]:
    try:
        # The last character may be cut in two.
        return codecs.getincrementaldecoder("utf-8")().decode(data), "utf-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), "cp1252"


def _looks_binary(beginning: bytes) -> bool:
    beginning = beginning[:SNIFF_BYTES]
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    return len(beginning.translate(None, _BINARY_BYTES)) != len(beginning)


class ContentDecoder:
    """Decoder that keeps the first ``limit`` bytes of the unpacked body.

    ``full``: more came than is kept, so nothing further needs to be read.
    """

    def __init__(self, encoding: str, limit: int, *, keep_unknown: bool = False) -> None:
        """Raise UnknownEncoding for an encoding that cannot be undone, unless it is kept packed."""
        names = [name for part in encoding.split(",") if (name := part.strip().lower()) and name != "identity"]
        known = len(names) == 1 and names[0] in _UNPACKERS
        if names and not known and not keep_unknown:
            raise UnknownEncoding(f"the answer's content encoding is {encoding[:64]!r}")
        self._unpack: _Unpacker | None = _UNPACKERS[names[0]]() if known else None
        self._limit = limit
        self._kept = bytearray()
        self._came = 0
        self.full = False
        # Encodings that are still in the content.
        self.left_encoded = ", ".join(names) if not known else ""

    @property
    def content(self) -> bytes:
        return bytes(self._kept)

    @property
    def unfinished(self) -> bool:
        """Return whether compressed content broke off before its own end."""
        return self._unpack is not None and self._came > 0 and not self._unpack.ended

    def receive(self, data: bytes) -> None:
        self._came += len(data)
        if self.full:
            return
        room = self._limit - len(self._kept)
        if self._unpack is None:
            self._kept += data[:room]
            self.full = len(data) > room
            return
        # One byte more than fits tells whether there is more.
        unpacked = self._unpack.receive(data, room + 1)
        self._kept += unpacked[:room]
        self.full = len(unpacked) > room
        grown, read = len(self._kept), self._came - self._unpack.unread
        if grown > EXPANSION_LOOKED_AT_BYTES and grown > MAX_EXPANSION * read:
            raise DecompressionBomb(f"{read} bytes unpacked to more than {grown}", read=read, unpacked=grown)


class _Unpacker:
    """Unpacker of one zlib stream after another, with a bound on each result."""

    def __init__(self, fresh: "Callable[[], zlib._Decompress]", members: int) -> None:
        self._fresh = fresh
        self._members = members
        self._stream = fresh()
        # Whether one stream came to its end.
        self.ended = False
        # Bytes of the last piece that were not looked at, because enough had come out of the others.
        self.unread = 0

    def receive(self, data: bytes, most: int) -> bytes:
        unpacked = bytearray()
        while data and len(unpacked) < most:
            if self._members <= 0:
                break
            try:
                unpacked += self._stream.decompress(data, most - len(unpacked))
            except zlib.error as error:
                if self.ended:
                    # Padding after the last member, as some servers send it.
                    self._members = 0
                    break
                raise BrokenEncoding("the answer's content encoding is broken") from error
            self.unread = len(self._stream.unconsumed_tail)
            if not self._stream.eof:
                # What is left over is the rest of a full buffer, and a full buffer is the end of reading.
                break
            self.ended = True
            data = self._stream.unused_data
            self._members -= 1
            self._stream = self._fresh()
        return bytes(unpacked)


class _Deflate(_Unpacker):
    """``deflate`` means zlib's format; some servers send the bare stream, which the first two bytes show."""

    def __init__(self) -> None:
        super().__init__(zlib.decompressobj, 1)
        self._first = b""
        self._chosen = False

    def receive(self, data: bytes, most: int) -> bytes:
        if not self._chosen:
            self._first += data
            if len(self._first) < 2:
                return b""
            data, self._chosen = self._first, True
            if data[0] & 0x0F != 8 or int.from_bytes(data[:2], "big") % 31:
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        return super().receive(data, most)


def _gzip() -> _Unpacker:
    return _Unpacker(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), MAX_GZIP_MEMBERS)


_UNPACKERS: Final[dict[str, Callable[[], _Unpacker]]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _Deflate}
