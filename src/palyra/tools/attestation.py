"""The signed statement of one finished call: who asked for what, what was decided, enforced and returned.

``execution_sha256`` names an execution by a digest over every attested field. The statement carries the fields and the
digest; a verifier computes the digest again, so that neither can be changed without the other. The envelope around it
may have several signatures (the daemon's, and that of the worker that ran the call): all must verify.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
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
# A call's document holds its result, at most 1 MiB of JSON that escaping may swell, and its envelope.
MAX_CALL_DOCUMENT_BYTES: Final = 8 * MIB
# Callers with their tools, and decisions, of which the encoded form is remembered.
_MAX_IN_COMMON: Final = 512

# The last millisecond that has an RFC 3339 spelling.
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
        """The in-toto Statement (v1) about this call."""
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
    """SHA-256 over the domain, then each field's name and value, every part preceded by its length.

    Lengths make the encoding injective: no text moved from one field to its neighbour gives the same digest.
    """
    said = attestation
    who, decided = _who(said.principal, said.tool), _decided(said.decision, said.policies, said.bundle_digest)
    return _execution_digest(said, [canonical_json(line) for line in said.receipt], who, decided)


def _execution_digest(said: ToolAttestation, lines: Sequence[bytes], who: bytes, decided: bytes) -> str:
    """``lines`` are the canonical bytes of the receipt, ``who`` and ``decided`` several fields each. All come in the
    order in which they are declared."""
    approval = b"none" if said.approval_id is None else b"text" + said.approval_id.encode()
    receipt = _list([b"json" + line for line in lines])
    call_id, run_id, arguments = said.call_id.encode(), said.run_id.encode(), said.argument_digest.encode()
    executor, outcome, output = said.executor.encode(), said.outcome.encode(), said.output_digest.encode()
    started, ended = b"integer%d" % said.started_ms, b"integer%d" % said.ended_ms
    # Written out, where _field and _text would say the same: they would be called ten times for every call.
    fields = (
        *(_DOMAIN_PART, _CALL_ID, _length(_TEXT + len(call_id)), b"text", call_id),
        *(_RUN_ID, _length(_TEXT + len(run_id)), b"text", run_id, who),
        *(_ARGUMENTS, _length(_TEXT + len(arguments)), b"text", arguments, decided),
        *(_APPROVAL, _length(len(approval)), approval),
        *(_EXECUTOR, _length(_TEXT + len(executor)), b"text", executor),
        *(_RECEIPT, _length(len(receipt)), receipt),
        *(_OUTCOME, _length(_TEXT + len(outcome)), b"text", outcome),
        *(_OUTPUT, _length(_TEXT + len(output)), b"text", output),
        *(_STARTED, _length(len(started)), started),
        *(_ENDED, _length(len(ended)), ended),
    )
    return hashlib.sha256(b"".join(fields)).hexdigest()


_length = struct.Struct(">Q").pack


def _part(data: bytes) -> bytes:
    return _length(len(data)) + data


_DOMAIN_PART: Final = _part(EXECUTION_DOMAIN)
_NAMES: Final = {name: _part(name.encode()) for name in ToolAttestation.__struct_fields__}
_CALL_ID, _RUN_ID, _ARGUMENTS = _NAMES["call_id"], _NAMES["run_id"], _NAMES["argument_digest"]
_APPROVAL, _EXECUTOR, _RECEIPT = _NAMES["approval_id"], _NAMES["executor"], _NAMES["receipt"]
_OUTCOME, _OUTPUT = _NAMES["outcome"], _NAMES["output_digest"]
_STARTED, _ENDED = _NAMES["started_ms"], _NAMES["ended_ms"]
# How long the word before a text is.
_TEXT: Final = 4


def _field(name: str, value: bytes) -> bytes:
    return _NAMES[name] + _length(len(value)) + value


def _text(name: str, value: str) -> bytes:
    return _field(name, b"text" + value.encode())


def _list(items: Iterable[bytes]) -> bytes:
    return b"list" + b"".join([_part(item) for item in items])


def _who(principal: str, tool: str) -> bytes:
    return _text("principal", principal) + _text("tool", tool)


def _decided(decision: str, policies: tuple[str, ...], bundle_digest: str) -> bytes:
    named = _list([b"text" + policy.encode() for policy in policies])
    return _text("decision", decision) + _field("policies", named) + _text("bundle_digest", bundle_digest)


# Many calls have these in common. Only of our own statements: those of others may be of any length.
_our_who: Final = lru_cache(maxsize=_MAX_IN_COMMON)(_who)
_our_decided: Final = lru_cache(maxsize=_MAX_IN_COMMON)(_decided)


def attest(attestation: ToolAttestation, signers: Sequence[Signer]) -> Envelope:
    return attest_with_digest(attestation, signers)[0]


def attest_with_digest(attestation: ToolAttestation, signers: Sequence[Signer]) -> tuple[Envelope, str]:
    """The envelope, and the execution digest in it: for who records it elsewhere too."""
    lines = [canonical_json(line) for line in attestation.receipt]
    who = _our_who(attestation.principal, attestation.tool)
    decided = _our_decided(attestation.decision, attestation.policies, attestation.bundle_digest)
    digest = _execution_digest(attestation, lines, who, decided)
    return sign_envelope(PAYLOAD_TYPE, _canonical_statement(attestation, digest, lines), signers), digest


def _canonical_statement(attestation: ToolAttestation, digest: str, lines: Sequence[bytes]) -> bytes:
    """Only a receipt may hold values that need the long way, and that was gone for ``lines``."""
    predicate = msgspec.structs.replace(attestation, receipt=tuple(map(msgspec.Raw, lines)))
    try:
        return sorted_json(attestation._around(digest, predicate))
    except UnicodeEncodeError as error:
        raise NotCanonical(f"this attestation has no canonical JSON form: {error}") from error


def verify_attestation(raw: bytes, verifiers: Iterable[Verifier]) -> ToolAttestation:
    """What a verified envelope says; raises the Tampered leaf that applies otherwise."""
    try:
        envelope = parse_envelope(raw)
    except MalformedEnvelope as error:
        raise AttestationMalformed(error.message) from error
    return verify_parsed(envelope, verifiers)[0]


def verify_parsed(envelope: Envelope, verifiers: Iterable[Verifier]) -> tuple[ToolAttestation, str]:
    """As ``verify_attestation``, of an envelope that was parsed; with the digest of the execution."""
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
    """Verifies a whole call as a door printed it: the envelope inside, and that the rest says what the envelope says.

    ``raw`` is a CallView, ``{"ok": ..., "data": CallView}``, or the document of a failed call, which has it in its
    error's details. Only the attested fields are vouched for.
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
    """What was verified: a bare attestation, or a call's whole document around one; and whose signatures it bears."""

    kind: Literal["attestation", "call"]
    attestation: ToolAttestation
    key_ids: tuple[str, ...]


def verify_evidence(raw: bytes, verifiers: Iterable[Verifier]) -> Evidence:
    """Verifies either form that a person may hold in a file."""
    known = tuple(verifiers)
    if len(raw) > MAX_CALL_DOCUMENT_BYTES:
        raise AttestationMalformed(f"larger than {MAX_CALL_DOCUMENT_BYTES} bytes")
    document = _object(_read(raw), "the file")
    if "payloadType" in document:
        attestation, envelope = verify_attestation(raw, known), document
        return Evidence(kind="attestation", attestation=attestation, key_ids=_key_ids(envelope))
    attestation, envelope = verify_call_document(raw, known), _view(document)["attestation"]
    return Evidence(kind="call", attestation=attestation, key_ids=_key_ids(envelope))


def call_view(document: bytes) -> dict[str, Any]:
    """The call in a document as a door printed it. Nothing is verified by reading it."""
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
        result_digest = digest_of(view.get("result"))
    except NotCanonical as error:
        raise AttestationMalformed("the result has no canonical form") from error
    yield "result", result_digest, attestation.output_digest
    # These a door may leave away, but not misstate.
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
