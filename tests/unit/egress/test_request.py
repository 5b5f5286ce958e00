import base64
from typing import Any

import pytest

from palyra.egress.client.request import BadFetch, ContentFormat, FetchRequest, MisplacedPlaceholder, RedirectMode
from palyra.egress.limits import DEFAULT_MAX_BYTES, MAX_MAX_BYTES
from palyra.errors import PalyraError

URL = "https://a.test/x"


def parse(**arguments: Any) -> FetchRequest:
    return FetchRequest.parse({"url": URL, **arguments})


def test_defaults() -> None:
    request = parse()
    assert (request.method, request.headers, request.body) == ("GET", (), None)
    assert request.redirect is RedirectMode.FOLLOW and request.format is ContentFormat.AUTO
    assert request.max_bytes == DEFAULT_MAX_BYTES and request.placeholders == ()


def test_bodies() -> None:
    assert parse(method="POST", body="ä").body == "ä".encode()
    assert parse(method="PUT", body_base64=base64.b64encode(b"\x00\xff").decode()).body == b"\x00\xff"
    assert parse(method="POST").body == b"" and parse(method="DELETE").body is None
    for arguments in (
        {"method": "POST", "body": "a", "body_base64": "YQ=="},
        {"method": "POST", "body_base64": "Y Q=="},
        {"method": "POST", "body_base64": "ä"},
        {"method": "POST", "body": "\ud800"},
        {"method": "GET", "body": "a"},
        {"method": "HEAD", "body": ""},
        {"method": "CONNECT"},
        {"method": "get"},
        {"max_bytes": 0},
        {"max_bytes": MAX_MAX_BYTES + 1},
    ):
        with pytest.raises(BadFetch):
            parse(**arguments)


def test_placeholders_belong_in_header_values() -> None:
    request = parse(headers={"Authorization": "Bearer {{vault:global/t}}", "X": "{{vault:global/t}} {{vault:a/b}}"})
    assert request.placeholders == ("global/t", "a/b")
    assert parse(headers={"X": "{{vault:global/t}}{{vault:global/t}}"}).placeholders == ("global/t",)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://a.test/{{vault:global/t}}"},
        {"url": "https://a.test/?q=%7B%7Bvault%3Aglobal%2Ft%7D%7D"},
        {"method": "POST", "body": "x {{vault:global/t}}"},
        {"method": "POST", "body": "x {{vault:"},
        {"method": "POST", "body_base64": base64.b64encode(b"{{vault:global/t}}").decode()},
    ],
)
def test_and_nowhere_else(arguments: dict[str, Any]) -> None:
    with pytest.raises(MisplacedPlaceholder):
        parse(**arguments)


@pytest.mark.parametrize("value", ["{{vault:}}", "{{vault:global/t", "{{vault:a b}}", "{{vault:{{vault:a/b}}}}"])
def test_half_a_placeholder_is_an_error_and_not_sent(value: str) -> None:
    with pytest.raises(PalyraError):
        parse(headers={"X": value})
