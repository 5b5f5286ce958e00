import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.limits import MAX_GZIP_MEMBERS
from palyra.egress.protocols.http_content import (
    BrokenEncoding,
    ContentDecoder,
    DecompressionBomb,
    MediaType,
    UnknownEncoding,
    decode_text,
    looks_like_html,
)
from palyra.errors import PalyraError

LIMIT = 1 << 20


def unpacked(encoding: str, data: bytes, *, limit: int = LIMIT, piece: int = 7) -> ContentDecoder:
    decoder = ContentDecoder(encoding, limit)
    for at in range(0, len(data), piece):
        decoder.receive(data[at : at + piece])
    return decoder


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "X-GZIP", "deflate", "deflate-raw", " gzip , identity"])
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_every_encoding_in_any_pieces(encoding: str, piece: int) -> None:
    text = bytes(range(256)) * 40
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "deflate-raw": raw_deflate}.get(
        encoding.strip().lower().removeprefix("x-").split(" ")[0], lambda data: data
    )(text)
    decoder = unpacked(encoding.removesuffix("-raw"), packed, piece=piece)
    assert decoder.content == text and not decoder.full and not decoder.unfinished


def test_the_limit_is_on_what_it_stands_for() -> None:
    for encoding, data in (("", b"x" * 100), ("gzip", gzip.compress(b"x" * 100))):
        assert unpacked(encoding, data, limit=100).content == b"x" * 100
        assert not unpacked(encoding, data, limit=100).full
        cut = unpacked(encoding, data, limit=99)
        assert cut.content == b"x" * 99 and cut.full
        cut.receive(b"more")
        assert len(cut.content) == 99


def test_several_gzip_members_padding_and_no_more_than_some() -> None:
    assert unpacked("gzip", gzip.compress(b"a") + gzip.compress(b"b")).content == b"ab"
    assert unpacked("gzip", gzip.compress(b"a") + bytes(512)).content == b"a"
    many = unpacked("gzip", gzip.compress(b"a") * (MAX_GZIP_MEMBERS * 3))
    assert many.content == b"a" * MAX_GZIP_MEMBERS


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    with pytest.raises(DecompressionBomb):
        unpacked("gzip", bomb, limit=8 << 20, piece=65536)


def test_a_small_repetitive_file_is_no_bomb() -> None:
    assert len(unpacked("gzip", gzip.compress(bytes(200_000))).content) == 200_000


def test_broken_and_unknown() -> None:
    for encoding in ("gzip", "deflate"):
        with pytest.raises(BrokenEncoding):
            unpacked(encoding, b"this is neither")
    for encoding in ("br", "gzip, gzip", "zstd", "compress", "gzip, br"):
        with pytest.raises(UnknownEncoding):
            ContentDecoder(encoding, LIMIT)
        kept = ContentDecoder(encoding, LIMIT, keep_unknown=True)
        kept.receive(b"xyz")
        assert kept.content == b"xyz" and kept.left_encoded == encoding
    half = unpacked("gzip", gzip.compress(b"x" * 1000)[:-9])
    assert half.unfinished


@given(st.sampled_from(["gzip", "deflate"]), st.binary(max_size=300))
def test_no_bytes_do_more_than_fail(encoding: str, data: bytes) -> None:
    with contextlib.suppress(PalyraError):
        assert len(unpacked(encoding, data, limit=5000).content) <= 5000


@pytest.mark.parametrize(
    ("raw", "essence", "charset"),
    [
        ("text/html; charset=UTF-8", "text/html", "utf-8"),
        ('Text/HTML;charset="iso-8859-1"', "text/html", "iso-8859-1"),
        ("application/json", "application/json", ""),
        ("text/plain; x=1; charset = koi8-r", "text/plain", "koi8-r"),
        ("", "", ""),
        ("nonsense", "", ""),
        ("text/" + "x" * 500, "", ""),
        ("text/html, text/plain", "", ""),
        ("text/html; charset=" + "x" * 100, "text/html", "x" * 40),
    ],
)
def test_media_types(raw: str, essence: str, charset: str) -> None:
    media = MediaType.parse(raw)
    assert (media.essence, media.charset) == (essence, charset)


def test_text_or_not() -> None:
    for kind in ("text/csv", "application/json", "application/ld+json", "application/xml", "", "image/svg+xml"):
        assert MediaType.parse(kind).is_text(b"plain")
        assert not MediaType.parse(kind).is_text(b"\x00\x01")
    for kind in ("image/png", "application/pdf", "application/zip"):
        assert not MediaType.parse(kind).is_text(b"plain")
    assert MediaType.parse("text/plain").is_text("ä".encode("utf-16"))
    assert looks_like_html(MediaType.parse(""), b"\n <!DOCTYPE HTML>")
    assert not looks_like_html(MediaType.parse("text/plain"), b"<html>")


@pytest.mark.parametrize(
    ("data", "kind", "text", "charset"),
    [
        ("ä".encode(), "text/plain", "ä", "utf-8"),
        ("äx".encode("latin-1"), "text/plain", "äx", "cp1252"),
        ("ä".encode("latin-1"), "text/plain; charset=utf-8", "\ufffd", "utf-8"),
        (b"\xef\xbb\xbfx", "text/plain; charset=latin1", "x", "utf-8"),
        ("ж".encode("utf-16"), "text/plain", "ж", "utf-16-le"),
        ("ж".encode("koi8-r"), "text/plain; charset=koi8-r", "ж", "koi8-r"),
        ('<meta charset="koi8-r">ж'.encode("koi8-r"), "text/html", '<meta charset="koi8-r">ж', "koi8-r"),
        (b'<meta charset="utf-16">x', "text/html", '<meta charset="utf-16">x', "utf-8"),
        # A label that is no charset of the web, or one that only serves tricks, is not believed.
        (b"+ADw-script+AD4-", "text/html; charset=utf-7", "+ADw-script+AD4-", "utf-8"),
        (b"6869", "text/plain; charset=hex", "6869", "utf-8"),
        (b"x", "text/plain; charset=idna", "x", "utf-8"),
        (b"\\x41", "text/plain; charset=unicode_escape", "\\x41", "utf-8"),
        ("aä".encode()[:-1], "text/plain", "a", "utf-8"),
    ],
)
def test_charsets(data: bytes, kind: str, text: str, charset: str) -> None:
    media = MediaType.parse(kind)
    assert decode_text(data, media, html=media.is_html) == (text, charset)


@given(st.binary(max_size=400), st.sampled_from(["", "gbk", "shift_jis", "utf-16", "big5", "euc-kr", "windows-1255"]))
def test_every_byte_string_is_some_text(data: bytes, label: str) -> None:
    text, _ = decode_text(data, MediaType(essence="text/html", charset=label), html=True)
    assert isinstance(text, str)
