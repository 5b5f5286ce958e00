import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.domain.refusal import OddTarget
from palyra.egress.domain.target import canonical_host, is_address


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        # What the newer IDNA makes of a sharp s: no name to argue about once it is written in ASCII.
        ("xn--strae-oqa.example", "xn--strae-oqa.example"),
        ("日本.example", "xn--wgv71a.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("2A00:1450:0:0::1", "2a00:1450::1"),
        ("::ffff:127.0.0.1", "::ffff:7f00:1"),
        ("localhost", "localhost"),
        ("_srv.example.org", "_srv.example.org"),
        ("1and1.example", "1and1.example"),
        ("r3---sn-x.example", "r3---sn-x.example"),
        ("1.2.3.4.example", "1.2.3.4.example"),
    ],
)
def test_one_spelling(raw: str, host: str) -> None:
    assert canonical_host(raw) == host
    assert canonical_host(host) == host


@pytest.mark.parametrize(
    "raw",
    [
        *(
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "-a.example",
            "a-.example",
            "a b",
            "a\0b",
            "a%2eb",
            "a/b",
            "a\\b",
            "*.a.b",
        ),
        *("x" * 64 + ".example", "a." * 130 + "b", "\u00e9" * 300),
        *("127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1.1", "1.2.3.256"),
        *("127.0.0.1.", "example.0x1", "example.1", "0x", "1e3.4", "127.0.0.01", "127.0.0.1 "),
        *(
            "\uff11\uff12\uff17.0.0.1",
            "\uff45xample.org",
            "example\u3002org",
            "example\uff0eorg",
            "example\uff61org",
            "example\u2024org",
            "stra\u00dfe.example",
        ),
        *(
            "fa\u00df.example",
            "\u03b2\u03cc\u03bb\u03bf\u03c2.example",
            "a\u200db.example",
            "exam\u200bple.org",
            "exam\u00adple.org",
            "a\ufeffb.c",
        ),
        *(
            "exa\u2060mple.org",
            "\u202eexample.org",
            "\u2460.example",
            "\u2167.example",
            "\u212a.example",
            "\u017f.example",
            "\u0130.example",
        ),
        *("\u0301a.example", "xn--.example", "xn--a.example", "xn--example-.org", "xn--\u00fc.example", "xn--a-.b"),
        *("[::1", "::1]", "[::1%25lo]", "[::1%lo]", "fe80::1%eth0", "[127.0.0.1]", "[]", "[[::1]]", "1:2", ":::1"),
        "\ud800.example",
    ],
)
def test_odd_spellings_are_refused(raw: str) -> None:
    with pytest.raises(OddTarget):
        canonical_host(raw)


@pytest.mark.parametrize(
    ("host", "literal"),
    [("127.0.0.1", True), ("::1", True), ("example.org", False), ("1and1.example", False), ("localhost", False)],
)
def test_addresses_are_told_from_names(host: str, literal: bool) -> None:
    assert is_address(host) is literal


@given(st.text(max_size=40))
def test_a_canonical_host_is_plain_ascii_and_its_own_canonical_form(raw: str) -> None:
    try:
        host = canonical_host(raw)
    except OddTarget:
        return
    assert host.isascii() and host == host.lower() and canonical_host(host) == host
    assert not set(host) - set("abcdefghijklmnopqrstuvwxyz0123456789.-_:")


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=4), st.integers(0, 11))
def test_nothing_put_into_an_allowed_name_leaves_it_the_same_name(added: str, place: int) -> None:
    """Whatever is inserted, dropped by a parser or not, must not give the plain name again (but for case)."""
    plain = "example.org"
    raw = plain[:place] + added + plain[place:]
    try:
        host = canonical_host(raw)
    except OddTarget:
        return
    assert host != plain or raw.lower().removesuffix(".") == plain, (raw, unicodedata.name(added[0], "?"))
