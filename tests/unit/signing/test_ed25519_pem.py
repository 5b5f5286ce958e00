"""Our reading and writing of the one spelling agrees with the library's, and whatever differs by a byte is not ours."""

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from palyra.signing.ed25519 import Ed25519Signer
from palyra.signing.ed25519_pem import private_key_in, private_pem, public_key_in, public_pem

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PRIVATE = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@given(st.binary(min_size=32, max_size=32))
def test_both_spell_every_key_alike(seed: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    assert private_pem(seed) == key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert public_pem(public) == key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert private_key_in(private_pem(seed)) == seed and public_key_in(public_pem(public)) == public


@given(st.integers(0, len(PRIVATE) - 1), st.integers(1, 255))
def test_a_text_that_differs_in_a_byte_is_another_key_or_none(at: int, by: int) -> None:
    changed = bytearray(PRIVATE)
    changed[at] ^= by
    found = private_key_in(bytes(changed))
    assert found is None or private_pem(found) == bytes(changed) != PRIVATE


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"\n",
        PUBLIC,
        PRIVATE + b"\n",
        PRIVATE[:-1],
        b"\n" + PRIVATE,
        PRIVATE.replace(b"\n", b"\r\n"),
        PRIVATE + PRIVATE,
        X25519PrivateKey.from_private_bytes(bytes(32)).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
)
def test_any_other_text_is_for_the_library(pem: bytes) -> None:
    assert private_key_in(pem) is None


@pytest.mark.parametrize("pem", [b"", PRIVATE, PUBLIC + b"\n", PUBLIC[:-1]])
def test_any_other_public_text_too(pem: bytes) -> None:
    assert public_key_in(pem) is None


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    for spell in (private_pem, public_pem):
        with pytest.raises(ValueError, match="32 bytes"):
            spell(bytes(size))


def test_a_key_in_another_spelling_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    path.write_bytes(PRIVATE.replace(b"\n", b"\r\n"))
    path.chmod(0o600)
    assert Ed25519Signer.load_or_create(path).public_key() == KEY.public_key().public_bytes_raw()


def test_whoever_makes_or_reads_our_own_keys_does_not_load_every_other_kind(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from palyra.signing.ed25519 import Ed25519Signer\n"
        "path = Path(sys.argv[1]); made, read = [Ed25519Signer.load_or_create(path) for _ in range(2)]\n"
        "print(made.key_id == read.key_id, 'cryptography.hazmat.primitives.serialization' in sys.modules)"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "signing.key")]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "True False"
