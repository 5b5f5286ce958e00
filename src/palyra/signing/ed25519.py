"""Ed25519 keys in files: the private half as PKCS#8 PEM, mode 0600, the public half beside it as PEM.

``cryptography`` is imported on first use: the import takes noticeable time, and most commands never sign.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Self

from palyra.errors import Failed, InvalidInput, Tampered, Unavailable
from palyra.limits import KIB
from palyra.signing.dsse import BadSignature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

# An Ed25519 PEM has about 120 bytes. A larger file is not a key.
MAX_KEY_FILE_BYTES = 4 * KIB
_KEY_ID_HEX_CHARS = 32
_PRIVATE_MODE = 0o600
_PUBLIC_MODE = 0o644


class UnsafeKeyFile(Failed):
    code = "signing_key.unsafe_file"
    hint = "the key file must be a regular file of yours with mode 0600; if others could read it, make a new key"


class MalformedKey(InvalidInput):
    code = "signing_key.malformed"
    hint = "expected an Ed25519 key in PEM"


class KeyUnavailable(Unavailable):
    code = "signing_key.unavailable"
    hint = "give the path of the public key; a daemon writes its own as signing.pub in its state directory"


class KeyPairMismatch(Tampered):
    code = "signing_key.pair_mismatch"
    hint = "someone replaced the public key; find out who, then remove it and start again to have it rewritten"


def key_id_of(public_key: bytes) -> str:
    return "ed25519:" + hashlib.sha256(public_key).hexdigest()[:_KEY_ID_HEX_CHARS]


class Ed25519Signer:
    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self._public = key.public_key().public_bytes_raw()
        self.key_id = key_id_of(self._public)

    @classmethod
    def generate(cls) -> Self:
        """Make a key that exists only in this process."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Load the key at ``path``, or make one. If several processes race, all get the same key."""
        raw = _read_private(path)
        if raw is None:
            _create_private(path)
            raw = _read_private(path)
        if raw is None:
            raise KeyUnavailable(f"{path} vanished while it was being made")
        signer = cls(_parse_private(raw, path))
        signer._publish_beside(path)
        return signer

    def public_key(self) -> bytes:
        return self._public

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def verifier(self) -> "Ed25519Verifier":
        return Ed25519Verifier.from_public_bytes(self._public)

    def __repr__(self) -> str:
        return f"<Ed25519Signer {self.key_id}>"

    def _public_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def _publish_beside(self, path: Path) -> None:
        public_path = public_path_of(path)
        try:
            known = Ed25519Verifier.from_pem_file(public_path)
        except KeyUnavailable:
            temporary = _write_new_beside(public_path, self._public_pem(), _PUBLIC_MODE)
            os.replace(temporary, public_path)
            _sync_directory(public_path.parent)
            return
        if known.key_id != self.key_id:
            raise KeyPairMismatch(f"{public_path} is not the public half of {path}")


class Ed25519Verifier:
    def __init__(self, key: "Ed25519PublicKey") -> None:
        self._key = key
        self.key_id = key_id_of(key.public_bytes_raw())

    @classmethod
    def from_public_bytes(cls, raw: bytes) -> Self:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            return cls(Ed25519PublicKey.from_public_bytes(raw))
        except ValueError as error:
            raise MalformedKey("an Ed25519 public key has 32 bytes") from error

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            if b"PRIVATE KEY" in pem:
                raise MalformedKey(
                    "this is the private half of a key", hint="give the public half, which lies beside it as FILE.pub"
                ) from error
            raise MalformedKey("not a public key in PEM") from error
        if not isinstance(key, Ed25519PublicKey):
            raise MalformedKey("a public key, but not an Ed25519 one")
        return cls(key)

    @classmethod
    def from_pem_file(cls, path: Path) -> Self:
        try:
            with path.open("rb") as file:
                pem = file.read(MAX_KEY_FILE_BYTES + 1)
        except OSError as error:
            raise KeyUnavailable(f"cannot read the public key {path}: {error.strerror}") from error
        if len(pem) > MAX_KEY_FILE_BYTES:
            raise MalformedKey(f"{path} is too large for a key")
        return cls.from_pem(pem)

    def public_key(self) -> bytes:
        return self._key.public_bytes_raw()

    def verify(self, message: bytes, signature: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message)
        except InvalidSignature as error:
            raise BadSignature(f"the signature by {self.key_id} does not verify", key_id=self.key_id) from error


def public_path_of(private_path: Path) -> Path:
    """Return the file of the public half: ``signing.pub`` for ``signing.key``."""
    return private_path.with_suffix(".pub")


def _read_private(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafeKeyFile(f"cannot open {path} as a key file: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        # Checked on the open descriptor: a name can be swapped between a check and an open.
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeKeyFile(f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise UnsafeKeyFile(f"{path} belongs to another user")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            if b"PUBLIC KEY" in file.read(MAX_KEY_FILE_BYTES):
                raise MalformedKey(
                    f"{path} is the public half of a key", hint="give the private half, the file beside it without .pub"
                )
            raise UnsafeKeyFile(f"{path} is accessible to others (mode {stat.S_IMODE(status.st_mode):04o})")
        return file.read(MAX_KEY_FILE_BYTES + 1)


def _create_private(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = _write_new_beside(path, pem, _PRIVATE_MODE)
    try:
        # A link of a finished file puts the whole key in place, or finds another one: no reader sees half a key.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync_directory(path.parent)


def _write_new_beside(path: Path, data: bytes, mode: int) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        raise KeyUnavailable(
            f"cannot write in {path.parent}: {error.strerror}",
            hint="name a folder that is there and that you may write in",
        ) from error
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse_private(raw: bytes, path: Path) -> "Ed25519PrivateKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise MalformedKey(f"{path} is not a private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise MalformedKey(f"{path} is a private key, but not an Ed25519 one")
    return key
