"""A token is good, or it is not accepted: nothing in between is told."""

from typing import Any

import pytest

from palyra.identity.api_tokens import ApiToken, ScopeMissing, TokenRecord, TokenScope, Unauthenticated, check_token
from palyra.ids import TokenId
from palyra.secret import Secret

TOKEN = ApiToken(TokenId("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Secret("a" * 43))


def a_record(**changes: Any) -> TokenRecord:
    fields: dict[str, Any] = {
        "token_id": TOKEN.token_id,
        "secret_sha256": TOKEN.secret_sha256(),
        "principal": "agent:bot",
        "scopes": (TokenScope.CALL,),
        "created_ms": 0,
    }
    return TokenRecord(**{**fields, **changes})


def test_the_text_parses_back_and_is_not_shown_by_accident() -> None:
    text = TOKEN.text()
    assert ApiToken.parse(text.reveal()) == TOKEN
    assert "aaa" not in f"{TOKEN!r} {text} {text!r}"


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "plr_",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        TOKEN.text().reveal()[:-1],
        TOKEN.text().reveal() + "a",
        TOKEN.text().reveal() + "\n",
        TOKEN.text().reveal().lower(),
        TOKEN.text().reveal().replace("plr_", "xyz_"),
        "plr_81ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 43,
        "plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "ä" * 43,
        "x" * 1_000_000,
    ],
)
def test_other_spellings_are_not_accepted(raw: str) -> None:
    with pytest.raises(Unauthenticated):
        ApiToken.parse(raw)


@pytest.mark.promise("P-tokens")
@pytest.mark.parametrize(
    ("record", "now_ms"),
    [
        (None, 0),
        (a_record(secret_sha256="0" * 64), 0),
        (a_record(secret_sha256=""), 0),
        (a_record(revoked_ms=5), 10),
        (a_record(revoked_ms=5), 1),
        (a_record(expires_ms=10), 10),
        (a_record(expires_ms=10), 11),
    ],
)
def test_wrong_revoked_expired_and_unknown_look_alike(record: TokenRecord | None, now_ms: int) -> None:
    with pytest.raises(Unauthenticated) as caught:
        check_token(TOKEN, record, now_ms)
    assert caught.value.message == "the token is not accepted" and caught.value.details == {}
    assert caught.value.http_status == 401


def test_a_good_one_is_good_to_its_last_moment() -> None:
    record = a_record(expires_ms=10)
    assert check_token(TOKEN, record, 9) is record


def test_a_scope_is_there_or_named() -> None:
    a_record().require(TokenScope.CALL)
    with pytest.raises(ScopeMissing) as caught:
        a_record().require(TokenScope.OPERATE)
    assert caught.value.details == {"scope": "operate"}
