import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.client.http_client import Answer, Redactions
from palyra.egress.client.request import ContentFormat, Passed
from palyra.egress.domain.injection import ResponseScan, list_encodings
from palyra.egress.protocols.http1_request import WebAddress
from palyra.executors.fetch.result import NOTICE, build_result
from palyra.executors.fetch.spec import OUTPUT_SCHEMA
from palyra.json_schema import SchemaCheck

CHECK = SchemaCheck(OUTPUT_SCHEMA)
SECRET = "s3cret-token-value"


def result_of(
    content: bytes,
    kind: str = "text/plain",
    *,
    wanted: ContentFormat = ContentFormat.AUTO,
    max_bytes: int = 1 << 18,
    max_output: int = 1 << 20,
    secret: str = "",
    **more: Any,
) -> dict[str, Any]:
    redactions = Redactions()
    if secret:
        redactions.add(ResponseScan(list_encodings(secret)))
    headers = more.pop("headers", ()) + ((("Content-Type", kind),) if kind else ())
    fields = {"address": WebAddress.parse("https://a.test/x?y"), "status": 200, **more}
    answer = Answer(content=content, headers=headers, redaction=redactions, **fields)
    result = build_result(answer, wanted, max_bytes, max_output)
    CHECK.require(result)
    assert len(msgspec.json.encode(result)) <= max_output
    return result


def test_what_a_result_says() -> None:
    passed = (Passed(status=301, source="http://a.test/", destination="https://a.test/x?y"),)
    result = result_of("hé".encode(), "text/plain; charset=utf-8", passed=passed)
    assert result == {
        "status": 200,
        "final_url": "https://a.test/x?y",
        "origin": "https://a.test",
        "redirects": [{"status": 301, "from": "http://a.test/", "to": "https://a.test/x?y"}],
        "headers": {"content-type": "text/plain; charset=utf-8"},
        "content_type": "text/plain",
        "content_is_untrusted": True,
        "notice": NOTICE,
        "bytes": 3,
        "truncated": False,
        "charset": "utf-8",
        "format": "text",
        "hidden_characters": 0,
        "text": "hé",
    }


def test_the_formats() -> None:
    page = b"<title>T</title><h1>H</h1><script>x</script>"
    assert result_of(page, "text/html")["text"] == "# H" and result_of(page, "text/html")["title"] == "T"
    assert result_of(page, "text/html", wanted=ContentFormat.TEXT)["text"] == page.decode()
    assert result_of(page, "text/plain", wanted=ContentFormat.READABLE)["text"] == "# H"
    assert result_of(page, "", wanted=ContentFormat.AUTO)["format"] == "text"
    assert result_of(b"<html>" + page, "")["format"] == "readable"
    assert result_of(b"\x89PNG\x00", "image/png")["base64"] == base64.b64encode(b"\x89PNG\x00").decode()
    raw = result_of(page, "text/html", wanted=ContentFormat.RAW_BASE64)
    assert base64.b64decode(raw["base64"]) == page and "text" not in raw
    kept = result_of(b"xyz", "text/html", left_encoded="br")
    assert kept["format"] == "base64" and kept["content_encoding"] == "br"
    # What is named an image and asked for as text is text, whatever it looks like.
    assert result_of(b"a\x00b", "image/png", wanted=ContentFormat.TEXT)["text"] == "ab"


def test_headers_are_few_short_and_plain() -> None:
    headers = (
        ("Set-Cookie", "session=1"),
        ("ETag", '"a\x85b"'),
        ("Link", "</1>"),
        ("link", "</2>"),
        ("X-Evil", "x"),
        ("Server", "s" * 5000),
        *((f"X-RateLimit-{number}", "1") for number in range(100)),
    )
    shown = result_of(b"", headers=headers)["headers"]
    assert "set-cookie" not in shown and "x-evil" not in shown
    assert shown["link"] == "</1>, </2>" and len(shown["server"]) <= 1024 and len(shown) <= 32
    assert shown["etag"].isascii()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (SECRET.encode(), "text/plain"),
        (base64.b64encode(b"xx" + SECRET.encode()), "text/plain"),
        (SECRET.encode("utf-16"), "text/plain"),
        ("".join(f"&#{ord(letter)};" for letter in SECRET).encode(), "text/html"),
        ("\u200b".join(SECRET).encode(), "text/plain"),
        (b"\x00\x01" + SECRET.encode(), "application/octet-stream"),
        (f"<title>{SECRET}</title><a href='/{SECRET}'>x</a>".encode(), "text/html"),
    ],
)
def test_an_injected_secret_does_not_come_back(content: bytes, kind: str) -> None:
    result = result_of(content, kind, secret=SECRET, headers=(("ETag", SECRET), ("Link", f"</{SECRET}>")))
    shown = msgspec.json.encode(result).decode()
    assert SECRET not in shown and base64.b64encode(SECRET.encode()).decode()[:20] not in shown
    if "base64" in result:
        assert SECRET.encode() not in base64.b64decode(result["base64"])


def test_half_a_secret_is_not_left_at_the_cut() -> None:
    content = b"x" * 90 + SECRET.encode() + b"y" * 50
    result = result_of(content, max_bytes=100, secret=SECRET)
    assert result["text"] == "x" * 90 + "*" * 10 and result["truncated"] and result["bytes"] == 100


def test_hidden_characters_are_counted() -> None:
    result = result_of("a\u202eb\x1bc".encode())
    assert result["text"] == "abc" and result["hidden_characters"] == 2


def test_little_room_is_kept_for_what_matters() -> None:
    headers = (("Server", "s" * 1000), ("Link", "l" * 1000))
    result = result_of(b"text", headers=headers, max_output=900)
    assert result["headers"] == {} and result["notice"] == NOTICE and result["truncated"]


@given(st.text(max_size=3000), st.integers(1600, 6000), st.sampled_from(list(ContentFormat)))
def test_a_result_fits_whatever_its_content_becomes_in_json(text: str, room: int, wanted: ContentFormat) -> None:
    raw = text.encode("utf-8", "replace")
    result = result_of(raw, max_output=room, wanted=wanted)
    if "base64" in result:
        assert raw.startswith(base64.b64decode(result["base64"]))
    assert result["truncated"] or result["format"] != "base64" or base64.b64decode(result["base64"]) == raw


def test_a_secret_is_not_shown_as_the_name_of_a_header() -> None:
    result = result_of(b"", "", headers=(("X-RateLimit-Tok-AbCd-0123", "1"),), secret="tok-ABCD-0123")
    assert result["headers"] == {"x-ratelimit-*************": "1"}
