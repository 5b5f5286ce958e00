from palyra.identity.records import ServerCertificate
from palyra.secret import Secret


def test_a_private_key_is_not_printed_with_its_record() -> None:
    shown = ServerCertificate(
        key_pem=Secret("-----BEGIN PRIVATE KEY-----"),
        chain_pem=b"",
        fingerprint="f",
        not_before_ms=0,
        not_after_ms=1,
        authority_id="a",
    )
    assert "PRIVATE" not in repr(shown) and "PRIVATE" not in f"{shown}"
