import base64
import datetime
import enum
import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canonical import canonical_json
from palyra.journal.redaction import Redactor, names_a_secret
from palyra.limits import MAX_EVENT_PAYLOAD_BYTES, MAX_JOURNAL_STRING_CHARS, MAX_JSON_DEPTH
from palyra.secret import REDACTED, Secret

SECRET = "s3cr3t/value+with=odd chars"


def recorded(payload, *known):
    return json.loads(Redactor(Secret(value) for value in known).payload(payload))


@pytest.mark.promise("P-journal-clean")
@pytest.mark.parametrize(
    "key",
    ["password", "Password", "db_password", "dbPassword", "PASS-WORD", "passwd", "token", "access_token", "accessToken",
     "apiKey", "API_KEY", "x-api-key", "Authorization", "Proxy-Authorization", "Set-Cookie", "cookie", "private_key",
     "privateKey", "client_secret", "aws_secret_access_key", "bearer", "credentials", "otp", "pin", "jwt", "pwd",
     "pass.word", "p-a-s-s-w-o-r-d", "sécret_password", "user_pass"],
)  # fmt: skip
def test_keys_that_name_a_secret(key):
    assert names_a_secret(key)
    assert recorded({"a": [{key: "hunter2"}]}) == {"a": [{key: REDACTED}]}
    assert recorded({key: {"nested": 1}}) == {key: REDACTED}


@pytest.mark.parametrize(
    "key",
    ["token_id", "max_tokens", "secret_name", "cookie_count", "tool", "author", "mapping", "monkey", "keyboard", "path",
     "spinner", "key_id", "expires_at", "passed", "argument_digest"],
)  # fmt: skip
def test_keys_that_only_look_like_it(key):
    assert not names_a_secret(key)
    assert recorded({key: "visible"}) == {key: "visible"}


def test_a_secret_instance_never_shows_whatever_its_key():
    assert recorded({"note": Secret("x"), "list": [Secret("y")]}) == {"note": REDACTED, "list": [REDACTED]}


def test_known_values_go_wherever_they_stand():
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    payload = {
        "plain": f"curl -u {SECRET} host",
        "basic": f"Basic {basic}",
        "url": "https://h/?q=s3cr3t%2Fvalue%2Bwith%3Dodd%20chars&x",
        "lower": "https://h/?q=s3cr3t%2fvalue%2bwith%3dodd+chars&x",
        "hex": SECRET.encode().hex(),
        f"key {SECRET}": 1,
        "deep": [[{"x": (SECRET,)}]],
        "bytes": SECRET.encode(),
    }
    encoded = Redactor([Secret(SECRET)]).payload(payload)
    for spelling in (SECRET, "s3cr3t", base64.b64encode(SECRET.encode())[4:-4].decode(), SECRET.encode().hex()):
        assert spelling.encode() not in encoded
    assert json.loads(encoded)["plain"] == f"curl -u {REDACTED} host"


def test_a_value_registered_later_counts_from_then_on():
    redactor = Redactor()
    redactor.register(Secret("late-secret"))
    assert b"late-secret" not in redactor.payload({"a": "late-secret"})
    assert redactor.text("x late-secret y") == f"x {REDACTED} y"


def test_known_numbers_are_secret_as_numbers_too():
    assert recorded({"n": 90071992, "f": 123456.5}, "90071992", "123456.5") == {"n": REDACTED, "f": REDACTED}


def test_a_short_value_is_taken_out_where_it_is_the_whole_string():
    assert recorded({"a": "abc", "b": "abcd"}, "abc") == {"a": REDACTED, "b": "abcd"}


def test_a_value_spread_over_several_numbers_costs_the_payload():
    assert b"1,2,3" not in Redactor([Secret("1,2,3")]).payload({"a": [1, 2, 3]})


def test_a_longer_value_is_taken_out_before_one_inside_it():
    assert recorded({"a": "secret-one-two"}, "secret-one", "secret-one-two") == {"a": REDACTED}


def test_fields_are_cleaned_and_cut():
    redactor = Redactor([Secret(SECRET)])
    actor, principal, run, call = redactor.fields(SECRET, "p" * 300, "\ud800", "é")
    assert (actor, len(principal), run, call) == (REDACTED, 256, "\\ud800", "é")


@pytest.mark.promise("P-limits")
def test_a_long_string_keeps_its_head_its_length_and_its_digest():
    text = "a" * (MAX_JOURNAL_STRING_CHARS + 1)
    shown = recorded({"text": text})["text"]
    assert shown.startswith("aaaa") and len(shown) < MAX_JOURNAL_STRING_CHARS
    assert f"{len(text)} characters" in shown and hashlib.sha256(text.encode()).hexdigest() in shown
    assert recorded({"text": text[:-1]})["text"] == text[:-1]


def test_a_secret_at_the_cut_does_not_leave_half_of_itself():
    text = "a" * (MAX_JOURNAL_STRING_CHARS // 2 - 5) + SECRET + "b" * MAX_JOURNAL_STRING_CHARS
    assert SECRET[:5] not in recorded({"text": text}, SECRET)["text"]


@pytest.mark.promise("P-limits")
def test_the_payload_is_bounded_and_what_fits_stays():
    payload = {"small": "kept", "large": ["x" * 500] * 1000}
    encoded = Redactor().payload(payload)
    shown = json.loads(encoded)
    assert len(encoded) <= MAX_EVENT_PAYLOAD_BYTES and shown["small"] == "kept"
    assert shown["large"]["clipped_bytes"] > MAX_EVENT_PAYLOAD_BYTES
    many = Redactor().payload({f"key{number}": number for number in range(50_000)})
    assert len(many) <= MAX_EVENT_PAYLOAD_BYTES and "clipped_bytes" in json.loads(many)


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    token: str = "hunter2"


def test_unexpected_values_are_recorded_somehow():
    deep = []
    for _ in range(100):
        deep = [deep]
    shown = recorded(
        {
            "nan": float("nan"), "inf": float("-inf"), "big": 2**80, "float": 1.5, "surrogate": "\ud800", "deep": deep,
            "enum": Colour.RED, "struct": Point(1), "object": object(), "date": datetime.date(2026, 1, 2), 5: "int key",
            "set": {1}, "none": None, "yes": True, "unicode": "ü\u2028",
        }
    )  # fmt: skip
    assert shown["nan"] == "nan" and shown["inf"] == "-inf" and shown["big"] == str(2**80) and shown["float"] == 1.5
    assert shown["surrogate"] == "\\ud800" and "[too deep]" in json.dumps(shown["deep"])
    assert shown["enum"] == "red" and shown["struct"] == {"x": 1, "token": REDACTED} and shown["object"] == "[object]"
    assert shown["date"] == "2026-01-02" and shown["5"] == "int key" and shown["set"] == [1]
    assert shown["none"] is None and shown["yes"] is True and shown["unicode"] == "ü\u2028"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=10) | st.sampled_from(["password", "apiKey", "tool"]), _json, max_size=5))
def test_the_short_way_and_the_walk_agree(payload):
    redactor = Redactor()
    encoded = redactor.payload(payload)
    assert encoded == canonical_json(redactor._mapping(payload, 0))
    assert canonical_json(json.loads(encoded)) == encoded


def test_a_result_is_given_back_as_it_is_or_without_known_values():
    redactor = Redactor()
    result = {"stdout": f"a {SECRET} b", "lines": [1, None, True, 2.5, SECRET], SECRET: "key"}
    assert redactor.result(result) is result
    redactor.register(Secret(SECRET))
    assert redactor.result({"plain": [1, "x"]}) == {"plain": [1, "x"]}
    assert redactor.result(result) == {
        "stdout": f"a {REDACTED} b",
        "lines": [1, None, True, 2.5, REDACTED],
        REDACTED: "key",
    }
    redactor.register(Secret("123456"))
    assert redactor.result({"n": 91234567}) == {"n": f"9{REDACTED}7"}


def test_thousands_of_known_values_are_all_found():
    redactor = Redactor(Secret(f"value-number-{number:05d}") for number in range(3000))
    assert redactor.text("x value-number-02999 y") == f"x {REDACTED} y"
    assert json.loads(redactor.payload({"a": "value-number-00000", "b": "value-number-x"})) == {
        "a": REDACTED,
        "b": "value-number-x",
    }


def test_a_payload_that_holds_itself_comes_to_an_end():
    payload = {"a": 1}
    payload["self"] = [payload]
    assert Redactor().payload(payload) == b'{"a":1,"self":"[clipped: more values than an entry holds]"}'


def test_many_parts_are_not_too_deep_and_deep_ones_are():
    many = {"parts": [{"n": [n]} for n in range(200)]}
    assert Redactor().payload(many) == canonical_json(many)
    deep = value = []
    for _ in range(MAX_JSON_DEPTH + 1):
        value.append([])
        value = value[0]
    assert b"[too deep]" in Redactor().payload({"deep": deep})


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize("item", [[], {}, 1, 1.5, None, {"a": 1}, [[]], (1,)])
def test_more_values_than_an_entry_holds_are_not_looked_through(item, monkeypatch):
    looked_at = []
    original = Redactor._value
    monkeypatch.setattr(Redactor, "_value", lambda *given: (looked_at.append(1), original(*given))[1])
    redactor = Redactor([Secret("hunter2-hunter2")])
    payload = {"arguments": {"list": [item] * 400_000, "token": "t"}, "tool": "hunter2-hunter2", "n": 1}
    said = json.loads(redactor.payload(payload))
    assert said == {"arguments": "[clipped: more values than an entry holds]", "tool": REDACTED, "n": 1}
    assert len(looked_at) < 100


def test_values_that_just_fit_are_recorded():
    whole = {"list": [1] * 20_000, "nested": {str(number): [number] for number in range(900)}}
    assert json.loads(Redactor().payload({"arguments": whole})) == {"arguments": whole}
