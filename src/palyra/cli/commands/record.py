"""``palyra attest`` and ``palyra journal``: verify signed statements offline; read, verify and export the record.

The journal is read in the state directory itself, whether or not a daemon runs on it.
"""

import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import one_line, read_file_or_stdin
from palyra.errors import InvalidInput, Unavailable
from palyra.visible_text import escape, render_fields, respell_json, spell_json

if TYPE_CHECKING:
    from palyra.journal.checkpoint import Checkpoint
    from palyra.journal.verify import VerifyReport
    from palyra.signing.dsse import Verifier
    from palyra.signing.tool_attestation import Evidence, ToolAttestation
    from palyra.store.event import Event
    from palyra.store.sqlite.store import SqliteReader

PUBLIC_KEY_FILE = "signing.pub"
_NAME_A_DOCUMENT = (
    "name a file with what `palyra call TOOL --json` printed, or with an attestation; - is standard input"
)


@click.group()
def attest() -> None:
    """Verify the signed statement of a call."""


@attest.command("verify")
@click.argument("file", metavar="FILE")
@click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Key of a signer, repeatable; without, signing.pub of the state directory.",
)
@pass_invocation
def verify_attestation(invocation: Invocation, file: str, public_keys: tuple[Path, ...]) -> None:
    """Verify an attestation, or a call's whole JSON document. FILE may be - for standard input.

    Needs no daemon. Every signature must be by a given key, and of a call's document every attested part must agree
    with the attestation. Of a call that ran on a worker, the worker's own attestation is verified with it, by the key
    that the daemon's names.
    """
    from palyra.signing.ed25519 import Ed25519Verifier
    from palyra.signing.tool_attestation import MAX_CALL_DOCUMENT_BYTES, verify_evidence

    keys = public_keys or (invocation.state_path / PUBLIC_KEY_FILE,)
    verifiers = [Ed25519Verifier.from_pem_file(key) for key in keys]
    document = read_file_or_stdin(file, MAX_CALL_DOCUMENT_BYTES, hint=_NAME_A_DOCUMENT)
    evidence = verify_evidence(document, verifiers)
    worker = _worker_of(document, evidence)
    invocation.output.data(_document(evidence, worker), lambda _: render_evidence(evidence, worker))


def _worker_of(document: bytes, evidence: "Evidence") -> "ToolAttestation | None":
    """Verify the attestation of the worker that ran the call. A bare attestation comes without it."""
    if evidence.kind != "call":
        return None
    from palyra.pipeline.attest import verify_worker_attestation
    from palyra.signing.p256 import P256Verifier

    return verify_worker_attestation(document, evidence.attestation, P256Verifier.from_der)


def _document(evidence: "Evidence", worker: "ToolAttestation | None") -> dict[str, Any]:
    import msgspec

    from palyra.signing.tool_attestation import execution_sha256

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
    from palyra.signing.tool_attestation import execution_sha256

    about = evidence.attestation
    what = "The document agrees with its attestation" if evidence.kind == "call" else "The attestation is genuine"
    facts = render_fields(
        (
            ("signed by", "\n".join(map(escape, evidence.key_ids))),
            ("call", escape(about.call_id)),
            ("run", escape(about.run_id)),
            ("principal", escape(about.principal)),
            ("tool", escape(about.tool)),
            ("arguments", f"sha256 {escape(about.argument_digest)}"),
            ("decision", f"{escape(about.decision)} by {escape(', '.join(about.policies) or 'no policy')}"),
            ("bundle", f"sha256 {escape(about.bundle_digest)}"),
            ("approval", escape(about.approval_id or "none")),
            ("executor", escape(about.executor)),
            ("enforced", "\n".join(_receipt_line(entry) for entry in about.receipt) or "nothing recorded"),
            ("outcome", escape(about.outcome)),
            ("output", f"sha256 {escape(about.output_digest)}" + ("" if evidence.has_result else ", no longer kept")),
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
    from palyra.signing.tool_attestation import execution_sha256

    key_id = escape(str(evidence.attestation.receipt[0].get("key_id", "")))
    said = f"{escape(worker.outcome)}, signed by {key_id}, execution sha256 {execution_sha256(worker)}"
    return (("worker", escape(worker.executor)), ("it says", said))


def _receipt_line(entry: dict[str, Any]) -> str:
    ordered = sorted(entry.items(), key=lambda item: (item[0] != "layer", item[0]))
    layer = str(entry.get("layer", ""))
    return ", ".join(
        f"{escape(name)} {' '.join(spell_json(value).split())}{_in_sizes(layer, value)}" for name, value in ordered
    )


def _in_sizes(layer: str, value: Any) -> str:
    """Repeat the byte counts of a value in units that people read, behind the signed text."""
    from palyra.pipeline.domain.receipt_text import format_size, split_amounts

    counts = (
        [each.count for each in split_amounts(layer, value) if each.count is not None] if isinstance(value, str) else []
    )
    return f" ({', '.join(map(format_size, counts))})" if counts else ""


PUBLIC_KEY_NAME: Final = "signing.pub"
DEFAULT_TAIL: Final = 20
_BARE = re.compile(r"[!-~]+")

_file = click.Path(path_type=Path, dir_okay=False)


class NoCheckpointYet(Unavailable):
    code = "journal.no_checkpoint"
    hint = "one is made after a thousand events, a minute after the first unsealed one, and when the daemon stops"


class UnreadableFile(InvalidInput):
    code = "journal.unreadable_file"
    hint = "check the path and its permissions"


@click.group()
def journal() -> None:
    """Read, verify and export the record."""


@journal.command()
@click.option(
    "-n", "--lines", default=DEFAULT_TAIL, show_default=True, type=click.IntRange(0, 10_000), help="How many."
)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with new events as they are recorded.")
@click.option("--run", default="", metavar="RUN", help="Only events of this run.")
@click.option("--call", default="", metavar="CALL", help="Only events of this call.")
@click.option("--kind", default="", metavar="KIND", help="Only events of this kind, such as call.finished.")
@pass_invocation
def tail(invocation: Invocation, lines: int, following: bool, run: str, call: str, kind: str) -> None:
    """Show the newest events, one a line."""
    if following and invocation.output.json:
        raise click.UsageError("--follow has no end and --json is one document: give one of them")
    with _reader(invocation) as reader:
        head = reader.head()[0]
        newest = reader.events_since(0, lines, run=run, call=call, kind=kind, newest_first=True)
        events = newest[::-1]
        invocation.output.data(
            {"events": [as_json(event) for event in events]}, lambda _: invocation.output.lines(map(as_line, events))
        )
        if following:
            invocation.output.flush()
            after = max(head, events[-1].seq) if events else head
            for event in reader.follow(after, run=run, call=call, kind=kind):
                invocation.output.lines([as_line(event)])
                invocation.output.flush()


@journal.command()
@click.argument("event", metavar="SEQ|EVENT_ID")
@pass_invocation
def show(invocation: Invocation, event: str) -> None:
    """Show one event in full."""
    from palyra.ids import EventId

    with _reader(invocation) as reader:
        wanted = int(event) if event.isascii() and event.isdigit() and len(event) < 19 else EventId.parse(event)
        invocation.output.data(as_json(reader.event(wanted)))


@journal.command("arguments")
@click.argument("call_id", metavar="CALL")
@pass_invocation
def show_arguments(invocation: Invocation, call_id: str) -> None:
    """Show the whole arguments of a call, which the journal has clipped and redacted.

    They are kept sealed beside the journal for journal.arguments_days. Needs a policy that permits journal.read to you.
    Each reading is recorded. Into a pipe or a file, the canonical JSON goes byte for byte.
    """
    with open_client(invocation) as client:
        kept = client.call_arguments(call_id)
    output = invocation.output
    output.note(
        f"{escape(kept.tool)} by {escape(kept.principal)}; "
        + (
            f"{kept.redacted} known {'secret was' if kept.redacted == 1 else 'secrets were'} replaced, so"
            f" sha256 {escape(kept.argument_digest)} of the arguments cannot be computed from this"
            if kept.redacted
            else f"sha256 {escape(kept.argument_digest)}, as in the journal"
        )
    )
    if output.json:
        output.data(kept.document)
        return
    if sys.stdout.isatty():
        output.text(respell_json(kept.arguments_json))
    else:
        _to_stdout(invocation, [kept.arguments_json.encode()])


@journal.command("verify")
@click.argument("export_file", metavar="[FILE.jsonl]", required=False, type=_file)
@click.option("--checkpoint", "kept", multiple=True, metavar="FILE", type=_file, help="A checkpoint you kept.")
@click.option("--public-key", "keys", multiple=True, metavar="FILE", type=_file, help="The signer's public key (PEM).")
@pass_invocation
def verify_journal(
    invocation: Invocation, export_file: Path | None, kept: Sequence[Path], keys: Sequence[Path]
) -> None:
    """Check every event, the chain and the signed checkpoints.

    Ends with exit code 7 where events are whole and no checkpoint covers them: their writer could have made them
    up. The newest events of a running journal are excepted, for ten minutes.

    Without FILE.jsonl the journal in the state directory is checked, against the copy of its newest checkpoint that
    lies beside it too. Someone who could write the whole state directory could have replaced that copy and the public
    key: keep both elsewhere and give them with --checkpoint and --public-key.
    """
    from palyra.clock import SystemClock
    from palyra.journal.verify import verify_journal

    verifiers = _verifiers(invocation, keys)
    anchors = [_load_checkpoint(path) for path in kept]
    with invocation.output.working("verifying"):
        if export_file is not None:
            report, beside = _verify_export(export_file, verifiers, anchors), False
            report.require_proven()
        else:
            copy = _copy_beside(invocation)
            beside = copy is not None
            with _reader(invocation) as reader:
                report = verify_journal(reader, verifiers, anchors=[*anchors, *([copy] if copy else [])])
            report.require_proven(at_ms=SystemClock().now_ms())
    if export_file is None and report.checkpoints and not beside:
        invocation.output.warning(
            "the copy of the newest checkpoint beside the journal is missing: a cut tail would not show"
        )
    invocation.output.data(report, _report_lines)


@journal.command()
@click.option("--out", metavar="FILE", type=_file, help="Write to FILE instead of standard output.")
@click.option("--from", "first", default=1, metavar="SEQ", type=click.IntRange(1), help="The first event.")
@click.option(
    "--to",
    "last",
    default=None,
    metavar="SEQ",
    type=click.IntRange(1),
    help="The last event; the file goes on to its checkpoint.",
)
@pass_invocation
def export(invocation: Invocation, out: Path | None, first: int, last: int | None) -> None:
    """Write events as lines of JSON that other tools read and `palyra journal verify` checks."""
    from palyra.journal.export import export_lines
    from palyra.journal.verify import walk_journal

    if out is None and invocation.output.json:
        raise click.UsageError("the export itself goes to standard output: give --out FILE with --json")
    with _reader(invocation) as reader:
        verifier, start, items = walk_journal(reader, _verifiers(invocation, ()), first_seq=first, last_seq=last)
        lines = export_lines(items, start)
        if out is None:
            _to_stdout(invocation, lines)
            return
        _to_file(out, lines)
    report = verifier.report
    if report.unsealed:
        invocation.output.warning(
            f"no checkpoint covers the last {report.unsealed} events yet: in a minute one does, so export again then"
        )
    data = {"file": str(out), "events": report.events, "first_seq": report.first_seq, "last_seq": report.last_seq,
            "sealed_through": report.sealed_through}  # fmt: skip
    invocation.output.data(data, lambda _: f"{report.events} events, {report.first_seq} to {report.last_seq}, in {out}")


@journal.command()
@click.option("--out", metavar="FILE", type=_file, help="Write to FILE instead of standard output.")
@pass_invocation
def checkpoint(invocation: Invocation, out: Path | None) -> None:
    """Print the newest checkpoint, for an auditor to keep."""
    import json

    from palyra.journal.verify import newest_checkpoint

    with _reader(invocation) as reader:
        newest = newest_checkpoint(reader)
    if newest is None:
        raise NoCheckpointYet("the journal has no checkpoint yet")
    document = newest.to_json()
    if out is not None:
        _to_file(out, [document + b"\n"])
        invocation.output.data(
            {"file": str(out), "number": newest.number, "last_seq": newest.last_seq},
            lambda _: f"checkpoint {newest.number}, up to event {newest.last_seq}, in {out}",
        )
        return
    invocation.output.data(json.loads(document), lambda _: document.decode())


def as_json(event: "Event") -> dict[str, Any]:
    from palyra.clock import rfc3339

    return {
        "seq": event.seq,
        "id": event.id,
        "time": rfc3339(event.time_ms),
        "time_ms": event.time_ms,
        "kind": event.kind,
        "actor": event.actor,
        "principal": event.principal,
        "run": event.run,
        "call": event.call,
        "payload": event.payload_value(),
        "prev_hash": event.prev_hash.hex(),
        "hash": event.hash.hex(),
    }


def as_line(event: "Event") -> str:
    """One line whatever the event holds: no field of it can look like another field, or like another line."""
    from palyra.clock import rfc3339

    payload = event.payload.decode("utf-8", "backslashreplace")
    fields = [str(event.seq), rfc3339(event.time_ms), *map(_field, (event.kind, event.actor))]
    named = (("principal", event.principal), ("run", event.run), ("call", event.call))
    fields += [f"{name}={_field(value)}" for name, value in named if value]
    return one_line("  ".join([*fields, payload]))


def _field(value: str) -> str:
    return value if _BARE.fullmatch(value) else repr(value)


def _report_lines(report: "VerifyReport") -> str:
    if not report.events:
        return "the journal is empty"
    signed = f"{report.checkpoints} signed by {', '.join(report.key_ids)}, up to event {report.sealed_through}"
    return (
        f"sound: {report.events} events, {report.first_seq} to {report.last_seq}\n"
        f"checkpoints: {signed if report.checkpoints else 'none yet'}; {report.unsealed} events not sealed yet\n"
        f"compared with {report.anchors} kept {'checkpoint' if report.anchors == 1 else 'checkpoints'}\n"
        f"head: {report.head_hash}"
    )


def _reader(invocation: Invocation) -> "SqliteReader":
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader

    return SqliteReader(invocation.state_path / DATABASE_NAME)


def _verifiers(invocation: Invocation, keys: Sequence[Path]) -> "list[Verifier]":
    from palyra.signing.ed25519 import Ed25519Verifier

    return [Ed25519Verifier.from_pem_file(path) for path in keys or (invocation.state_path / PUBLIC_KEY_NAME,)]


def _load_checkpoint(path: Path) -> "Checkpoint":
    from palyra.journal.checkpoint import load_checkpoint

    try:
        return load_checkpoint(path)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}") from error


def _copy_beside(invocation: Invocation) -> "Checkpoint | None":
    from palyra.journal.checkpoint import CHECKPOINT_NAME

    path = invocation.state_path / CHECKPOINT_NAME
    return _load_checkpoint(path) if path.exists() else None


def _verify_export(path: Path, verifiers: "Sequence[Verifier]", anchors: "Sequence[Checkpoint]") -> "VerifyReport":
    from palyra.journal.export import ExportReader
    from palyra.journal.verify import JournalVerifier

    reader = ExportReader(_file_lines(path))
    verifier = JournalVerifier(verifiers, anchors=anchors, start=reader.start)
    return verifier.verify(reader.rows(_file_lines(path)), reader.checkpoints)


def _file_lines(path: Path) -> Iterator[bytes]:
    from palyra.journal.export import MAX_LINE_BYTES

    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                yield line
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}") from error


def _to_stdout(invocation: Invocation, lines: Iterable[bytes]) -> None:
    """Bytes as they are into a pipe or file; on a terminal what could steer it is spelled out."""
    if sys.stdout.isatty():
        for line in lines:
            invocation.output.text(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        return
    stream = sys.stdout.buffer
    for line in lines:
        stream.write(line)
    stream.flush()


def _to_file(path: Path, lines: Iterable[bytes]) -> None:
    """Appears under its name only when it is whole."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnreadableFile(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:
            for line in lines:
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
