"""The signed statement of one finished call: its caller and arguments, the decision, the enforcement, the result.

``execution_sha256`` identifies an execution by a digest over every attested field. The statement carries the fields and
the digest. A verifier computes the digest again, so neither can be changed without the other. The envelope may have
several signatures (the daemon's, and that of the worker that ran the call): all must verify.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from palyra.canonical import NotCanonical, canonical_json, digest_of, sorted_json
from palyra.clock import rfc3339
from palyra.errors import Tampered
from palyra.limits import MIB
from palyra.signing.dsse import (
    BadSignature,
    Envelope,
    MalformedEnvelope,
    Signer,
    UnknownKey,
    Verifier,
    open_parsed,
    parse_envelope,
    sign_envelope,
)
from palyra.strict_json import NotStrictJson, parse_strict

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://palyra.dev/attestation/tool-call/v1"
EXECUTION_DOMAIN: Final = b"palyra.tool-call.execution.v1"
SUBJECT_PREFIX: Final = "tool-call/"
# A call's document holds its envelope and its result: at most 1 MiB of JSON, which escaping may enlarge.
MAX_CALL_DOCUMENT_BYTES: Final = 8 * MIB

# The last millisecond that RFC 3339 can express.
_MAX_INSTANT_MS: Final = 253_402_300_799_999
InstantMs = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INSTANT_MS)]


class AttestationSignatureInvalid(Tampered):
    code = "attestation.signature"
    hint = "the statement was changed after signing, or signed by another key"


class AttestationKeyUnknown(Tampered):
    code = "attestation.unknown_key"
    hint = "verify with the public key of the daemon (and worker) that made the statement"


class AttestationMalformed(Tampered):
    code = "attestation.malformed"
    hint = "pass the attestation, or the whole JSON document of the call, exactly as it was issued"


class AttestationVersionUnknown(Tampered):
    code = "attestation.unknown_version"
    hint = "a newer Palyra made this statement: verify it with that version"


class AttestationDigestMismatch(Tampered):
    code = "attestation.digest_mismatch"
    hint = "the statement's digest is not the digest of its own fields"


class DocumentDisagrees(Tampered):
    code = "attestation.document_mismatch"
    hint = "the document around the attestation was changed: believe the attestation"


class ToolAttestation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``outcome`` is the call's final status; ``output_digest`` the digest of the canonical JSON of its result."""

    call_id: str
    run_id: str
    principal: str
    tool: str
    argument_digest: str
    decision: str
    policies: tuple[str, ...]
    bundle_digest: str
    approval_id: str | None = None
    executor: str
    receipt: tuple[dict[str, Any], ...]
    outcome: str
    output_digest: str
    started_ms: InstantMs
    ended_ms: InstantMs

    def to_statement(self) -> dict[str, Any]:
        """Make the in-toto Statement (v1) about this call."""
        return self._statement(execution_sha256(self))

    def _statement(self, digest: str) -> dict[str, Any]:
        return self._around(digest, msgspec.to_builtins(self))

    def _around(self, digest: str, predicate: Any) -> dict[str, Any]:
        return {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": SUBJECT_PREFIX + self.call_id, "digest": {"sha256": digest}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }


def execution_sha256(attestation: ToolAttestation) -> str:
    """Compute SHA-256 over the domain, then each field's name and value, each part after its length.

    Lengths make the encoding injective: no text moved from one field to its neighbour gives the same digest.
    """
    return _execution_digest(attestation, [canonical_json(line) for line in attestation.receipt])


def _execution_digest(attestation: ToolAttestation, lines: Sequence[bytes]) -> str:
    """Compute the digest. ``lines`` are the receipt's canonical bytes; fields come in their declared order."""
    parts = [EXECUTION_DOMAIN]
    for name, value in msgspec.structs.asdict(attestation).items():
        parts += (name.encode(), _encode_field(lines if name == "receipt" else value))
    return hashlib.sha256(b"".join(map(_with_length, parts))).hexdigest()


def _with_length(part: bytes) -> bytes:
    return struct.pack(">Q", len(part)) + part


def _encode_field(value: Any) -> bytes:
    """Encode a field's value after its type. Bytes are the canonical JSON of a line of the receipt."""
    match value:
        case None:
            return b"none"
        case str():
            return b"text" + value.encode()
        case int():
            return b"integer%d" % value
        case bytes():
            return b"json" + value
        case _:
            return b"list" + b"".join(_with_length(_encode_field(item)) for item in value)


def attest(attestation: ToolAttestation, signers: Sequence[Signer]) -> Envelope:
    return attest_with_digest(attestation, signers)[0]


def attest_with_digest(attestation: ToolAttestation, signers: Sequence[Signer]) -> tuple[Envelope, str]:
    """Sign the statement. The result is the envelope, and the execution digest in it."""
    lines = [canonical_json(line) for line in attestation.receipt]
    digest = _execution_digest(attestation, lines)
    return sign_envelope(PAYLOAD_TYPE, _canonical_statement(attestation, digest, lines), signers), digest


def _canonical_statement(attestation: ToolAttestation, digest: str, lines: Sequence[bytes]) -> bytes:
    """Encode the statement. ``lines`` are the receipt in canonical form; no other field needs that encoder."""
    predicate = msgspec.structs.replace(attestation, receipt=tuple(map(msgspec.Raw, lines)))
    try:
        return sorted_json(attestation._around(digest, predicate))
    except UnicodeEncodeError as error:
        raise NotCanonical(f"this attestation has no canonical JSON form: {error}") from error


def verify_attestation(raw: bytes, verifiers: Iterable[Verifier]) -> ToolAttestation:
    """Verify an envelope and return its attestation. Raise a Tampered error otherwise."""
    try:
        envelope = parse_envelope(raw)
    except MalformedEnvelope as error:
        raise AttestationMalformed(error.message) from error
    return verify_parsed(envelope, verifiers)[0]


def verify_parsed(envelope: Envelope, verifiers: Iterable[Verifier]) -> tuple[ToolAttestation, str]:
    """Verify an envelope that was parsed. The result includes the digest of the execution."""
    try:
        payload = open_parsed(envelope, PAYLOAD_TYPE, verifiers)
    except BadSignature as error:
        raise AttestationSignatureInvalid(error.message) from error
    except UnknownKey as error:
        raise AttestationKeyUnknown(error.message, **error.details) from error
    except MalformedEnvelope as error:
        raise AttestationMalformed(error.message) from error
    statement = _object(_read(payload), "the statement")
    _require_known_version(statement)
    try:
        attestation = msgspec.convert(statement.get("predicate"), ToolAttestation)
    except msgspec.ValidationError as error:
        raise AttestationMalformed(f"the predicate is not a tool call: {error}") from error
    try:
        digest = execution_sha256(attestation)
        expected = attestation._statement(digest)
        if statement.get("subject") != expected["subject"]:
            raise AttestationDigestMismatch("the subject's name and digest are not those of the attested fields")
        if canonical_json(expected) != payload:
            raise AttestationMalformed("the statement is not in its canonical spelling")
    except (NotCanonical, UnicodeEncodeError) as error:
        raise AttestationMalformed("the predicate has no canonical form") from error
    return attestation, digest


def verify_call_document(raw: bytes, verifiers: Iterable[Verifier]) -> ToolAttestation:
    """Verify a call's whole document: the envelope in it, and that the other fields agree with the envelope.

    ``raw`` is a CallView, ``{"ok": ..., "data": CallView}``, or the document of a failed call, which has the call in
    its error's details. Only the attested fields are verified.
    """
    if len(raw) > MAX_CALL_DOCUMENT_BYTES:
        raise AttestationMalformed(f"larger than {MAX_CALL_DOCUMENT_BYTES} bytes")
    view = _view(_object(_read(raw), "the document"))
    envelope = _object(view.get("attestation"), "the call's attestation")
    attestation = verify_attestation(msgspec.json.encode(envelope), verifiers)
    for name, said, attested in _comparisons(view, attestation):
        try:
            agrees = canonical_json(said) == canonical_json(attested)
        except NotCanonical as error:
            raise AttestationMalformed(f"{name} has no canonical form") from error
        if not agrees:
            raise DocumentDisagrees(f"the document's {name} is not what was attested", field=name)
    return attestation


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification: of a bare attestation, or of a call's whole document, with the signers' key ids."""

    kind: Literal["attestation", "call"]
    attestation: ToolAttestation
    key_ids: tuple[str, ...]
    # Whether a call's document has the result that was attested; False once Palyra no longer keeps it.
    has_result: bool = True


def verify_evidence(raw: bytes, verifiers: Iterable[Verifier]) -> Evidence:
    """Verify either form that a person may have in a file."""
    known = tuple(verifiers)
    if len(raw) > MAX_CALL_DOCUMENT_BYTES:
        raise AttestationMalformed(f"larger than {MAX_CALL_DOCUMENT_BYTES} bytes")
    document = _object(_read(raw), "the file")
    if "payloadType" in document:
        attestation, envelope = verify_attestation(raw, known), document
        return Evidence(kind="attestation", attestation=attestation, key_ids=_key_ids(envelope))
    attestation, envelope = verify_call_document(raw, known), _view(document)["attestation"]
    return Evidence(
        kind="call",
        attestation=attestation,
        key_ids=_key_ids(envelope),
        has_result=not isinstance(_view(document).get("result_dropped"), dict),
    )


def call_view(document: bytes) -> dict[str, Any]:
    """Return the call in a document, without verifying anything."""
    return _view(_object(_read(document), "the document"))


def _key_ids(envelope: dict[str, Any]) -> tuple[str, ...]:
    return tuple(signature["keyid"] for signature in envelope["signatures"])


def _view(document: dict[str, Any]) -> dict[str, Any]:
    match document:
        case {"ok": _, "data": data}:
            return _object(data, "data")
        case {"ok": False, "error": {"details": {"call": dict() as call}}}:
            return call
        case _:
            return document


def _comparisons(view: dict[str, Any], attestation: ToolAttestation) -> Iterable[tuple[str, Any, Any]]:
    decision = _object(view.get("decision"), "the call's decision")
    for name in ("call_id", "run_id", "tool", "principal"):
        yield name, view.get(name), getattr(attestation, name)
    yield "status", view.get("status"), attestation.outcome
    yield "decision.outcome", decision.get("outcome"), attestation.decision
    yield "decision.policies", decision.get("policies"), list(attestation.policies)
    yield "decision.bundle_digest", decision.get("bundle_digest"), attestation.bundle_digest
    yield "receipt", view.get("receipt"), list(attestation.receipt)
    try:
        result_digest = _digest_result(view)
    except NotCanonical as error:
        raise AttestationMalformed("the result has no canonical form") from error
    yield "result", result_digest, attestation.output_digest
    # A document may omit these, but not change them.
    approval = view.get("approval")
    optional = {
        "argument_digest": (view.get("argument_digest"), attestation.argument_digest),
        "approval_id": (view.get("approval_id"), attestation.approval_id),
        "approval.id": (approval.get("id") if isinstance(approval, dict) else approval, attestation.approval_id),
        "started_at": (view.get("started_at"), rfc3339(attestation.started_ms)),
        "ended_at": (view.get("ended_at"), rfc3339(attestation.ended_ms)),
    }
    for name, (said, attested) in optional.items():
        if said is not None:
            yield name, said, attested


def _digest_result(view: dict[str, Any]) -> Any:
    """Return the digest of the result, or the one that is left of a result that Palyra no longer keeps."""
    dropped = view.get("result_dropped")
    if view.get("result") is None and isinstance(dropped, dict):
        return dropped.get("output_digest")
    return digest_of(view.get("result"))


def _require_known_version(statement: dict[str, Any]) -> None:
    if statement.get("_type") != STATEMENT_TYPE:
        raise AttestationVersionUnknown(f"the statement is of type {str(statement.get('_type'))[:80]!r}")
    if statement.get("predicateType") != PREDICATE_TYPE:
        raise AttestationVersionUnknown(f"the predicate is of type {str(statement.get('predicateType'))[:80]!r}")


def _read(raw: bytes) -> Any:
    try:
        return parse_strict(raw, any_number_spelling=True)
    except NotStrictJson as error:
        raise AttestationMalformed(error.message) from error


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AttestationMalformed(f"{what} is not an object")
    return value
