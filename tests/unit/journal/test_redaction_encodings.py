import base64
import json
from urllib.parse import quote, quote_plus

from hypothesis import given
from hypothesis import strategies as st

from palyra.journal.redaction import MIN_KNOWN_CHARS, list_encodings


@given(
    st.text(min_size=MIN_KNOWN_CHARS, max_size=40).filter(lambda text: text.isprintable()),
    st.binary(max_size=7),
    st.binary(max_size=7),
)
def test_a_value_is_found_in_base64_wherever_it_stands(value, before, after):
    encoded = base64.b64encode(before + value.encode() + after).decode()
    urlsafe = base64.urlsafe_b64encode(before + value.encode() + after).decode()
    patterns = list_encodings(value)
    assert any(pattern in encoded for pattern in patterns)
    assert any(pattern in urlsafe for pattern in patterns)


@given(st.text(min_size=MIN_KNOWN_CHARS, max_size=40).filter(lambda text: text.isprintable()))
def test_a_value_is_found_escaped(value):
    patterns = list_encodings(value)
    for spelled in (
        value, quote(value), quote(value, safe=""), quote_plus(value), json.dumps(value), value.encode().hex(),
        value.encode().hex().upper(),
    ):  # fmt: skip
        assert any(pattern in spelled for pattern in patterns), spelled


def test_each_long_line_of_a_key_file_is_secret_by_itself():
    lines = ["-----BEGIN PRIVATE KEY-----", "MC4CAQAwBQYDK2VwBCIEIA0123456789", "short", "-----END PRIVATE KEY-----"]
    patterns = list_encodings("\n".join(lines))
    assert lines[1] in patterns
    assert not {"short", lines[0], lines[3]} & patterns


def test_a_value_is_known_without_the_space_around_it():
    patterns = list_encodings("tok-0123456789\r\n")
    assert {"tok-0123456789", "tok-0123456789\r\n", b"tok-0123456789".hex()} <= patterns


def test_a_value_too_short_to_search_for_has_no_spellings():
    assert list_encodings("abc") == frozenset()
