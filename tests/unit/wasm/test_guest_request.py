import pytest

from fakes.wasm_guests import GRANTS
from palyra.wasm.domain.frames import Ask, Attachment
from palyra.wasm.domain.host_interface import Status
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.host_call_dispatcher import check_key, guest_request

LIMITS = RuntimeLimits(max_request_bytes=100)


def _ask(**changes):
    return Ask(**({"number": 1, "operation": "http", "handle": 10_000, "method": "GET", "key": "/"} | changes))


def test_a_good_request_is_passed_on():
    attached = Attachment(secret=20_001, header="Authorization", prefix="Bearer ")
    request = guest_request(
        _ask(method="POST", key="/a?b=c%20d", headers=(("Accept", "*/*"),), body=b"x", attachments=(attached,)),
        GRANTS,
        LIMITS,
    )
    assert (request.method, request.path, request.body) == ("POST", "/a?b=c%20d", b"x")
    assert request.secrets[0].secret.name == "token"
    assert request.max_response_bytes == LIMITS.max_response_bytes


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"method": "get"}, Status.BAD_REQUEST),
        ({"method": "TRACE"}, Status.BAD_REQUEST),
        ({"key": ""}, Status.BAD_REQUEST),
        ({"key": "x"}, Status.BAD_REQUEST),
        ({"key": "/ö"}, Status.BAD_REQUEST),
        ({"key": "/\x7f"}, Status.BAD_REQUEST),
        ({"headers": (("Host", "x"),)}, Status.BAD_REQUEST),
        ({"headers": (("x", "a\nb"),)}, Status.BAD_REQUEST),
        ({"headers": (("", "a"),)}, Status.BAD_REQUEST),
        ({"headers": (("x", "y"),) * 65}, Status.TOO_LARGE),
        ({"headers": (("x", "y" * 20_000),)}, Status.TOO_LARGE),
        ({"body": bytes(101)}, Status.TOO_LARGE),
        ({"attachments": (Attachment(secret=1, header="x", prefix=""),)}, Status.BAD_HANDLE),
        ({"attachments": (Attachment(secret=20_000, header="host", prefix=""),)}, Status.BAD_REQUEST),
        ({"attachments": (Attachment(secret=20_000, header="x", prefix="\r\n"),)}, Status.BAD_REQUEST),
        ({"attachments": (Attachment(secret=20_000, header="x", prefix=""),) * 2}, Status.BAD_REQUEST),
        ({"attachments": (Attachment(secret=20_000, header="x", prefix=""),) * 9}, Status.TOO_LARGE),
    ],
)
def test_a_bad_request_is_a_status(changes, status):
    assert guest_request(_ask(**changes), GRANTS, LIMITS) == status


def test_a_guests_own_header_cannot_stand_beside_a_secret_of_the_same_name():
    attached = Attachment(secret=20_000, header="X-Key", prefix="")
    assert guest_request(_ask(headers=(("x-kEY", "v"),), attachments=(attached,)), GRANTS, LIMITS) == Status.BAD_REQUEST


def test_keys_are_relative_paths_of_ordinary_names():
    assert all(check_key(key) is Status.OK for key in ("a", "a/b.txt", "ü/…", "a b", ".hidden", "..."))
    assert all(check_key(key) is not Status.OK for key in ("", "/a", "a/", "a//b", "..", "a/../b", "\ud800", "a\\b"))
    assert check_key("", may_be_empty=True) is Status.OK
    assert check_key("a/", may_be_empty=True) is Status.OK
    assert check_key("../", may_be_empty=True) is Status.BAD_REQUEST
