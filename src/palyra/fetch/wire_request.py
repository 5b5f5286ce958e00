"""One request as the bytes of HTTP/1.1. Every part was checked before; this refuses to write what would not be one."""

import re
from typing import Final

from palyra.errors import LimitExceeded
from palyra.fetch.header_rules import Headers, folded_name
from palyra.fetch.limits import MAX_REQUEST_HEAD_BYTES
from palyra.fetch.web_address import WebAddress

USER_AGENT: Final = "palyra-fetch/1"
ACCEPT_ENCODING: Final = "gzip, deflate"
_LINE: Final = re.compile(r"[\x20-\x7e\t]*")


class RequestTooLarge(LimitExceeded):
    code = "fetch.request_too_large"
    hint = "send fewer or shorter headers"


def write_request(address: WebAddress, method: str, headers: Headers, body: bytes | None) -> bytes:
    """``headers`` are the caller's and the injected ones. The connection serves this request alone."""
    given = {folded_name(name) for name, _ in headers}
    lines = [f"{method} {address.path} HTTP/1.1", f"Host: {address.host_header}"]
    if "user-agent" not in given:
        lines.append(f"User-Agent: {USER_AGENT}")
    if "accept" not in given:
        lines.append("Accept: */*")
    if "accept-encoding" not in given:
        lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    if not all(map(_LINE.fullmatch, lines)):
        raise AssertionError("a request line with a control character in it was about to be sent")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    if len(head) > MAX_REQUEST_HEAD_BYTES:
        raise RequestTooLarge(f"the request's head has {len(head)} bytes and may have {MAX_REQUEST_HEAD_BYTES}")
    return head + (body or b"")
