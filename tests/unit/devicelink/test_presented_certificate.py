import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from palyra.devicelink.pairing.proof import WrongServer, hash_certificate, require_issued_by, split_bundle
from palyra.identity.certificate import pem_of

NOW = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def certificate(name, key, issuer, issuer_key, *, ca=False, use=ExtendedKeyUsageOID.SERVER_AUTH, start=NOW - DAY):
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + 3 * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.DER)


def key():
    return ec.generate_private_key(ec.SECP256R1())


CA_KEY, LEAF_KEY, OTHER_KEY = key(), key(), key()
CA = certificate("ca", CA_KEY, "ca", CA_KEY, ca=True, use=None)
LEAF = certificate("leaf", LEAF_KEY, "ca", CA_KEY)


def test_a_leaf_of_its_authority_passes():
    require_issued_by(LEAF, CA, now=NOW)


@pytest.mark.parametrize(
    ("leaf", "authority"),
    [
        (certificate("leaf", LEAF_KEY, "ca", OTHER_KEY), CA),
        (LEAF, certificate("ca", OTHER_KEY, "ca", OTHER_KEY, ca=True, use=None)),
        (LEAF, certificate("ca", CA_KEY, "ca", CA_KEY, ca=False, use=None)),
        (LEAF, certificate("ca", CA_KEY, "other", OTHER_KEY, ca=True, use=None)),
        (certificate("leaf", LEAF_KEY, "ca", CA_KEY, use=ExtendedKeyUsageOID.CLIENT_AUTH), CA),
        (certificate("leaf", LEAF_KEY, "ca", CA_KEY, use=None), CA),
        (certificate("leaf", LEAF_KEY, "ca", CA_KEY, start=NOW - 10 * DAY), CA),
        (certificate("leaf", LEAF_KEY, "ca", CA_KEY, start=NOW + DAY), CA),
        (CA, LEAF),
        (b"noise", CA),
        (LEAF, b"noise"),
        (b"", b""),
    ],
    ids=[
        "signed by another key", "another authority of the same name", "an authority that is none", "an intermediate",
        "for clients", "for nothing", "expired", "not yet", "turned round", "no leaf", "no authority", "nothing",
    ],
)  # fmt: skip
def test_anything_else_is_the_wrong_server(leaf, authority):
    with pytest.raises(WrongServer):
        require_issued_by(leaf, authority, now=NOW)


def test_bundles_are_taken_apart():
    assert split_bundle(pem_of(CA) + pem_of(LEAF)) == [CA, LEAF]
    assert split_bundle(b"") == []
    assert len(hash_certificate(CA)) == 64
