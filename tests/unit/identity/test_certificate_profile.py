import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.identity import certificate as profiles
from palyra.identity.certificate import CsrFacts, Purpose
from palyra.identity.device import (
    BadServerName,
    CsrAsksForAuthority,
    CsrAsksForMore,
    CsrAsksForNames,
    CsrBadSignature,
    CsrTooLarge,
    CsrWrongKey,
    DeviceId,
    DeviceKind,
    SpiffeId,
)
from palyra.identity.limits import CLOCK_SKEW_MS, MAX_CSR_BYTES, MAX_SERVER_NAMES

NOW = 1_790_000_000_123
NAME = SpiffeId("palyra-x", DeviceKind.WORKER, DeviceId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
PLAIN = CsrFacts(key_curve="secp256r1", public_key_der=b"key", extension_oids=(), attribute_oids=())


def test_a_device_gets_its_name_and_whole_seconds() -> None:
    profile = profiles.device_profile(NAME, now_ms=NOW, life_ms=60_000, authority_ends_ms=NOW * 2)
    assert (profile.purpose, profile.uri, profile.dns_names, profile.addresses) == (Purpose.DEVICE, str(NAME), (), ())
    assert profile.not_before_ms == 1_790_000_000_000 - CLOCK_SKEW_MS
    assert profile.not_after_ms == 1_790_000_060_000
    assert profile.path_length is None


def test_nothing_outlives_its_authority() -> None:
    ends = NOW + 1_000
    assert profiles.device_profile(NAME, now_ms=NOW, life_ms=60_000, authority_ends_ms=ends).not_after_ms == ends
    assert profiles.server_profile((), now_ms=NOW, life_ms=60_000, authority_ends_ms=ends).not_after_ms == ends


def test_a_plain_request_for_a_p256_key_is_accepted() -> None:
    profiles.require_plain(PLAIN)
    # The attribute that carries extensions may be there as long as it carries none.
    profiles.require_plain(
        CsrFacts(
            key_curve="secp256r1",
            public_key_der=b"",
            extension_oids=(),
            attribute_oids=(profiles.EXTENSION_REQUEST_OID,),
        )
    )
    profiles.require_signature(True)


@pytest.mark.parametrize(
    ("curve", "extensions", "attributes", "refusal"),
    [
        ("secp256r1", (profiles.BASIC_CONSTRAINTS_OID,), (), CsrAsksForAuthority),
        ("secp256r1", (profiles.ALTERNATIVE_NAME_OID,), (), CsrAsksForNames),
        ("secp256r1", (profiles.ALTERNATIVE_NAME_OID, profiles.BASIC_CONSTRAINTS_OID), (), CsrAsksForAuthority),
        ("secp256r1", ("2.5.29.37",), (), CsrAsksForMore),
        ("secp256r1", ("1.2.3.4",), (), CsrAsksForMore),
        ("secp256r1", (), ("1.2.840.113549.1.9.7",), CsrAsksForMore),
        ("secp384r1", (), (), CsrWrongKey),
        ("secp256k1", (), (), CsrWrongKey),
        ("", (), (), CsrWrongKey),
    ],
)
def test_whatever_asks_for_more_is_refused(
    curve: str, extensions: tuple[str, ...], attributes: tuple[str, ...], refusal: type[Exception]
) -> None:
    facts = CsrFacts(key_curve=curve, public_key_der=b"", extension_oids=extensions, attribute_oids=attributes)
    with pytest.raises(refusal):
        profiles.require_plain(facts)


@pytest.mark.promise("P-limits")
def test_size_and_signature_are_required() -> None:
    profiles.require_csr_size(b"x" * MAX_CSR_BYTES)
    with pytest.raises(CsrTooLarge):
        profiles.require_csr_size(b"x" * (MAX_CSR_BYTES + 1))
    with pytest.raises(CsrBadSignature):
        profiles.require_signature(False)


def test_server_names_are_sorted_into_names_and_addresses_once_each() -> None:
    names = profiles.server_names(["Box.Lan.", "box.lan", "palyra", "10.0.0.7", "[fe80::1]", "FE80:0::1"])
    assert names == (("palyra", "box.lan"), ("10.0.0.7", "fe80::1"))
    assert profiles.server_names([]) == (("palyra",), ())


@pytest.mark.parametrize("name", ["", "a b", "box:7143", "*.lan", "-x.lan", "x-.lan", "a..b", "x" * 64, "ü.lan", "a/b"])
def test_what_is_no_host_is_no_server_name(name: str) -> None:
    with pytest.raises(BadServerName):
        profiles.server_names([name])


def test_server_names_are_bounded() -> None:
    with pytest.raises(BadServerName):
        profiles.server_names([f"h{number}" for number in range(MAX_SERVER_NAMES)])


@given(st.integers(0, 2**42))
def test_an_authority_may_vouch_for_one_more_and_for_no_further(now_ms: int) -> None:
    profile = profiles.authority_profile("label", now_ms=now_ms)
    assert profile.path_length == 1 and profile.not_before_ms < profile.not_after_ms
    assert profile.purpose is Purpose.AUTHORITY and not profile.uri
