"""The facts of this worker, measured once at its start, and the attestation made of them for each challenge."""

import hashlib
import os
import re
import stat
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from palyra.fleet.agent.lease import ImageFileBad
from palyra.fleet.domain.attestation import WorkerAttestation
from palyra.fleet.domain.policy import SDK_PROTOCOL_VERSION, WIT_ABI_VERSION
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.limits import ATTESTATION_LIFE_MS, MAX_CAPABILITIES, MAX_IMAGE_FILE_BYTES


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """``boot_id`` is one life of this process."""

    boot_id: str
    platform: str
    software_version: str
    slots: int
    capabilities: tuple[str, ...]
    image_digest_sha256: str = ""
    build_digest_sha256: str = ""
    artifact_digest_sha256: str = ""


def make_attestation(
    facts: WorkerFacts,
    worker_id: str,
    nonce: str,
    now_ms: int,
    egress: tuple[str, SignedStatement] | None,
) -> WorkerAttestation:
    """Make an attestation. The fleet's policy decides whether one without an egress binding is enough."""
    attestation = WorkerAttestation(
        worker_id=worker_id,
        image_digest_sha256=facts.image_digest_sha256,
        build_digest_sha256=facts.build_digest_sha256,
        artifact_digest_sha256=facts.artifact_digest_sha256,
        egress_proxy_attested=False,
        supported_capabilities=tuple(sorted(facts.capabilities))[:MAX_CAPABILITIES],
        sdk_protocol_version=SDK_PROTOCOL_VERSION,
        wit_abi_version=WIT_ABI_VERSION,
        issued_ms=now_ms,
        expires_ms=now_ms + ATTESTATION_LIFE_MS,
        nonce=nonce,
    )
    return attestation if egress is None else attestation.with_binding(*egress)


IMAGE_FILE: Final = Path("/etc/palyra/image.json")
_DOMAIN: Final = b"palyra.worker.build.v1"
_LENGTH_BYTES: Final = 8
# The interpreter writes these folders and uses nothing in them without its source.
_NOT_MEASURED: Final = frozenset(("__pycache__",))
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class MeasuredBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A digest that could not be measured is empty. The owner of a machine can still lie about all of them."""

    image_digest_sha256: str = ""
    build_digest_sha256: str = ""
    artifact_digest_sha256: str = ""


def package_folder() -> Path:
    """Return the folder from which this program was loaded."""
    return Path(__file__).resolve().parents[2]


def measure(package: Path | None = None, *, image_file: Path = IMAGE_FILE, image_digest: str = "") -> MeasuredBuild:
    """Measure the build and read the image file. Without one, the launcher's ``image_digest`` counts. Blocking."""
    image = _read_image_file(image_file)
    chosen = image.image_digest_sha256 or image_digest
    for digest in (chosen, image.artifact_digest_sha256):
        if digest and not _SHA256.fullmatch(digest):
            raise ImageFileBad(f"{digest[:80]!r} is not a SHA-256 in hex")
    measured = build_digest(package or package_folder())
    return msgspec.structs.replace(image, image_digest_sha256=chosen, build_digest_sha256=measured)


@cache
def own_build() -> str:
    """Return the digest of the program that runs. Blocking, the first time."""
    return build_digest(package_folder())


def build_digest(package: Path) -> str:
    """Digest all paths and contents of the package in sorted order. A link counts by its target's name."""
    digest = hashlib.sha256(_DOMAIN)
    for path in sorted(_files(package), key=lambda path: path.relative_to(package).as_posix().encode()):
        _part(digest, path.relative_to(package).as_posix().encode())
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            _part(digest, b"link " + os.fsencode(os.readlink(path)))
        else:
            with open(path, "rb") as file:
                _part(digest, b"file " + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if name not in _NOT_MEASURED and name not in linked]
        found += [Path(place, name) for name in (*files, *linked)]
    return found


def _part(digest: "hashlib._Hash", data: bytes) -> None:
    digest.update(len(data).to_bytes(_LENGTH_BYTES, "big") + data)


def _read_image_file(path: Path) -> MeasuredBuild:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_IMAGE_FILE_BYTES + 1)
    except FileNotFoundError:
        return MeasuredBuild()
    except OSError as error:
        raise ImageFileBad(f"cannot read {path}: {error.strerror}") from error
    try:
        if len(raw) > MAX_IMAGE_FILE_BYTES:
            raise ImageFileBad(f"{path} has more than {MAX_IMAGE_FILE_BYTES} bytes")
        return msgspec.json.decode(raw, type=MeasuredBuild)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImageFileBad(f"{path} does not name an image: {error}") from error
