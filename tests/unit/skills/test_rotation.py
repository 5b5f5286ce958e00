import base64

import msgspec
import pytest

from fakes.skill_harness import key
from palyra.errors import PalyraError
from palyra.signing.dsse import sign_envelope
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.trust.publisher_keys import PAYLOAD_TYPE, MalformedRotation, make_rotation, verify_rotation

of = Ed25519Verifier.from_public_bytes


def test_the_old_key_vouches_for_the_new_one() -> None:
    read = verify_rotation(make_rotation("acme", key("old"), key("new").public_key()), of)
    assert (read.publisher, read.old_key_id, read.new_key_id) == ("acme", key("old").key_id, key("new").key_id)
    assert read.new_public_key == key("new").public_key()


def test_nobody_else_can() -> None:
    statement = {
        "format": "palyra.skill.rotation.v1",
        "publisher": "acme",
        "old_public_key": base64.b64encode(key("old").public_key()).decode(),
        "new_public_key": base64.b64encode(key("thief").public_key()).decode(),
    }
    forged = sign_envelope(PAYLOAD_TYPE, msgspec.json.encode(statement), [key("thief")]).to_json()
    with pytest.raises(PalyraError) as refused:
        verify_rotation(forged, of)
    assert refused.value.code == "signature.unknown_key"


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"format": "x"}', b"\xff"])
def test_other_statements_are_refused(payload: bytes) -> None:
    with pytest.raises(MalformedRotation):
        verify_rotation(sign_envelope(PAYLOAD_TYPE, payload, [key("old")]).to_json(), of)


def test_a_key_does_not_replace_itself_and_a_skills_signature_is_no_rotation() -> None:
    with pytest.raises(MalformedRotation, match="the old one"):
        verify_rotation(make_rotation("acme", key("old"), key("old").public_key()), of)
    raw = make_rotation("acme", key("old"), key("new").public_key())
    moved = raw.replace(b"skill-key-rotation", b"skill-key-rotatiom")
    with pytest.raises(PalyraError):
        verify_rotation(moved, of)
