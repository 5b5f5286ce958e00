import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.signing.dsse import (
    MAX_ENVELOPE_BYTES,
    MAX_SIGNATURES,
    BadSignature,
    Envelope,
    EnvelopeTooLarge,
    MalformedEnvelope,
    UnknownKey,
    UnusableSigners,
    open_envelope,
    pae,
    parse_envelope,
    sign_envelope,
)
from palyra.signing.ed25519 import Ed25519Signer

KIND = "application/vnd.palyra.test+json"
DAEMON = Ed25519Signer.generate()
WORKER = Ed25519Signer.generate()
STRANGER = Ed25519Signer.generate()
BOTH = (DAEMON.verifier(), WORKER.verifier())
WHITESPACE = b" \t\r\n"


def envelope_dict(**changes: Any) -> dict[str, Any]:
    return {**sign_envelope(KIND, b"payload bytes", [DAEMON]).to_dict(), **changes}


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_pae_is_the_published_encoding() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@given(st.text(max_size=20), st.binary(max_size=40), st.text(max_size=20), st.binary(max_size=40))
def test_pae_never_collides(kind: str, payload: bytes, other_kind: str, other_payload: bytes) -> None:
    if (kind, payload) != (other_kind, other_payload):
        assert pae(kind, payload) != pae(other_kind, other_payload)


@given(st.binary(max_size=200))
def test_opens_what_it_signed(payload: bytes) -> None:
    envelope = sign_envelope(KIND, payload, [DAEMON, WORKER])
    assert open_envelope(envelope.to_json(), KIND, BOTH) == payload
    assert open_envelope(json.dumps(envelope.to_dict(), indent=2).encode(), KIND, BOTH) == payload


def test_every_single_byte_substitution_is_refused() -> None:
    original = sign_envelope(KIND, b'{"x":1}', [DAEMON, WORKER]).to_json()
    for index in range(len(original)):
        for replacement in {original[index] ^ 1, original[index] ^ 0x20, ord("A"), ord("="), ord(" "), ord("\\")}:
            if replacement == original[index]:
                continue
            changed = original[:index] + bytes([replacement]) + original[index + 1 :]
            with pytest.raises((BadSignature, UnknownKey, MalformedEnvelope)):
                open_envelope(changed, KIND, BOTH)


@settings(max_examples=400)
@given(st.data())
def test_any_one_byte_edit_outside_whitespace_is_refused(data: st.DataObject) -> None:
    envelope = sign_envelope(KIND, data.draw(st.binary(max_size=30)), [DAEMON, WORKER])
    original = json.dumps(envelope.to_dict(), indent=data.draw(st.sampled_from([None, 1]))).encode()
    index = data.draw(st.integers(0, len(original) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    edit = data.draw(st.sampled_from(["replace", "insert", "delete"]))
    changed = original[:index] + (b"" if edit == "delete" else byte) + original[index + (edit != "insert") :]
    significant = [bytes(b for b in text if b not in WHITESPACE) for text in (original, changed)]
    if significant[0] == significant[1]:
        return
    with pytest.raises((BadSignature, UnknownKey, MalformedEnvelope)):
        open_envelope(changed, KIND, BOTH)


@pytest.mark.parametrize(
    "document",
    [
        envelope_dict(extra=1),
        {k: v for k, v in envelope_dict().items() if k != "payload"},
        {k: v for k, v in envelope_dict().items() if k != "signatures"},
        envelope_dict(signatures=[]),
        envelope_dict(signatures=None),
        envelope_dict(signatures=envelope_dict()["signatures"] * 2),
        envelope_dict(signatures=[{**envelope_dict()["signatures"][0], "cert": ""}]),
        envelope_dict(signatures=[{"sig": envelope_dict()["signatures"][0]["sig"]}]),
        envelope_dict(payload=7),
        envelope_dict(payload=base64.urlsafe_b64encode(b"\xfb\xff\xfe").decode()),
        envelope_dict(payload="cGF5bG9hZCBieXRlcx=="),
        envelope_dict(payload="cGF5bG9hZCBieXRlcw"),
        envelope_dict(payload="cGF5bG9hZCBieXRlcw==\n"),
        envelope_dict(payload=" cGF5bG9hZCBieXRlcw=="),
        envelope_dict(payload="é"),
        envelope_dict(payloadType="application/vnd.palyra.other+json"),
        [envelope_dict()],
        "text",
        None,
    ],
)
def test_refuses_every_other_shape(document: Any) -> None:
    with pytest.raises(MalformedEnvelope):
        open_envelope(raw(document), KIND, BOTH)


def test_refuses_duplicate_keys_and_escapes() -> None:
    text = sign_envelope(KIND, b"p", [DAEMON]).to_json().decode()
    for changed in (
        text.replace('"payload":', '"payload":"AAAA","payload":', 1),
        text.replace("application/", "application\\/"),
        text.replace("application/", "application\\u002f"),
    ):
        assert changed != text
        with pytest.raises(MalformedEnvelope):
            open_envelope(changed.encode(), KIND, BOTH)


def test_one_unknown_signature_spoils_the_envelope() -> None:
    envelope = sign_envelope(KIND, b"p", [DAEMON, STRANGER])
    with pytest.raises(UnknownKey):
        open_envelope(envelope.to_json(), KIND, BOTH)
    with pytest.raises(UnknownKey):
        open_envelope(envelope.to_json(), KIND, ())


def test_a_signature_under_anothers_key_id_is_bad() -> None:
    mine = sign_envelope(KIND, b"p", [STRANGER]).to_dict()
    mine["signatures"][0]["keyid"] = DAEMON.key_id
    with pytest.raises(BadSignature) as caught:
        open_envelope(raw(mine), KIND, BOTH)
    assert caught.value.code == "signature.invalid"


def test_a_signature_for_one_type_does_not_open_as_another() -> None:
    relabelled = envelope_dict(payloadType="application/vnd.palyra.other+json")
    with pytest.raises(BadSignature):
        open_envelope(raw(relabelled), "application/vnd.palyra.other+json", BOTH)


def test_signers_are_one_to_a_few_and_different() -> None:
    for signers in ([], [DAEMON, DAEMON], [Ed25519Signer.generate() for _ in range(MAX_SIGNATURES + 1)]):
        with pytest.raises(UnusableSigners):
            sign_envelope(KIND, b"p", signers)


def test_sizes_are_bounded_both_ways() -> None:
    with pytest.raises(EnvelopeTooLarge):
        sign_envelope(KIND, b"x" * MAX_ENVELOPE_BYTES, [DAEMON])
    with pytest.raises(MalformedEnvelope):
        parse_envelope(b" " * (MAX_ENVELOPE_BYTES + 1))


def test_parse_envelope_reads_the_shape() -> None:
    envelope = sign_envelope(KIND, b"p", [DAEMON])
    assert parse_envelope(envelope.to_json()) == envelope
    assert isinstance(envelope, Envelope)
