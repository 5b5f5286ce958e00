import json
from typing import Any

import pytest

from palyra.client.protocol import (
    ApiError,
    BadAnswer,
    BadRequestValue,
    NeedsApprovalError,
    Request,
    Response,
    convert_view,
    convert_views,
    get,
    path_of,
    read_answer,
    send_json,
)
from palyra.client.views import ToolView
from palyra.errors import ExitCode, exit_code_of
from palyra.secret import Secret


def response(document: Any, status: int = 200, **headers: str) -> Response:
    return Response(status=status, headers=tuple(headers.items()), body=json.dumps(document).encode())


def failing(status: int, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_answer(response({"ok": False, "error": {"code": "a.b", "message": "m"}}, status, **headers))
    return caught.value


def test_a_success_is_its_data() -> None:
    assert read_answer(response({"ok": True, "data": None})) is None
    assert read_answer(response({"ok": True, "data": [1]}, 201)) == [1]


@pytest.mark.parametrize(
    "document", [{"ok": True}, {"ok": 1, "data": 2}, {"ok": False}, {"ok": False, "error": {"code": 7}}, [], "x", None]
)
def test_anything_else_is_a_bad_answer(document: Any) -> None:
    with pytest.raises(BadAnswer):
        read_answer(response(document))


@pytest.mark.parametrize(("status", "code"), [(202, 4), (400, 2), (403, 3), (429, 5), (503, 6), (500, 1), (418, 1)])
def test_the_exit_code_follows_the_status_where_the_header_is_missing(status: int, code: int) -> None:
    assert exit_code_of(failing(status)) == code


def test_the_header_wins_over_the_status() -> None:
    error = failing(404, **{"Palyra-Exit-Code": "2"})
    assert exit_code_of(error) is ExitCode.USAGE
    # A failure never exits as a success, whatever the server says.
    assert exit_code_of(failing(404, **{"Palyra-Exit-Code": "0"})) is ExitCode.FAILED


def test_details_may_be_named_like_parameters() -> None:
    details = {"message": 1, "hint": 2, "remote_code": 3, "exit_code": 4, "self": 5}
    with pytest.raises(NeedsApprovalError) as caught:
        read_answer(response({"ok": False, "error": {"code": "a.b", "message": "m", "details": details}}, 202))
    assert caught.value.as_dict()["details"] == details
    assert (caught.value.approval_id, caught.value.call_id) == ("", "")


def test_a_token_is_in_the_header_and_nowhere_else() -> None:
    request = Request(method="GET", path="/", token=Secret("sesame"))
    assert (b"authorization", b"Bearer sesame") in request.wire_headers("h")
    assert "sesame" not in repr(request) and "sesame" not in str(request)


def test_bodies_have_lengths_and_gets_have_none() -> None:
    names = {name for name, _ in send_json("POST", "/", {"a": 1}).wire_headers("h")}
    assert {b"content-length", b"content-type"} <= names
    assert not {b"content-length", b"content-type"} & {name for name, _ in get("/").wire_headers("h")}
    empty = Request(method="POST", path="/").wire_headers("h")
    assert (b"content-length", b"0") in empty


def test_what_is_not_json_is_not_sent() -> None:
    for value in (object(), {1: {}, "a": object()}, "\ud800"):
        with pytest.raises(BadRequestValue):
            send_json("POST", "/", {"x": value})


def test_paths_quote_every_segment() -> None:
    assert path_of("v1", "a/b", "c d") == "/v1/a%2Fb/c%20d"
    assert path_of("v1", query={"state": "a&b", "none": None}) == "/v1?state=a%26b"


def test_views_keep_the_whole_document() -> None:
    view = convert_view({"name": "echo", "later": 1, "document": "mine"}, ToolView)
    assert view.document == {"name": "echo", "later": 1, "document": "mine"}
    assert convert_views({"tools": [{"name": "a"}]}, "tools", ToolView)[0].name == "a"
    for data in (None, {"others": []}, [7]):
        with pytest.raises(BadAnswer):
            convert_views(data, "tools", ToolView)
