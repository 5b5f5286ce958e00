import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from palyra.signing.dsse import BadSignature
from palyra.signing.ed25519 import (
    MAX_KEY_FILE_BYTES,
    Ed25519Signer,
    Ed25519Verifier,
    KeyPairMismatch,
    KeyUnavailable,
    MalformedKey,
    UnsafeKeyFile,
    key_id_of,
)


@pytest.mark.promise("P-state-private")
def test_a_new_key_is_private_and_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    old_umask = os.umask(0)
    try:
        signer = Ed25519Signer.load_or_create(path)
    finally:
        os.umask(old_umask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Ed25519Signer.load_or_create(path).key_id == signer.key_id
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["signing.key", "signing.pub"]


def test_a_key_with_other_line_ends_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    signer = Ed25519Signer.load_or_create(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert Ed25519Signer.load_or_create(path).key_id == signer.key_id


def test_the_public_half_verifies_and_another_does_not(tmp_path: Path) -> None:
    signer = Ed25519Signer.load_or_create(tmp_path / "signing.key")
    verifier = Ed25519Verifier.from_pem_file(tmp_path / "signing.pub")
    assert verifier.key_id == signer.key_id == key_id_of(signer.public_key())
    assert signer.key_id.startswith("ed25519:") and len(signer.key_id) == len("ed25519:") + 32
    signature = signer.sign(b"message")
    verifier.verify(b"message", signature)
    for message, bad in ((b"massage", signature), (b"message", signature[:-1]), (b"message", b"")):
        with pytest.raises(BadSignature):
            verifier.verify(message, bad)
    with pytest.raises(BadSignature):
        Ed25519Signer.generate().verifier().verify(b"message", signature)


def test_refuses_a_symlinked_key(tmp_path: Path) -> None:
    real = tmp_path / "real.key"
    Ed25519Signer.load_or_create(real)
    link = tmp_path / "signing.key"
    link.symlink_to(real)
    with pytest.raises(UnsafeKeyFile):
        Ed25519Signer.load_or_create(link)


def test_refuses_to_create_through_a_dangling_symlink(tmp_path: Path) -> None:
    (tmp_path / "signing.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeKeyFile):
        Ed25519Signer.load_or_create(tmp_path / "signing.key")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.promise("P-state-private")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o601])
def test_refuses_a_key_others_can_touch(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "signing.key"
    Ed25519Signer.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(UnsafeKeyFile):
        Ed25519Signer.load_or_create(path)


def test_refuses_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "signing.key", 0o600)
    with pytest.raises(UnsafeKeyFile):
        Ed25519Signer.load_or_create(tmp_path / "signing.key")


def test_refuses_a_replaced_public_half(tmp_path: Path) -> None:
    Ed25519Signer.load_or_create(tmp_path / "signing.key")
    Ed25519Signer.load_or_create(tmp_path / "intruder.key")
    (tmp_path / "intruder.pub").replace(tmp_path / "signing.pub")
    with pytest.raises(KeyPairMismatch):
        Ed25519Signer.load_or_create(tmp_path / "signing.key")


def test_rewrites_a_lost_public_half(tmp_path: Path) -> None:
    signer = Ed25519Signer.load_or_create(tmp_path / "signing.key")
    (tmp_path / "signing.pub").unlink()
    Ed25519Signer.load_or_create(tmp_path / "signing.key")
    assert Ed25519Verifier.from_pem_file(tmp_path / "signing.pub").key_id == signer.key_id


def test_refuses_other_keys_and_other_files(tmp_path: Path) -> None:
    other = X25519PrivateKey.generate()
    private = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (private, b"", b"not a key", b"x" * (MAX_KEY_FILE_BYTES + 5)):
        path = tmp_path / "signing.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(MalformedKey):
            Ed25519Signer.load_or_create(path)
    public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for content in (public, private, b"", b"x" * (MAX_KEY_FILE_BYTES + 5)):
        (tmp_path / "other.pub").write_bytes(content)
        with pytest.raises(MalformedKey):
            Ed25519Verifier.from_pem_file(tmp_path / "other.pub")
    with pytest.raises(MalformedKey):
        Ed25519Verifier.from_public_bytes(b"short")
    with pytest.raises(KeyUnavailable):
        Ed25519Verifier.from_pem_file(tmp_path / "missing.pub")


def test_a_missing_directory_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailable):
        Ed25519Signer.load_or_create(tmp_path / "nowhere" / "signing.key")


def test_processes_creating_at_once_end_with_one_key(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from palyra.signing.ed25519 import Ed25519Signer\n"
        "import cryptography.hazmat.primitives.asymmetric.ed25519\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(Ed25519Signer.load_or_create(pathlib.Path(sys.argv[1])).key_id)\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "signing.key")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    results = [racer.communicate("go\n")[0].strip() for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert len(set(results)) == 1 and results[0].startswith("ed25519:")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["signing.key", "signing.pub"]


def test_printing_a_signer_shows_no_key(tmp_path: Path) -> None:
    signer = Ed25519Signer.generate()
    assert repr(signer) == f"<Ed25519Signer {signer.key_id}>"
