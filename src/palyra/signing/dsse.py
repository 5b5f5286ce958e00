"""DSSE envelopes (Dead Simple Signing Envelope, v1): a payload, its type, and signatures of both.

The signature covers the payload's type as well as its bytes, so an attestation can never be presented as a
checkpoint. Reading is strict: an envelope has exactly one spelling, up to whitespace between its tokens, every
signature must verify under a known key, and extra fields are refused.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from palyra.errors import InvalidInput, LimitExceeded, Tampered
from palyra.limits import KIB, MIB
from palyra.strict_json import NotStrictJson, parse_strict

# The largest signed document is an attestation with its receipt. A larger envelope is an attack on the reader.
MAX_ENVELOPE_BYTES = 1 * MIB
# More than the type and the most signatures ever take.
_MAX_AROUND_PAYLOAD = 64 * KIB
# A daemon, a worker and a few witnesses; more only costs the verifier time.
MAX_SIGNATURES = 8

_PAE_VERSION = b"DSSEv1"
_ENVELOPE_FIELDS = frozenset({"payloadType", "payload", "signatures"})
_SIGNATURE_FIELDS = frozenset({"keyid", "sig"})


class BadSignature(Tampered):
    code = "signature.invalid"
    hint = "the signed bytes were changed, or another key made the signature"


class UnknownKey(Tampered):
    code = "signature.unknown_key"
    hint = "verify with the public key of the daemon that signed; its id is in the message"


class MalformedEnvelope(Tampered):
    code = "signature.malformed_envelope"
    hint = "pass the envelope exactly as it was issued"


class EnvelopeTooLarge(LimitExceeded):
    code = "signature.envelope_too_large"
    hint = "sign the digest of a large document, not the document"


class UnusableSigners(InvalidInput):
    code = "signature.unusable_signers"
    hint = "give between one and a few signers, each with its own key"


class Signer(Protocol):
    @property
    def key_id(self) -> str: ...

    def sign(self, message: bytes) -> bytes: ...

    def public_key(self) -> bytes:
        """Return the raw 32 bytes of the Ed25519 public key."""


class Verifier(Protocol):
    @property
    def key_id(self) -> str: ...

    def verify(self, message: bytes, signature: bytes) -> None:
        """Raise BadSignature unless this key signed exactly this message."""


class EnvelopeSignature(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The field names follow the standard."""

    payloadType: str  # noqa: N815
    payload: str
    signatures: tuple[EnvelopeSignature, ...]

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        return {
            "payloadType": self.payloadType,
            "payload": self.payload,
            "signatures": [{"keyid": one.keyid, "sig": one.sig} for one in self.signatures],
        }


def pae(payload_type: str, payload: bytes) -> bytes:
    """Encode the bytes to sign (pre-authentication encoding). Lengths come first, so no two pairs share an encoding."""
    kind = payload_type.encode("utf-8")
    return b" ".join((_PAE_VERSION, b"%d" % len(kind), kind, b"%d" % len(payload), payload))


def sign_envelope(payload_type: str, payload: bytes, signers: Sequence[Signer]) -> Envelope:
    if not 1 <= len(signers) <= MAX_SIGNATURES or len({signer.key_id for signer in signers}) != len(signers):
        raise UnusableSigners(f"an envelope takes 1 to {MAX_SIGNATURES} signers with different keys")
    message = pae(payload_type, payload)
    envelope = Envelope(
        payloadType=payload_type,
        payload=_b64(payload),
        signatures=tuple(EnvelopeSignature(keyid=signer.key_id, sig=_b64(signer.sign(message))) for signer in signers),
    )
    # Never issue an envelope that our own reader would refuse.
    large = len(envelope.payload) + _MAX_AROUND_PAYLOAD > MAX_ENVELOPE_BYTES
    if large and len(envelope.to_json()) > MAX_ENVELOPE_BYTES:
        raise EnvelopeTooLarge(f"the envelope would be larger than {MAX_ENVELOPE_BYTES} bytes")
    return envelope


def open_envelope(raw: bytes, payload_type: str, verifiers: Iterable[Verifier]) -> bytes:
    """Return the payload if every signature verifies under one of ``verifiers``. Raise otherwise."""
    return open_parsed(parse_envelope(raw), payload_type, verifiers)


def open_parsed(envelope: Envelope, payload_type: str, verifiers: Iterable[Verifier]) -> bytes:
    """Open an envelope that was parsed."""
    if envelope.payloadType != payload_type:
        raise MalformedEnvelope(f"the payload is {envelope.payloadType[:80]!r}, not {payload_type!r}")
    payload = _unb64(envelope.payload)
    message = pae(payload_type, payload)
    known = {verifier.key_id: verifier for verifier in verifiers}
    for signature in envelope.signatures:
        verifier = known.get(signature.keyid)
        if verifier is None:
            raise UnknownKey(f"signed with {signature.keyid[:80]!r}, which is not a known key", key_id=signature.keyid)
        verifier.verify(message, _unb64(signature.sig))
    return payload


def parse_envelope(raw: bytes) -> Envelope:
    """Parse the shape, and verify nothing. Use ``open_envelope`` to trust a payload."""
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise MalformedEnvelope(f"larger than {MAX_ENVELOPE_BYTES} bytes")
    # An envelope needs no escapes, and escapes are second spellings (\u002f, \u002F, \/) of one character.
    if b"\\" in raw:
        raise MalformedEnvelope("an envelope has no escape sequences")
    try:
        document = parse_strict(raw, any_number_spelling=True)
    except NotStrictJson as error:
        raise MalformedEnvelope(f"not an envelope: {error}") from error
    members = _members(document, _ENVELOPE_FIELDS)
    signatures = members["signatures"]
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= MAX_SIGNATURES:
        raise MalformedEnvelope(f"an envelope has 1 to {MAX_SIGNATURES} signatures")
    read = []
    for signature in signatures:
        parts = _members(signature, _SIGNATURE_FIELDS)
        read.append(EnvelopeSignature(keyid=_text(parts["keyid"]), sig=_text(parts["sig"])))
    if len({signature.keyid for signature in read}) != len(read):
        raise MalformedEnvelope("one key signed twice")
    return Envelope(
        payloadType=_text(members["payloadType"]), payload=_text(members["payload"]), signatures=tuple(read)
    )


def _members(value: Any, fields: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != fields:
        raise MalformedEnvelope(f"expected an object with exactly {', '.join(sorted(fields))}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedEnvelope("expected text")
    return value


def _b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _unb64(text: str) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error) as error:
        raise MalformedEnvelope("not base64") from error
    # Padding bits and missing padding give one value several spellings; only the canonical one is accepted.
    if _b64(data) != text:
        raise MalformedEnvelope("not canonical base64")
    return data
