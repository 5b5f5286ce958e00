"""``palyra attest``: check the signed statement of a call, offline, with only the public key."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, pretty_json, shown

if TYPE_CHECKING:
    from palyra.tools.attestation import Evidence, ToolAttestation

PUBLIC_KEY_FILE = "signing.pub"
_NAME_A_DOCUMENT = (
    "name a file with what `palyra call TOOL --json` printed, or with an attestation; - is standard input"
)


@click.group()
def attest() -> None:
    """Verify the signed statement of a call."""


@attest.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Key of a signer, repeatable; without, signing.pub of the state directory.",
)
@json_option
@pass_invocation
def verify(invocation: Invocation, file: str, public_keys: tuple[Path, ...]) -> None:
    """Verify an attestation, or a call's whole JSON document. FILE may be - for standard input.

    Needs no daemon. Every signature must be by a given key, and of a call's document every attested part must agree
    with the attestation. Of a call that ran on a worker, the worker's own attestation is verified with it, by the key
    that the daemon's names.
    """
    from palyra.cli.sources import read_file_or_stdin
    from palyra.signing.ed25519 import Ed25519Verifier
    from palyra.tools.attestation import MAX_CALL_DOCUMENT_BYTES, verify_evidence

    keys = public_keys or (invocation.state_path / PUBLIC_KEY_FILE,)
    verifiers = [Ed25519Verifier.from_pem_file(key) for key in keys]
    document = read_file_or_stdin(file, MAX_CALL_DOCUMENT_BYTES, hint=_NAME_A_DOCUMENT)
    evidence = verify_evidence(document, verifiers)
    worker = _worker_of(document, evidence)
    invocation.output.data(_document(evidence, worker), lambda _: render_evidence(evidence, worker))


def _worker_of(document: bytes, evidence: "Evidence") -> "ToolAttestation | None":
    """What the worker that ran the call signed. A bare attestation comes without it."""
    if evidence.kind != "call":
        return None
    from palyra.signing.p256 import P256Verifier
    from palyra.tools.co_attestation import verify_worker_attestation

    return verify_worker_attestation(document, evidence.attestation, P256Verifier.from_der)


def _document(evidence: "Evidence", worker: "ToolAttestation | None") -> dict[str, Any]:
    import msgspec

    from palyra.tools.attestation import execution_sha256

    beside = {} if worker is None else {"worker_attestation": msgspec.to_builtins(worker)}
    return {
        "verified": evidence.kind,
        "key_ids": list(evidence.key_ids),
        "execution_sha256": execution_sha256(evidence.attestation),
        "attestation": msgspec.to_builtins(evidence.attestation),
        **beside,
    }


def render_evidence(evidence: "Evidence", worker: "ToolAttestation | None" = None) -> str:
    from palyra.clock import rfc3339
    from palyra.tools.attestation import execution_sha256

    about = evidence.attestation
    what = "The document agrees with its attestation" if evidence.kind == "call" else "The attestation is genuine"
    facts = labelled(
        (
            ("signed by", "\n".join(map(shown, evidence.key_ids))),
            ("call", shown(about.call_id)),
            ("run", shown(about.run_id)),
            ("principal", shown(about.principal)),
            ("tool", shown(about.tool)),
            ("arguments", f"sha256 {shown(about.argument_digest)}"),
            ("decision", f"{shown(about.decision)} by {shown(', '.join(about.policies) or 'no policy')}"),
            ("bundle", f"sha256 {shown(about.bundle_digest)}"),
            ("approval", shown(about.approval_id or "none")),
            ("executor", shown(about.executor)),
            ("enforced", "\n".join(_receipt_line(entry) for entry in about.receipt) or "nothing recorded"),
            ("outcome", shown(about.outcome)),
            ("output", f"sha256 {shown(about.output_digest)}"),
            ("started", rfc3339(about.started_ms)),
            ("ended", rfc3339(about.ended_ms)),
            ("execution", f"sha256 {execution_sha256(about)}"),
            *_worker_lines(evidence, worker),
        ),
        indent=2,
    )
    return f"{what}.\n{facts}"


def _worker_lines(evidence: "Evidence", worker: "ToolAttestation | None") -> tuple[tuple[str, str], ...]:
    if worker is None:
        return ()
    from palyra.tools.attestation import execution_sha256

    key_id = shown(str(evidence.attestation.receipt[0].get("key_id", "")))
    said = f"{shown(worker.outcome)}, signed by {key_id}, execution sha256 {execution_sha256(worker)}"
    return (("worker", shown(worker.executor)), ("it says", said))


def _receipt_line(entry: dict[str, Any]) -> str:
    ordered = sorted(entry.items(), key=lambda item: (item[0] != "layer", item[0]))
    layer = str(entry.get("layer", ""))
    return ", ".join(
        f"{shown(name)} {' '.join(pretty_json(value).split())}{_in_sizes(layer, value)}" for name, value in ordered
    )


def _in_sizes(layer: str, value: Any) -> str:
    """The bytes that are told, in the units that people read; what was signed stands before them."""
    from palyra.tools.receipt_sizes import amounts, size

    counts = [each.count for each in amounts(layer, value) if each.count is not None] if isinstance(value, str) else []
    return f" ({', '.join(map(size, counts))})" if counts else ""
