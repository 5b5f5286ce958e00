import hashlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.identity.certificate import authority_profile, der_of, fingerprint_of, pem_of
from palyra.identity.device import UnknownCertificate
from palyra.identity.x509 import create_authority


def test_both_forms_have_the_same_fingerprint() -> None:
    der, _ = create_authority(authority_profile("x", now_ms=1_790_000_000_000))
    expected = hashlib.sha256(der).hexdigest()
    assert fingerprint_of(der) == fingerprint_of(pem_of(der)) == expected
    assert fingerprint_of(b"\n# a remark\n" + pem_of(der)) == expected
    assert pem_of(der).decode() == ssl.DER_cert_to_PEM_cert(der)


def test_of_a_chain_the_leaf_counts() -> None:
    leaf, _ = create_authority(authority_profile("leaf", now_ms=1_790_000_000_000))
    other, _ = create_authority(authority_profile("other", now_ms=1_790_000_000_000))
    assert fingerprint_of(pem_of(leaf) + pem_of(other)) == fingerprint_of(leaf)


@given(st.binary(min_size=1))
def test_pem_loses_nothing(der: bytes) -> None:
    assert der_of(pem_of(der)) == der


@pytest.mark.parametrize(
    "pem",
    [
        b"-----BEGIN CERTIFICATE-----\nAAAA",
        b"-----BEGIN CERTIFICATE-----\n****\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_pem_is_nobodys_certificate(pem: bytes) -> None:
    with pytest.raises(UnknownCertificate):
        fingerprint_of(pem)
