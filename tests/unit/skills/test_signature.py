import base64
import json

import msgspec
import pytest

from fakes.skill_harness import PUBLISHER, artifact, entries, key
from palyra.errors import PalyraError
from palyra.signing.dsse import sign_envelope
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.package.artifact import SkillArtifact, pack_artifact
from palyra.skills.trust.signature import (
    PAYLOAD_TYPE,
    SignatureMismatch,
    Unsigned,
    listing_digest,
    sign_artifact,
    verify_signature,
)

of = Ed25519Verifier.from_public_bytes


def parts_of(signed: SkillArtifact) -> dict[str, bytes]:
    return {**dict(signed.signed_entries()), "signature.json": signed.signature or b""}


def test_the_signer_is_the_one_who_signed() -> None:
    verified = verify_signature(artifact(), of)
    assert verified.key_id == key(PUBLISHER).key_id and verified.public_key == key(PUBLISHER).public_key()


def test_signing_again_replaces_and_is_deterministic() -> None:
    once = artifact()
    assert sign_artifact(once, key(PUBLISHER)).raw == once.raw
    other = sign_artifact(once, key("other"))
    assert verify_signature(other, of).key_id == key("other").key_id
    assert listing_digest(other) == listing_digest(once)


def test_an_unsigned_archive_is_refused() -> None:
    with pytest.raises(Unsigned):
        verify_signature(pack_artifact(entries()), of)


@pytest.mark.parametrize("name", ["modules/main.wasm", "sbom.cdx.json", "provenance.json", "assets/a"])
def test_a_changed_entry_breaks_it(name: str) -> None:
    parts = parts_of(artifact(assets={"a": b"x"}))
    parts[name] += b" "
    with pytest.raises(SignatureMismatch, match="changed, added or removed"):
        verify_signature(pack_artifact(parts), of)


def test_a_signature_of_another_skill_says_whose_it_is() -> None:
    parts = {**entries(), "signature.json": artifact("2.0.0").signature or b""}
    with pytest.raises(SignatureMismatch, match=r"version '2\.0\.0'"):
        verify_signature(pack_artifact(parts), of)


def test_the_listing_of_moved_bytes_is_another() -> None:
    one = pack_artifact(entries(assets={"ab": b"c", "b": b""}))
    other = pack_artifact(entries(assets={"a": b"bc", "b": b""}))
    assert listing_digest(one) != listing_digest(other)


@pytest.mark.parametrize("change", ["space", "extra key", "key order", "two signatures", "type", "other public key"])
def test_the_envelope_has_one_spelling(change: str) -> None:
    signed = artifact()
    envelope = json.loads(signed.signature or b"")
    match change:
        case "space":
            raw = (signed.signature or b"") + b"\n"
        case "extra key":
            raw = json.dumps({**envelope, "note": "x"}).encode()
        case "key order":
            raw = json.dumps(dict(reversed(envelope.items())), separators=(",", ":")).encode()
        case "two signatures":
            payload = base64.b64decode(envelope["payload"])
            raw = sign_envelope(PAYLOAD_TYPE, payload, [key(PUBLISHER), key("other")]).to_json()
        case "type":
            raw = sign_envelope("text/plain", base64.b64decode(envelope["payload"]), [key(PUBLISHER)]).to_json()
        case _:
            statement = json.loads(base64.b64decode(envelope["payload"]))
            statement["public_key"] = base64.b64encode(key("other").public_key()).decode()
            raw = sign_envelope(PAYLOAD_TYPE, msgspec.json.encode(statement), [key(PUBLISHER)]).to_json()
    with pytest.raises(PalyraError) as refused:
        verify_signature(pack_artifact({**parts_of(signed), "signature.json": raw}), of)
    assert refused.value.code in ("skill.signature_mismatch", "signature.malformed_envelope")


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"format": "x"}', b"{" * 10_000, b'{"format":"palyra.skill.v9"}'])
def test_a_statement_about_something_else_is_refused(payload: bytes) -> None:
    raw = sign_envelope(PAYLOAD_TYPE, payload, [key(PUBLISHER)]).to_json()
    with pytest.raises(SignatureMismatch):
        verify_signature(pack_artifact({**entries(), "signature.json": raw}), of)
