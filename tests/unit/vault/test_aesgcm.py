import pytest

from palyra.vault.envelope import AesGcm
from palyra.vault.key_source import VaultTampered

# The GCM specification's test case 16 (256-bit key, 96-bit nonce, associated data).
KEY = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
NONCE = bytes.fromhex("cafebabefacedbaddecaf888")
PLAIN = bytes.fromhex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
)
ASSOCIATED = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
SEALED = bytes.fromhex(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    "76fc6ece0f4e1768cddf8853bb2d551b"
)


def test_the_published_vector() -> None:
    assert AesGcm().seal(KEY, NONCE, PLAIN, ASSOCIATED) == SEALED
    assert AesGcm().open(KEY, NONCE, SEALED, ASSOCIATED) == PLAIN


@pytest.mark.parametrize("part", ["key", "nonce", "sealed", "associated"])
def test_a_flipped_bit_anywhere_is_found(part: str) -> None:
    parts = {"key": KEY, "nonce": NONCE, "sealed": SEALED, "associated": ASSOCIATED}
    for at in range(0, len(parts[part]), 7):
        changed = bytearray(parts[part])
        changed[at] ^= 1
        given = {**parts, part: bytes(changed)}
        with pytest.raises(VaultTampered):
            AesGcm().open(given["key"], given["nonce"], given["sealed"], given["associated"])
